package replaypage

import (
	"html"
	"strconv"
	"strings"

	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/cmd/stint/internal/replay"
	"github.com/stintdev/stint/internal/spelling"
)

// markup is HTML that stands in this package. Each {} in it is the place of an argument, in text or in a quoted
// attribute. No other string may become markup: what a log says would be one. Package html/template does the same
// for any text, but whoever links it links 16 MB more: it finds methods by name, so the linker keeps all.
type markup string

// name is a text that is no sentence, such as a key or the terms of a limit. It is the same in both languages.
type name string

// longest is how many characters of a text are shown, if its place does not say fewer.
const longest = 1000

// writer writes HTML.
type writer struct{ strings.Builder }

// put writes markup with its arguments, all of them escaped: a string as it is, a name as code, a Phrase in both
// languages, an int64 with commas, other numbers without.
func (w *writer) put(m markup, args ...any) {
	for _, arg := range args {
		before, after, _ := strings.Cut(string(m), "{}")
		w.WriteString(before)
		w.argument(arg)
		m = markup(after)
	}
	w.WriteString(string(m))
}

func (w *writer) argument(arg any) {
	switch a := arg.(type) {
	case string:
		w.text(a)
	case name:
		w.WriteString("<code>")
		w.text(string(a))
		w.WriteString("</code>")
	case phrase.Phrase:
		w.phrase(a)
	case int:
		w.WriteString(strconv.Itoa(a))
	case int64:
		w.WriteString(spelling.Grouped(a))
	case float64:
		w.WriteString(strconv.FormatFloat(a, 'f', 2, 64))
	default:
		panic("no text") // of this package, not of a log
	}
}

// text writes a text, without what would turn the letters around it.
func (w *writer) text(text string) { w.WriteString(html.EscapeString(replay.Clip(text, longest))) }

// phrase writes both languages, of which the style shows one.
func (w *writer) phrase(p phrase.Phrase) {
	english, chinese := p.String(), p.Chinese()
	if english == chinese {
		w.text(english)
		return
	}
	w.WriteString(`<span lang="en">`)
	w.text(english)
	w.WriteString(`</span><span lang="zh-CN">`)
	w.text(chinese)
	w.WriteString(`</span>`)
}

// table begins a table in a box of its own, which scrolls if the screen is narrow. Its id must be the page's only one.
// A heading that is empty is no heading. end ends it.
func (w *writer) table(id, class string, caption phrase.Phrase, headings ...any) {
	w.put("<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-labelledby=\"{}\">\n<table class=\"{}\">\n<caption id=\"{}\">{}</caption>\n", id, class, id, caption)
	if len(headings) > 0 {
		w.put("<thead><tr>")
		for _, h := range headings {
			if h == "" {
				w.put("<td></td>")
			} else {
				w.put("<th scope=\"col\">{}</th>", h)
			}
		}
		w.put("</tr></thead>\n")
	}
	w.put("<tbody>\n")
}

func (w *writer) end() { w.put("</tbody>\n</table>\n</div>\n") }
