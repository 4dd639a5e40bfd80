package limittext

import (
	"strconv"
	"strings"
	"time"
)

// leastLetters are enough to tell the names of days and months apart.
const leastLetters = 3

// Weekday reads the name of a day in English, in any case, or its first three letters or more.
func Weekday(text string) (time.Weekday, bool) {
	for d := time.Sunday; d <= time.Saturday; d++ {
		if isName(text, d.String()) {
			return d, true
		}
	}
	return 0, false
}

func isName(text, name string) bool {
	return len(text) >= leastLetters && len(text) <= len(name) && strings.EqualFold(text, name[:len(text)])
}

// MonthDay reads a day of the year: 04-06, 4-6, Apr-6 or 6 April. Two numbers are the month and the day.
func MonthDay(text string) (time.Month, int, bool) {
	parts := strings.FieldsFunc(text, func(c rune) bool { return c == '-' || c == ' ' })
	if len(parts) != 2 {
		return 0, 0, false
	}
	month, ok := monthOf(parts[0])
	if !ok {
		if month, ok = monthOf(parts[1]); ok {
			parts[1] = parts[0]
		}
	}
	if !ok {
		n, err := strconv.ParseUint(parts[0], 10, 8)
		if err != nil || n < 1 || n > 12 {
			return 0, 0, false
		}
		month = time.Month(n)
	}
	const leapYear = 2000
	day, err := strconv.ParseUint(parts[1], 10, 8)
	if err != nil || day < 1 || time.Date(leapYear, month, int(day), 0, 0, 0, 0, time.UTC).Month() != month {
		return 0, 0, false
	}
	return month, int(day), true
}

func monthOf(text string) (time.Month, bool) {
	for m := time.January; m <= time.December; m++ {
		if isName(text, m.String()) {
			return m, true
		}
	}
	return 0, false
}

// ZoneNames returns the names that the IANA database may have for a time zone that is given in any
// case, and with blanks for underscores. The database cannot list its names. Likely names come first,
// so that a file system that ignores case returns the right one.
func ZoneNames(text string) []string {
	name := strings.ReplaceAll(strings.TrimSpace(text), " ", "_")
	lower := strings.ToLower(name)
	for _, odd := range oddZones {
		if strings.ToLower(odd) == lower {
			return []string{odd}
		}
	}
	return []string{titled(lower), strings.ToUpper(name), name}
}

// oddZones are names with capitals within words, or in words that are lower case elsewhere.
var oddZones = []string{
	"America/Argentina/ComodRivadavia", "America/Port-au-Prince", "Antarctica/DumontDUrville", "Antarctica/McMurdo",
	"Australia/ACT", "Australia/LHI", "Australia/NSW", "Brazil/DeNoronha", "Chile/EasterIsland", "America/Knox_IN", "GB-Eire", "Mexico/BajaNorte", "Mexico/BajaSur", "NZ-CHAT",
	"Etc/UCT", "Etc/UTC", "US/East-Indiana",
}

// titled capitalizes each word of a name in lower case.
func titled(lower string) string {
	b := []byte(lower)
	start := 0
	for i := 0; i <= len(b); i++ {
		if i < len(b) && b[i] != '/' && b[i] != '_' && b[i] != '-' && b[i] != '+' {
			continue
		}
		switch word := lower[start:i]; {
		case word == "" || word == "of" || word == "es":
		case word == "us" || strings.HasPrefix(word, "gmt"):
			copy(b[start:], strings.ToUpper(word))
		default:
			b[start] = strings.ToUpper(word[:1])[0]
		}
		start = i + 1
	}
	return string(b)
}
