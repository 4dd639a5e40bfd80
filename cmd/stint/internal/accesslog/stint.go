package accesslog

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The access log of stint serve: docs/logs.md. Its other lines are not about requests.
//
// The time of a line is that of its end, and seconds is how long it took.
var stintKeys = map[string]field{
	"time": {role: ended, rank: 1}, "msg": {role: required, name: "request"}, "method": {role: method}, "host": {role: host},
	"path": {role: stintPath}, "status": {role: status}, "seconds": {role: took}, "client": {role: client},
	"request_id": {role: header, name: "X-Request-Id"},
}

// stintMembers are stintKeys, which are so few that to compare them is faster than a map.
var stintMembers = func() []node {
	root, err := compilePaths(stintKeys)
	if err != nil {
		panic(err)
	}
	return root.inside
}()

// stintText reads lines of key=value text, as slog.TextHandler writes them.
type stintText struct{}

func (stintText) read(line string, d *draft) error {
	if !strings.HasPrefix(line, "time=") {
		return errOfForm
	}
	for line != "" {
		key, rest, ok := strings.Cut(line, "=")
		if !ok {
			return errOfForm
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			end := endOfQuoted(rest, 1)
			if end < 0 {
				return errOfForm
			}
			value, line = unescape(rest[1:end]), rest[end+1:]
			if line != "" {
				if line[0] != ' ' {
					return errOfForm
				}
				line = line[1:]
			}
		} else {
			value, line, _ = strings.Cut(rest, " ")
		}
		for i := range stintMembers {
			if m := &stintMembers[i]; m.name == key {
				if err := d.put(m.field, value); err != nil {
					return err
				}
				break
			}
		}
	}
	if !d.isRequest {
		return errOfForm
	}
	return nil
}

// stintJSON reads lines of JSON, as slog.JSONHandler writes them.
type stintJSON struct{ json reader }

func (s stintJSON) read(line string, d *draft) error {
	err := s.json.read(line, d)
	if err == nil && !d.isRequest {
		return errOfForm
	}
	return err
}

// longestByStint is how many bytes of a text the gateway logs.
const longestByStint = 200

// loggedByStint undoes what the gateway does to a path. A path with other than printable characters is
// escaped; after 200 bytes it is cut, and its beginning is returned. No request to it has control characters of
// ASCII in its path, so what looks like one of them is a backslash that was sent.
func loggedByStint(text string) string {
	beginning, cut := strings.CutSuffix(text, "...")
	if cut = cut && len(beginning) >= longestByStint; !cut {
		beginning = text
	}
	if strings.IndexByte(beginning, '\\') < 0 {
		return beginning
	}
	sent, err := strconv.Unquote(`"` + beginning + `"`)
	if err != nil || hasControls(sent) || !cut && isPrintable(sent) { // such a text would not be escaped
		return beginning
	}
	return sent
}

func isPrintable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

func hasControls(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0
}

// endOfQuoted is the index of the first quote from an index on that no backslash escapes; -1: there is none.
func endOfQuoted(text string, from int) int {
	for at := from; ; {
		i := strings.IndexByte(text[at:], '"')
		if i < 0 {
			return -1
		}
		at += i
		escapes := 0
		for at-escapes > from && text[at-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at
		}
		at++
	}
}
