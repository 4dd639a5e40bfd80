package watch

import (
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stintdev/stint"
)

// longestShown is how many bytes of a text from a request are logged.
const longestShown = 200

// Shown is text from a request in a form for a log: ASCII, and not long.
func Shown(text string) string {
	rest := ""
	if len(text) > longestShown {
		text, rest = text[:longestShown], "..."
	}
	quoted := strconv.QuoteToASCII(text)
	return quoted[1:len(quoted)-1] + rest
}

// RequestID is the ID that a client or a proxy gave a request. lines are the header's lines.
func RequestID(lines []string) string {
	if len(lines) != 1 {
		return ""
	}
	return Loggable(lines[0])
}

// loggedWait is a wait for a line, in ms from one second on.
func loggedWait(d time.Duration) string {
	switch {
	case d == stint.Never:
		return "never"
	case d >= time.Second:
		d = d.Round(time.Millisecond)
	}
	return d.String()
}

// Loggable returns text from a request for a line of any Handler: not long, and with printable characters
// only, so nothing ends a line or moves a terminal's cursor. Other text is escaped as by Shown.
func Loggable(text string) string {
	if len(text) > longestShown || !utf8.ValidString(text) {
		return Shown(text)
	}
	for _, c := range text {
		if !unicode.IsPrint(c) {
			return Shown(text)
		}
	}
	return text
}
