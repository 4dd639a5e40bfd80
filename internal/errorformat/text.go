package errorformat

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/spelling"
)

// Values fill a Text. Empty and 0: not known.
type Values struct {
	Message    string // the sentence for the client
	Outcome    string // such as limited
	DecisionID string
	RetryAfter string // such as 12m 5s
	BanLeft    string
	Limit      string // such as 5 per 1m
	LimitName  string

	Status                          int
	RetryAfterSeconds               int64
	Violations, WarnAfter, BanAfter int64
}

// placeholders are the placeholders of texts. If you add one, list it in the documentation of rules
// and of httplimit.ErrorFormat.
var placeholders = [...]struct {
	name   string
	number bool
	value  func(*Values) string // empty: not known
}{
	{"message", false, func(v *Values) string { return v.Message }},
	{"outcome", false, func(v *Values) string { return v.Outcome }},
	{"status", true, func(v *Values) string { return digits(int64(v.Status)) }},
	{"decision_id", false, func(v *Values) string { return v.DecisionID }},
	{"retry_after", false, func(v *Values) string { return v.RetryAfter }},
	{"retry_after_seconds", true, func(v *Values) string { return digits(v.RetryAfterSeconds) }},
	{"ban_left", false, func(v *Values) string { return v.BanLeft }},
	{"limit", false, func(v *Values) string { return v.Limit }},
	{"limit_name", false, func(v *Values) string { return v.LimitName }},
	{"violations", true, func(v *Values) string { return digits(v.Violations) }},
	{"warn_after", true, func(v *Values) string { return digits(v.WarnAfter) }},
	{"ban_after", true, func(v *Values) string { return digits(v.BanAfter) }},
}

func digits(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Placeholders returns the names of all placeholders.
func Placeholders() []string {
	names := make([]string, len(placeholders))
	for i := range placeholders {
		names[i] = placeholders[i].name
	}
	return names
}

// Text is a text cut at its placeholders.
type Text struct {
	pieces []piece
	rest   string // after the last placeholder
}

// piece is the text before a placeholder, and the placeholder.
type piece struct {
	before string
	holder int // in placeholders
	write  writer
}

// writer writes a value in the syntax around it.
type writer func(b *strings.Builder, value string)

// Fill returns the text with v in it.
func (t *Text) Fill(v *Values) string {
	var b strings.Builder
	for _, p := range t.pieces {
		b.WriteString(p.before)
		p.write(&b, strings.ToValidUTF8(placeholders[p.holder].value(v), "\ufffd"))
	}
	b.WriteString(t.rest)
	return b.String()
}

// written returns where in the template a byte of the filled text is.
func (t *Text) written(v *Values, at int) int {
	template, filled := 0, 0
	for _, p := range t.pieces {
		if at < filled+len(p.before) {
			return template + at - filled
		}
		template += len(p.before)
		one := Text{pieces: []piece{p}}
		filled += len(one.Fill(v))
		if at < filled {
			return template
		}
		template += len(placeholders[p.holder].name) + len("{}")
	}
	return template + min(at-filled, len(t.rest))
}

func asIs(b *strings.Builder, value string) { b.WriteString(value) }

// inJSONString is for values between the quotes of a string.
func inJSONString(b *strings.Builder, value string) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings always marshal
	}
	b.Write(text[1 : len(text)-1])
}

// asJSONNumber is for numbers outside of strings.
func asJSONNumber(b *strings.Builder, value string) {
	if value == "" {
		value = "null"
	}
	b.WriteString(value)
}

// inMarkup is for the text of elements and the quoted values of attributes, in HTML and in XML.
func inMarkup(b *strings.Builder, value string) {
	_ = xml.EscapeText(b, []byte(value)) // a Builder takes all
}

// inHeader encodes % and all but printable ASCII as %XX.
func inHeader(b *strings.Builder, value string) {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
}

// span is a placeholder in a text: the bytes from its { to after its }.
type span struct{ from, to, holder int }

// spans finds the placeholders in a text. Other braces stay as they are, unless they contain a
// misspelled name. offset is the place of an error, in bytes.
func spans(text string) (all []span, offset int, err error) {
	names := Placeholders()
	for i := 0; i < len(text); i++ {
		if text[i] != '{' {
			continue
		}
		name, ok := nameIn(text[i+1:])
		if !ok {
			continue
		}
		if holder := indexOf(name); holder >= 0 {
			all = append(all, span{i, i + len(name) + len("{}"), holder})
			if len(all) > MaxPlaceholders {
				return nil, i, fmt.Errorf("more than %d placeholders", MaxPlaceholders)
			}
			i += len(name) + 1
			continue
		}
		near := spelling.Nearest(strings.ReplaceAll(strings.TrimSpace(name), "-", "_"), names)
		if near != "" {
			return nil, i, fmt.Errorf("unknown placeholder {%s}: did you mean {%s}? (placeholders: {%s})", limittext.Clip(name), near, strings.Join(names, "}, {"))
		}
	}
	return all, 0, nil
}

// nameIn returns the possible name of a placeholder in a text after a {.
func nameIn(text string) (string, bool) {
	const longest = 40
	for i := range min(len(text), longest) {
		switch c := text[i]; {
		case c == '}':
			return text[:i], true
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == ' ':
		default:
			return "", false
		}
	}
	return "", false
}

func indexOf(name string) int {
	for i := range placeholders {
		if placeholders[i].name == name {
			return i
		}
	}
	return -1
}

// newText cuts text at its placeholders, each with its writer.
func newText(text string, all []span, writers []writer) Text {
	var t Text
	at := 0
	for i, s := range all {
		t.pieces = append(t.pieces, piece{text[at:s.from], s.holder, writers[i]})
		at = s.to
	}
	t.rest = text[at:]
	return t
}

// same returns the same writer for each placeholder.
func same(w writer, all []span) []writer {
	writers := make([]writer, len(all))
	for i := range writers {
		writers[i] = w
	}
	return writers
}
