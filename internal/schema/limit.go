package schema

import (
	"fmt"
	"strings"

	"github.com/stintdev/stint"
)

// Algorithm is the name of an algorithm of a limit, in any case, and with - for _.
func Algorithm() Shape {
	return spelled(stint.TokenBucket, stint.LeakyBucket, stint.FixedWindow, stint.SlidingLog, stint.SlidingWindow, stint.InFlight)
}

// Limit is the text of a limit. Its pattern matches all texts that stint.ParseLimit reads, and
// others with the same words in the same order.
func Limit() Shape {
	const between = "[^!-~]+" // blanks of any kind
	word := func(s Shape) string { return strings.Trim(s.Pattern, "^$") }
	period := "([+]?(" + partPattern + ")+|" + daysPattern + "|" + word(spelled(stint.Day, stint.Week, stint.Month, stint.Year)) + ")"
	option := AnyCase("in", "starts", "burst", "buckets", "lease", "hold", "retry", "debt")
	terms := "[+]?[0-9]+" + between +
		"(" + word(spelled(stint.InFlight)) + "|" + AnyCase("per") + between + period + "(" + between + word(Algorithm()) + ")?)" +
		"(" + between + option + "(" + between + "[!-~]+)?)*"
	return Scalar("limit", "^(.*:)?[^!-~]*("+AnyCase("unlimited")+"|"+terms+")[^!-~]*$")
}

// spelled is a shape for one of all, in any case, and with - for _.
func spelled[T fmt.Stringer](all ...T) Shape {
	words := make([]string, len(all))
	for i, v := range all {
		words[i] = v.String()
	}
	s := Words(words...)
	s.Pattern = "^" + strings.ReplaceAll(AnyCase(words...), "_", "[_-]") + "$"
	return s
}
