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
		if f, ok := stintKeys[key]; ok {
			if err := d.put(&f, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// longestByStint is how many bytes of a text the gateway logs.
const longestByStint = 200

// loggedByStint undoes what the gateway does to a path. A path with other than printable characters is
// escaped; after 200 bytes it is cut, and its beginning is returned.
func loggedByStint(text string) string {
	beginning, cut := strings.CutSuffix(text, "...")
	if cut = cut && len(beginning) >= longestByStint; !cut {
		beginning = text
	}
	if strings.IndexByte(beginning, '\\') < 0 {
		return beginning
	}
	sent, err := strconv.Unquote(`"` + beginning + `"`)
	if err != nil || !cut && isPrintable(sent) { // such a text would not be escaped
		return beginning
	}
	return sent
}

func isPrintable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
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
