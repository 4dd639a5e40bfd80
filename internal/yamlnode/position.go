package yamlnode

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Position is where in the file a character of n's text is. It is exact for plain and quoted text on
// one line and for literal blocks (|); for text folded from several lines, it is the text's
// beginning.
func (r *Reader) Position(n *Node, offset int) (line, column int) {
	if r.lines == nil {
		r.lines = strings.Split(strings.ReplaceAll(string(r.data), "\r\n", "\n"), "\n")
	}
	value := []rune(n.Value)
	offset = max(0, min(offset, len(value)))
	if n.Line < 1 || n.Line > len(r.lines) {
		return n.Line, n.Column
	}
	if n.Style&yaml.LiteralStyle != 0 {
		return r.inLiteral(n, value, offset)
	}
	source := []rune(r.lines[n.Line-1])
	if n.Column < 1 || n.Column > len(source) {
		return n.Line, n.Column
	}
	source = source[n.Column-1:]
	at, ok := 0, true
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		at, ok = inQuotes('"', source, offset, doubleQuoted)
	case n.Style&yaml.SingleQuotedStyle != 0:
		at, ok = inQuotes('\'', source, offset, singleQuoted)
	default:
		at = offset
		ok = len(source) >= offset && string(source[:offset]) == string(value[:offset])
	}
	if !ok {
		at = 0
	}
	return n.Line, n.Column + at
}

// inLiteral finds a character of a literal block, less its indentation.
func (r *Reader) inLiteral(n *Node, value []rune, offset int) (line, column int) {
	rows := strings.Split(string(value), "\n")
	row := strings.Count(string(value[:offset]), "\n")
	for i, text := range rows {
		if strings.Trim(text, " ") == "" || n.Line+i >= len(r.lines) {
			continue
		}
		indent := len(r.lines[n.Line+i]) - len(text)
		if indent < 0 || !strings.HasSuffix(r.lines[n.Line+i], text) {
			break
		}
		for _, above := range rows[:row] {
			offset -= len([]rune(above)) + 1
		}
		return n.Line + 1 + row, indent + offset + 1
	}
	return n.Line, n.Column
}

// inQuotes is how far into the quoted source the character at offset is. width returns how many
// source characters the next one takes; 0: none.
func inQuotes(mark rune, source []rune, offset int, width func([]rune) int) (int, bool) {
	if source[0] != mark {
		return 0, false // YAML counts more line breaks than \n
	}
	at := 1
	for range offset {
		if at >= len(source) {
			return 0, false
		}
		w := width(source[at:])
		if w == 0 {
			return 0, false
		}
		at += w
	}
	return at, true
}

func singleQuoted(source []rune) int {
	switch {
	case source[0] != '\'':
		return 1
	case len(source) > 1 && source[1] == '\'':
		return 2
	}
	return 0
}

func doubleQuoted(source []rune) int {
	switch {
	case source[0] == '"':
		return 0
	case source[0] != '\\':
		return 1
	case len(source) == 1:
		return 0
	}
	switch source[1] {
	case 'x':
		return 4
	case 'u':
		return 6
	case 'U':
		return 10
	}
	return 2
}
