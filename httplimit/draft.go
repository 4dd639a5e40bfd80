package httplimit

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/stintdev/stint"
)

// longestInteger is the largest number that a structured field can hold.
const longestInteger = 999_999_999_999_999

func (w *waits) setDraft(h http.Header, a *Answer) {
	each := a.Each
	if len(each) == 0 {
		each = []stint.Decision{a.Decision}
	}
	policy, state := make([]byte, 0, 128), make([]byte, 0, 128)
	names := make([]string, 0, 8)
	for i := range each {
		e := &each[i]
		if e.Limit == nil {
			continue
		}
		if len(names) > 0 {
			policy, state = append(policy, ", "...), append(state, ", "...)
		}
		names = append(names, policyName(e.Limit, names))
		item := `"` + names[len(names)-1] + `"`
		policy = appendPolicy(append(policy, item...), e.Limit)
		state = append(append(state, item...), ";r="...)
		state = strconv.AppendInt(state, min(e.Remaining, longestInteger), 10)
		state = append(state, ";t="...)
		state = strconv.AppendInt(state, w.reset(e), 10)
	}
	if len(names) == 0 {
		return
	}
	h["Ratelimit-Policy"] = []string{string(policy)}
	h["Ratelimit"] = []string{string(state)}
}

func appendPolicy(b []byte, l *stint.Limit) []byte {
	s := l.Spec()
	b = append(b, ";q="...)
	b = strconv.AppendInt(b, min(s.Amount, longestInteger), 10)
	if s.Period%time.Second == 0 {
		b = append(b, ";w="...)
		b = strconv.AppendInt(b, int64(s.Period/time.Second), 10)
	}
	if c := l.Capacity(); c != s.Amount {
		b = append(b, ";stint-burst="...)
		b = strconv.AppendInt(b, min(c, longestInteger), 10)
	}
	return b
}

// policyName is a name for l, as it stands within the quotes of a structured
// field's string, that is not among those taken.
func policyName(l *stint.Limit, taken []string) string {
	text := l.Name()
	if text == "" {
		text = l.String()
	}
	name := printable(text)
	unique := name
	for n := 2; slices.Contains(taken, unique); n++ {
		unique = name + "-" + strconv.Itoa(n)
	}
	return unique
}

// printable escapes quotes and backslashes and percent-encodes what is not
// printable ASCII, which such a string cannot hold.
func printable(text string) string {
	plain := func(c byte) bool { return c >= ' ' && c <= '~' && c != '"' && c != '\\' }
	i := 0
	for i < len(text) && plain(text[i]) {
		i++
	}
	if i == len(text) {
		return text
	}
	b := append(make([]byte, 0, 3*len(text)), text[:i]...)
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case plain(c):
			b = append(b, c)
		case c == '"', c == '\\':
			b = append(b, '\\', c)
		default:
			b = fmt.Appendf(b, "%%%02X", c)
		}
	}
	return string(b)
}
