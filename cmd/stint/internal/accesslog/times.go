package accesslog

import (
	"strconv"
	"strings"
	"time"
)

// clock reads times. It remembers the last one, which the next lines of a log often repeat.
type clock struct {
	zone   *time.Location // of times without one; nil: UTC
	latest int64          // µs since 1970 that a time without a year does not exceed

	text string // the last one
	at   int64

	quarter int64 // the last quarter of an hour in local time, since 1970, and its distance to UTC in seconds
	offset  int64
	known   bool
}

const second = 1_000_000 // in µs

// parse returns the instant of text in µs since 1970, in any form that logs have.
func (c *clock) parse(text string) (int64, bool) {
	if text == c.text && text != "" {
		return c.at, true
	}
	at, ok := c.read(text)
	if ok {
		c.text, c.at = text, at
	}
	return at, ok
}

func (c *clock) read(text string) (int64, bool) {
	switch {
	case len(text) >= 20 && text[2] == '/' && text[6] == '/':
		return c.common(text)
	case len(text) >= 19 && text[4] == '-' && text[7] == '-':
		return c.iso(text)
	case len(text) >= 15 && text[3] == ' ':
		return c.syslog(text)
	}
	return epoch(text)
}

// common reads 02/Jan/2006:15:04:05 with an optional fraction and zone, as servers have written it since NCSA's.
func (c *clock) common(text string) (int64, bool) {
	day, month, year := number(text[0:2]), monthOf(text[3:6]), number(text[7:11])
	if text[11] != ':' {
		return 0, false
	}
	seconds, ok := clockOf(text[12:20], day, month, year)
	return c.rest(seconds, text[20:], ok)
}

// iso reads RFC 3339, with a blank for its T, a comma for the point, or without a zone.
func (c *clock) iso(text string) (int64, bool) {
	if text[10] != 'T' && text[10] != ' ' && text[10] != 't' {
		return 0, false
	}
	seconds, ok := clockOf(text[11:19], number(text[8:10]), number(text[5:7]), number(text[0:4]))
	return c.rest(seconds, text[19:], ok)
}

// syslog reads Jan _2 15:04:05, in the latest year that is possible.
func (c *clock) syslog(text string) (int64, bool) {
	day := number(text[4:6])
	if text[4] == ' ' {
		day = number(text[5:6])
	}
	if text[6] != ' ' {
		return 0, false
	}
	for year, least := time.UnixMicro(c.latest).UTC().Year()+1, 1970; year >= least; year-- {
		seconds, ok := clockOf(text[7:15], day, monthOf(text[:3]), year)
		if !ok && day != 29 { // of February
			return 0, false
		}
		if at, read := c.rest(seconds, text[15:], ok); read && at <= c.latest {
			return at, true
		}
	}
	return 0, false
}

// rest adds the fraction and the zone that follow local seconds since 1970.
func (c *clock) rest(seconds int64, text string, ok bool) (int64, bool) {
	if !ok {
		return 0, false
	}
	micros := int64(0)
	if text != "" && (text[0] == '.' || text[0] == ',') {
		n := 1
		for n < len(text) && isDigit(text[n]) {
			n++
		}
		if n == 1 {
			return 0, false
		}
		micros, text = fraction(text[1:n]), text[n:]
	}
	if text == "" {
		seconds -= c.offsetAt(seconds)
	} else if east, ok := offsetOf(strings.TrimPrefix(text, " ")); ok {
		seconds -= east
	} else {
		return 0, false
	}
	return seconds*second + micros, seconds >= 0
}

// offsetAt is how far east of UTC the clock's zone is at a local time. Where clocks are turned back, a time
// is read as the first of the two that it may be.
func (c *clock) offsetAt(local int64) int64 {
	if c.zone == nil || c.zone == time.UTC {
		return 0
	}
	if quarter := local / 900; !c.known || quarter != c.quarter {
		t := time.Unix(local, 0).UTC()
		_, east := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, c.zone).Zone()
		c.quarter, c.offset, c.known = quarter, int64(east), true
	}
	return c.offset
}

// offsetOf reads Z, +01:00, +0100 or +01, in seconds.
func offsetOf(text string) (int64, bool) {
	if text == "Z" || text == "z" || text == "UTC" {
		return 0, true
	}
	minutes := 0
	switch {
	case len(text) == 6 && text[3] == ':':
		minutes = number(text[4:6])
	case len(text) == 5:
		minutes = number(text[3:5])
	case len(text) != 3:
		return 0, false
	}
	hours := number(text[1:3])
	if hours < 0 || hours > 23 || minutes < 0 || minutes > 59 {
		return 0, false
	}
	east := int64(hours)*3600 + int64(minutes)*60
	switch text[0] {
	case '+':
		return east, true
	case '-':
		return -east, true
	}
	return 0, false
}

// clockOf reads 15:04:05 of a day, as seconds since 1970.
func clockOf(text string, day, month, year int) (int64, bool) {
	h, m, s := number(text[0:2]), number(text[3:5]), number(text[6:8])
	if text[2] != ':' || text[5] != ':' || h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 60 {
		return 0, false
	}
	if year < 1970 || month < 1 || month > 12 || day < 1 || day > daysIn(month, year) {
		return 0, false
	}
	return daysSince1970(day, month, year)*86400 + int64(h*3600+m*60+s), true
}

// daysSince1970 counts in years that begin with March, so that a leap day is the last one.
func daysSince1970(day, month, year int) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	return int64(365*year+year/4-year/100+year/400+(153*(month-3)+2)/5+day) - 719469
}

func daysIn(month, year int) int {
	if month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		return 29
	}
	return [...]int{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[month-1]
}

func monthOf(text string) int {
	const names = "JanFebMarAprMayJunJulAugSepOctNovDec"
	if i := strings.Index(names, text); i >= 0 && i%3 == 0 {
		return i/3 + 1
	}
	return -1
}

// epoch reads a count of s, ms, µs or ns since 1970: its size says which. s, ms and µs may have a fraction.
func epoch(text string) (int64, bool) {
	whole, part, hasPart := strings.Cut(text, ".")
	n := int64(0)
	for i := range len(whole) {
		if !isDigit(whole[i]) || len(whole) > 19 {
			return epochFloat(text)
		}
		n = n*10 + int64(whole[i]-'0')
	}
	if whole == "" || n < 0 || hasPart && part == "" {
		return 0, false
	}
	for i := range len(part) {
		if !isDigit(part[i]) {
			return epochFloat(text)
		}
	}
	switch micros := fraction(part); {
	case n < 1e11:
		return n*second + micros, true
	case n < 1e14:
		return n*1000 + micros/1000, true
	case n < 1e17:
		return n, true
	}
	return n / 1000, true
}

// epochFloat reads a number with an exponent, as some languages write large ones.
func epochFloat(text string) (int64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !strings.ContainsAny(text, "eE") || !(f >= 0 && f < 1e19) {
		return 0, false
	}
	for limit := 1e11; f >= limit && f > 1e11; {
		f /= 1000
	}
	return int64(f*second + 0.5), true
}

// fraction is the µs of digits after a point.
func fraction(digits string) int64 {
	n := int64(0)
	for i := range 6 {
		n *= 10
		if i < len(digits) {
			n += int64(digits[i] - '0')
		}
	}
	return n
}

// number reads digits; -1: others are among them.
func number(digits string) int {
	n := 0
	for i := range len(digits) {
		if !isDigit(digits[i]) {
			return -1
		}
		n = n*10 + int(digits[i]-'0')
	}
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
