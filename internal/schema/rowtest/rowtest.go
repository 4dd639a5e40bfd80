// Package rowtest has helpers for tests of rows: checks that they are documented, and values that a
// row accepts and refuses.
package rowtest

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/schema"
)

// Nonsense is a word that no field accepts.
const Nonsense = "zzqx"

var sentences = regexp.MustCompile(`^[A-Z][^\n]*\.$`)

// Complete fails t for an undocumented row, and if there are fewer rows than least.
func Complete(t *testing.T, rows schema.Rows, least int) {
	t.Helper()
	n := 0
	rows.Walk("", func(path string, row *schema.Row) {
		n++
		switch {
		case !sentences.MatchString(row.Says):
			t.Errorf("%s says %q: want sentences", path, row.Says)
		case row.Default != "" && row.Computed != "":
			t.Errorf("%s has two values by default", path)
		case row.Required && (row.Default != "" || row.Computed != ""):
			t.Errorf("%s is needed, and has a value by default", path)
		case row.Default == "" && row.Example == "" && row.Kind != schema.KindMapping:
			t.Errorf("%s has no example", path)
		case row.Kind == schema.KindWords && row.Default == "" && row.Computed == "" && !row.Required:
			t.Errorf("%s: no word of it is the default", path)
		}
	})
	if n < least {
		t.Errorf("%d rows", n)
	}
}

// Values returns values that a field of the shape must accept, and some that it must refuse. name is
// valid in a mapping whose names the file chooses.
func Values(s *schema.Shape, name string) (right, wrong []string) {
	switch s.Kind {
	case schema.KindWords:
		right, wrong = s.Words, []string{Nonsense}
	case schema.KindBool:
		right, wrong = []string{"true", "false"}, []string{"maybe", "1"}
	case schema.KindNumber, schema.KindFloat, schema.KindDuration, schema.KindSize:
		right, wrong = bounds(s)
	case schema.KindText:
		wrong = []string{"1", "[a]"}
	case schema.KindScalar:
		wrong = []string{"[[a]]"}
		if s.Least != "" {
			_, beyond := bounds(s)
			wrong = append(wrong, beyond...)
		}
	case schema.KindMapping:
		wrong = []string{Nonsense, "[" + Nonsense + "]"}
	case schema.KindList, schema.KindNames:
		wrong = []string{Nonsense}
		open, end := "[", "]"
		if s.Kind == schema.KindNames {
			open, end = "{"+name+": ", "}"
		}
		r, w := Values(s.Item, name)
		for _, text := range r {
			right = append(right, open+text+end)
		}
		for _, text := range w {
			wrong = append(wrong, open+text+end)
		}
	}
	for i := range s.Or {
		more, worse := Values(&s.Or[i], name)
		right, wrong = append(right, more...), append(wrong, worse...)
	}
	if len(s.Or) > 0 { // what suits one of them is right
		wrong = slices.DeleteFunc(wrong, func(text string) bool {
			return text == Nonsense && s.Kind != schema.KindWords && s.Kind != schema.KindNumber
		})
	}
	return right, wrong
}

// bounds returns the bounds of a number with a unit, and values beyond them.
func bounds(s *schema.Shape) (right, wrong []string) {
	unit := ""
	wrong = []string{Nonsense, "[]"}
	switch s.Kind {
	case schema.KindNumber:
		wrong = append(wrong, "1.5")
	case schema.KindDuration:
		unit = "s"
		if least, err := time.ParseDuration(s.Least); err != nil || least < 7*time.Second {
			right = []string{"7s"}
		}
	}
	beyond := func(text string, by int) string {
		number := strings.TrimRight(text, "KMGTiBdhms")
		n, err := strconv.Atoi(number)
		if err != nil {
			return Nonsense
		}
		return strconv.Itoa(n+by) + cmp.Or(text[len(number):], unit)
	}
	switch s.Least {
	case "":
	case "more than 0":
		wrong = append(wrong, "0s", "-1s")
	default:
		right, wrong = append(right, s.Least), append(wrong, beyond(s.Least, -1))
	}
	if s.Most != "" {
		right, wrong = append(right, s.Most), append(wrong, beyond(s.Most, 1))
	}
	return right, wrong
}
