package main

import (
	"strings"

	"github.com/stintdev/stint/internal/yamlnode"
)

// withoutServer is the text of a rules file without its section server, which is each
// instance's own and may hold passwords, and tells whether there was one. Blank lines
// take its place, so that what is said of the others' lines stays true. Text that is
// no YAML in block form is left as it is: the server says what is wrong with it.
func withoutServer(text string) (rest string, had bool) {
	r, root := yamlnode.Open("", []byte(text))
	if r.Err() != nil || root == nil {
		return text, false
	}
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i]
		if key.Value != "server" || key.Column != 1 {
			continue
		}
		end := len(lines)
		if i+2 < len(root.Content) {
			end = root.Content[i+2].Line - 1
		}
		if end < key.Line {
			return text, false // another key on the same line
		}
		for end > key.Line && isAside(lines[end-1]) {
			end-- // a comment before the next section is that one's
		}
		for j := key.Line - 1; j < end; j++ {
			lines[j] = lineEnd(lines[j])
		}
		return strings.Join(lines, ""), true
	}
	return text, false
}

// isAside tells whether a line is blank, or a comment that begins it.
func isAside(line string) bool {
	return strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#")
}

// lineEnd is what a line ends with: a new line, or nothing.
func lineEnd(line string) string {
	if strings.HasSuffix(line, "\n") {
		return "\n"
	}
	return ""
}
