package message

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// units are how waits are written in a language, with the space before them.
type units struct{ second, minute, hour, day string }

var (
	short       = &units{"s", "m", "h", "d"}
	simplified  = &units{" 秒", " 分钟", " 小时", " 天"}
	traditional = &units{" 秒", " 分鐘", " 小時", " 天"}
)

// onlyTraditional are letters of the traditional script that are frequent in refusals and differ from the
// simplified ones.
const onlyTraditional = "請後過頻試時鐘數號鎖對帳戶還會來無訪問"

// unitsOf returns the units for a text: those of Chinese if it has Chinese letters and no Japanese or
// Korean ones.
func unitsOf(text string) *units {
	has := func(in ...*unicode.RangeTable) bool {
		return strings.ContainsFunc(text, func(r rune) bool { return unicode.In(r, in...) })
	}
	switch {
	case !has(unicode.Han) || has(unicode.Hiragana, unicode.Katakana, unicode.Hangul):
		return short
	case strings.ContainsAny(text, onlyTraditional):
		return traditional
	}
	return simplified
}

const never time.Duration = math.MaxInt64

// Wait is a wait in two units, rounded up: 45s, 12m 5s, 1d 4h. The longest of all, never, is ∞. In a
// Template whose text is Chinese, it is 45 秒, 12 分钟 5 秒, 1 天 4 小时.
func Wait(d time.Duration) string { return short.wait(d) }

func (in *units) wait(d time.Duration) (text string) {
	if d == never {
		return "∞"
	}
	// Each pair of units serves what is below the next larger one, once rounded up.
	for _, u := range [...]struct {
		small       time.Duration
		per         int64 // of the small ones in a large one
		name, large string
		below       time.Duration // 0: no end
	}{
		{time.Second, 60, in.second, in.minute, time.Hour},
		{time.Minute, 60, in.minute, in.hour, 24 * time.Hour},
		{time.Hour, 24, in.hour, in.day, 0},
	} {
		n := max(1, int64((d-1)/u.small)+1)
		if u.below > 0 && time.Duration(n) >= u.below/u.small {
			continue
		}
		var parts []string
		if n >= u.per {
			parts = append(parts, strconv.FormatInt(n/u.per, 10)+u.large)
		}
		if n%u.per > 0 {
			parts = append(parts, strconv.FormatInt(n%u.per, 10)+u.name)
		}
		text = strings.Join(parts, " ")
		break
	}
	return text
}
