package message_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/message"
)

// A wait is written in the language of its text, each placeholder that is a wait and each pair of units.
func TestWaitsInTheLanguageOfTheText(t *testing.T) {
	const short, simplified, traditional = "1s|45s|1m|12m 5s|1h|1h 30m|23h 59m|1d|1d 4h|∞",
		"1 秒|45 秒|1 分钟|12 分钟 5 秒|1 小时|1 小时 30 分钟|23 小时 59 分钟|1 天|1 天 4 小时|∞",
		"1 秒|45 秒|1 分鐘|12 分鐘 5 秒|1 小時|1 小時 30 分鐘|23 小時 59 分鐘|1 天|1 天 4 小時|∞"
	const day = 24 * time.Hour
	waits := []time.Duration{time.Millisecond, 45*time.Second - 1, time.Minute, 12*time.Minute + 5*time.Second, time.Hour, 90 * time.Minute,
		23*time.Hour + 58*time.Minute + 1, day, 28 * time.Hour, math.MaxInt64}
	for text, want := range map[string]string{
		"retry in ?":         short,
		"?":                  short,
		"Réessayez dans ? …": short,
		"请 ? 后再试":            simplified,
		"第一次：?":              simplified,
		"Wait ?, 谢谢":         simplified,
		"請 ? 後再試":            traditional,
		"?後にもう一度お試しください":       short,
		"제한(制限): ? 후 다시 시도하세요": short,
	} {
		for _, name := range []string{"retry_after", "ban_left"} {
			var got []string
			template, _, err := message.Parse(strings.ReplaceAll(text, "?", "{"+name+"}"))
			if err != nil {
				t.Fatal(err)
			}
			before, after, _ := strings.Cut(text, "?")
			for _, d := range waits {
				v := message.Values{RetryAfter: d}
				if name == "ban_left" {
					v = message.Values{BanLeft: d}
				}
				got = append(got, strings.TrimSuffix(strings.TrimPrefix(template.Fill(&v), before), after))
			}
			if strings.Join(got, "|") != want {
				t.Errorf("%s of %q: %q, want %s", name, text, got, want)
			}
		}
	}
}
