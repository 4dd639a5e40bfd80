// Package message fills numbers and waits into texts for those who are refused: those of rules
// and of Guards.
package message

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/spelling"
)

// Placeholders are what a text may name. If you add one, fill it in, check it in package rules'
// Rule.cannotFill, and list it in the documentation of rules and of stint.Guard.
var Placeholders = [...]string{"violations", "warn_after", "ban_after", "retry_after", "ban_left", "limit"}

// Template is a text cut at its placeholders. The zero Template is an empty text.
type Template []piece

// piece is what stands before a placeholder, and its name; empty after the last.
type piece struct{ before, name string }

// Values are what a Template is filled with.
type Values struct {
	Violations, WarnAfter, BanAfter int64
	RetryAfter, BanLeft             time.Duration // the longest of all: never
	Limit                           func() string
}

// Parse cuts a text at its placeholders, such as {retry_after}; {{ and }} are braces. offset is the
// place of an error, in characters.
func Parse(text string) (t Template, offset int, err error) {
	var before strings.Builder
	for i := 0; i < len(text); {
		rest := text[i:]
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			before.WriteByte(rest[0])
			i += 2
		case rest[0] == '{':
			name, _, closed := strings.Cut(rest[1:], "}")
			if !closed || !slices.Contains(Placeholders[:], name) {
				return nil, len([]rune(text[:i])), unknown(name, closed)
			}
			t = append(t, piece{before.String(), name})
			before.Reset()
			i += len(name) + 2
		case rest[0] == '}':
			return nil, len([]rune(text[:i])), fmt.Errorf("a } without a {: for a brace, write }}")
		default:
			before.WriteByte(rest[0])
			i++
		}
	}
	return append(t, piece{before.String(), ""}), 0, nil
}

func unknown(name string, closed bool) error {
	known := "{" + strings.Join(Placeholders[:], "}, {") + "}"
	if !closed {
		return fmt.Errorf("a { without a }: for a brace, write {{; the placeholders are %s", known)
	}
	hint := ""
	if near := spelling.Nearest(name, Placeholders[:]); near != "" {
		hint = ": did you mean {" + near + "}?"
	}
	return fmt.Errorf("unknown placeholder {%s}%s (placeholders: %s; for a brace, write {{)", limittext.Clip(name), hint, known)
}

// Names are the placeholders in t, in order.
func (t Template) Names() (all []string) {
	for _, p := range t {
		if p.name != "" {
			all = append(all, p.name)
		}
	}
	return all
}

// Fill returns the text with v in it.
func (t Template) Fill(v *Values) string {
	var b strings.Builder
	for _, p := range t {
		b.WriteString(p.before)
		switch p.name {
		case "violations":
			b.WriteString(strconv.FormatInt(v.Violations, 10))
		case "warn_after":
			b.WriteString(strconv.FormatInt(v.WarnAfter, 10))
		case "ban_after":
			b.WriteString(strconv.FormatInt(v.BanAfter, 10))
		case "retry_after":
			b.WriteString(Wait(v.RetryAfter))
		case "ban_left":
			b.WriteString(Wait(v.BanLeft))
		case "limit":
			b.WriteString(v.Limit())
		}
	}
	return b.String()
}

const never time.Duration = math.MaxInt64

// Wait is a wait in two units, rounded up: 45s, 12m 5s, 1d 4h. The longest of all, never, is ∞.
func Wait(d time.Duration) (text string) {
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
		{time.Second, 60, "s", "m", time.Hour},
		{time.Minute, 60, "m", "h", 24 * time.Hour},
		{time.Hour, 24, "h", "d", 0},
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
