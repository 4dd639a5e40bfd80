package spelling

import (
	"strconv"
	"strings"
)

// Several is a number of things: "1 rule", "2 rules", "0 entries". thing is the singular; its plural
// must be regular.
func Several[N int | int64](n N, thing string) string {
	if n != 1 {
		thing = plural(thing)
	}
	return strconv.FormatInt(int64(n), 10) + " " + thing
}

// Grouped is n with a comma before each three digits, as in 1,204,331.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := len(text) - len(strings.TrimPrefix(text, "-"))
	for i := len(text) - 3; i > sign; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// SeveralGrouped is Several with Grouped numbers.
func SeveralGrouped[N int | int64](n N, thing string) string {
	_, thing, _ = strings.Cut(Several(n, thing), " ")
	return Grouped(int64(n)) + " " + thing
}

func plural(thing string) string {
	before, endsInY := strings.CutSuffix(thing, "y")
	switch {
	case endsInY && !strings.HasSuffix(before, "a") && !strings.HasSuffix(before, "e") && !strings.HasSuffix(before, "o"):
		return before + "ies"
	case strings.HasSuffix(thing, "s"), strings.HasSuffix(thing, "x"), strings.HasSuffix(thing, "ch"), strings.HasSuffix(thing, "sh"):
		return thing + "es"
	}
	return thing + "s"
}
