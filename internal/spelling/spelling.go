// Package spelling suggests the right name for a misspelled one, and spells numbers of things.
package spelling

import "strings"

// Nearest returns the candidate that is probably meant by name: the one that differs from it, in
// lower case, in the fewest letters, two at most. It is empty if there is none.
func Nearest(name string, candidates []string) string {
	best, least := "", min(2, len(name)/2)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), c, least); d < least {
			best, least = c, d
		}
	}
	return best
}

// Hint is ": did you mean X?" of the Nearest, or empty.
func Hint(name string, candidates []string) string {
	if near := Nearest(name, candidates); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

// distance is how many letters must be added, dropped, changed or swapped with their neighbour to
// turn a into b; any number from limit up if it is at least limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := above[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
