// Package limittext reads and writes the words in the text of a limit, which are the same in
// a program, in a rules file and in the admin API.
package limittext

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// MaxLease is the largest share of a limit that may be leased, in percent.
const MaxLease = 50

// Lease reads the share of a limit that may be leased, such as "5%", in percent.
func Lease(text string) (int, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		if n, err := strconv.ParseUint(percent, 10, 8); err == nil && n >= 1 && n <= MaxLease {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("lease %q: must be a share from 1%% to %d%%, such as 5%%", Clip(text), MaxLease)
}

// Period reads a period: a Go duration such as "1m30s", or whole days such as "7d".
func Period(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 32)
		if err == nil && n >= 1 && n <= math.MaxInt64/int64(24*time.Hour) {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	if right := rightPeriod(text); right != "" {
		return 0, fmt.Errorf("period %q: write %s", Clip(text), right)
	}
	return 0, fmt.Errorf("period %q: must be a duration such as 500ms, 10s, 1m30s, 24h or 7d", Clip(text))
}

// rightPeriod is a period with its unit as Period reads it; empty: text is not a period.
func rightPeriod(text string) string {
	number := strings.TrimRightFunc(text, unicode.IsLetter)
	unit := strings.ToLower(text[len(number):])
	n := int64(1)
	if number != "" {
		var err error
		if n, err = strconv.ParseInt(strings.TrimSpace(number), 10, 32); err != nil || n < 1 {
			return ""
		}
	}
	switch unit {
	case "s", "sec", "second", "seconds":
		unit = "s"
	case "min", "minute", "minutes":
		unit = "m"
	case "m":
		return fmt.Sprintf("%dm for minutes, or %dd for months of 30 days", n, 30*n)
	case "h", "hr", "hour", "hours":
		unit = "h"
	case "d", "days":
		unit = "d"
	case "w", "weeks":
		n, unit = 7*n, "d"
	default:
		return ""
	}
	return strconv.FormatInt(n, 10) + unit
}

// Duration is d as a person writes it: 1m, not 1m0s. Period reads it back.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// OneOf returns a parser for the String of one of the given values, in any case. Errors name it
// field.
func OneOf[T fmt.Stringer](field string, all ...T) func(text string) (T, error) {
	return func(text string) (none T, _ error) {
		names := make([]string, len(all))
		for i, v := range all {
			if names[i] = v.String(); strings.EqualFold(names[i], text) {
				return v, nil
			}
		}
		return none, fmt.Errorf("%s %q: must be one of %s", field, Clip(text), strings.Join(names, ", "))
	}
}

// Clip is text, shortened to 80 bytes, so that a caller's text cannot fill a log.
func Clip(text string) string {
	if len(text) <= 80 {
		return text
	}
	return strings.ToValidUTF8(text[:77], "") + "…"
}
