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
