package expr

import (
	"fmt"
	"regexp"
	"strings"
)

// segmentPattern finds a segment of a path that stands for others in some routers: *, {id}, :id.
var segmentPattern = regexp.MustCompile(`\*|/(\{[^/]*\}|:[A-Za-z_][^/]*)(/|$)`)

// patternText says how to write the intended comparison with a pattern; "": it has no pattern.
func patternText(c *comparison) string {
	text := c.text
	switch c.subject {
	case "request.path", "request.path.folded()", "the start of request.path":
		where := segmentPattern.FindStringIndex(text)
		if where == nil {
			return ""
		}
		// The text before the pattern may be all that is meant.
		head, tail := strings.TrimSuffix(text[:where[0]], "/"), text[where[1]:]
		if text[where[0]] == '*' && strings.Trim(tail, "*/") == "" && strings.HasPrefix(head, "/") && text[:where[0]] != head {
			return fmt.Sprintf("%q is compared letter by letter, and no usual path has it: write request.path.under(%q)", Clip(text), Clip(head))
		}
		return fmt.Sprintf("%q is compared letter by letter, and no usual path has it: write request.path.matches(%q)", Clip(text), Clip(regexpOf(text)))
	case "request.host":
		if rest, ok := strings.CutPrefix(text, "*"); ok && rest != "" && !strings.Contains(rest, "*") {
			return fmt.Sprintf("%q is compared letter by letter, and no host has it: write request.host.endsWith(%q)", Clip(text), Clip(rest))
		}
	case "request.method":
		if strings.ContainsAny(text, "*|,") {
			return fmt.Sprintf(`%q is compared letter by letter, and no method has it: list them, as in request.method in ["GET", "HEAD"]`, Clip(text))
		}
	case "request.route":
		if head, _, ok := strings.Cut(text, "*"); ok && head != "" {
			return fmt.Sprintf("%q is compared letter by letter, and no route has it: write request.route.startsWith(%q)", Clip(text), Clip(head))
		}
	}
	return ""
}

// regexpOf is the pattern of matches for a path with segments that stand for others.
func regexpOf(text string) string {
	segments := strings.Split(text, "/")
	for i, s := range segments {
		switch {
		case s == "**":
			segments[i] = ".*"
		case len(s) > 1 && s[0] == ':', strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}"):
			segments[i] = "[^/]+"
		default:
			segments[i] = strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, "[^/]*")
		}
	}
	return "^" + strings.Join(segments, "/") + "$"
}
