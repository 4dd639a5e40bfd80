// Package message fills numbers and waits into texts for refused callers, of rules and of Guards.
package message

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/spelling"
)

// Placeholders are the placeholders of texts. If you add one, fill it in, check it in package
// rules' Rule.cannotFill, and list it in the documentation of rules and of stint.Guard.
var Placeholders = [...]string{"violations", "warn_after", "ban_after", "retry_after", "ban_left", "limit"}

// Template is a text cut at its placeholders. The zero Template is an empty text.
type Template struct {
	pieces []piece
	units  *units // of its waits
}

// piece is the text before a placeholder, and its name; empty after the last.
type piece struct{ before, name string }

// Values fill a Template.
type Values struct {
	Violations, WarnAfter, BanAfter int64
	RetryAfter, BanLeft             time.Duration // the longest of all: never
	Limit                           func() string
}

// Parse cuts a text at its placeholders, such as {retry_after}; {{ and }} are braces. offset is the
// place of an error, in characters. Waits are written in the language of the text: see Wait.
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
				return Template{}, len([]rune(text[:i])), unknown(name, closed)
			}
			t.pieces = append(t.pieces, piece{before.String(), name})
			before.Reset()
			i += len(name) + 2
		case rest[0] == '}':
			return Template{}, len([]rune(text[:i])), fmt.Errorf("a } without a {: for a brace, write }}")
		default:
			before.WriteByte(rest[0])
			i++
		}
	}
	t.pieces = append(t.pieces, piece{before.String(), ""})
	t.units = unitsOf(text)
	return t, 0, nil
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
	for _, p := range t.pieces {
		if p.name != "" {
			all = append(all, p.name)
		}
	}
	return all
}

// Fill returns the text with v in it.
func (t Template) Fill(v *Values) string {
	var b strings.Builder
	for _, p := range t.pieces {
		b.WriteString(p.before)
		switch p.name {
		case "violations":
			b.WriteString(strconv.FormatInt(v.Violations, 10))
		case "warn_after":
			b.WriteString(strconv.FormatInt(v.WarnAfter, 10))
		case "ban_after":
			b.WriteString(strconv.FormatInt(v.BanAfter, 10))
		case "retry_after":
			b.WriteString(t.units.wait(v.RetryAfter))
		case "ban_left":
			b.WriteString(t.units.wait(v.BanLeft))
		case "limit":
			b.WriteString(v.Limit())
		}
	}
	return b.String()
}
