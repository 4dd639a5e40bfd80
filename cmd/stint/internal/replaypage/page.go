// Package replaypage writes the report of a replay as one page of HTML, in English and in Chinese. The page loads
// nothing and runs nothing.
package replaypage

import (
	"cmp"
	_ "embed"
	"io"
	"slices"
	"time"

	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/cmd/stint/internal/replay"
)

//go:embed style.css
var style string

// A page is bounded: mostSections rules have a section, mostRows are in the table, and of files and notes, mostLines
// are told.
const (
	mostSections = 10
	mostRows     = 300
	mostLines    = 20
)

// page is a page that is being written.
type page struct {
	writer
	*replay.Report
	old      map[string]*replay.Rule // by name
	studied  map[string]*replay.Suggestion
	sections []*replay.Rule // rules that have one, in the file's order
}

// Write writes a report as a page of at most 500 kB.
func Write(to io.Writer, report *replay.Report) error {
	p := &page{Report: report, old: map[string]*replay.Rule{}, studied: map[string]*replay.Suggestion{}}
	for i := range report.AgainstByRule {
		p.old[report.AgainstByRule[i].Name] = &report.AgainstByRule[i]
	}
	for i := range report.Studied {
		p.studied[report.Studied[i].Rule] = &report.Studied[i]
	}
	p.sections = p.busiest(mostSections)
	p.head()
	p.facts()
	p.comparison()
	p.rules()
	for i, r := range p.sections {
		p.rule(i+1, r)
	}
	p.put("</main>\n</body>\n</html>\n")
	_, err := io.WriteString(to, p.String())
	return err
}

// busiest are the rules that refuse most, before or after, and of those that refuse nothing the ones with most
// requests.
func (p *page) busiest(most int) []*replay.Rule {
	all := make([]*replay.Rule, len(p.ByRule))
	place := map[*replay.Rule]int{}
	for i := range p.ByRule {
		all[i] = &p.ByRule[i]
		place[all[i]] = i
	}
	refused := func(r *replay.Rule) int64 {
		if old := p.old[r.Name]; old != nil {
			return max(r.Refused, old.Refused)
		}
		return r.Refused
	}
	slices.SortStableFunc(all, func(a, b *replay.Rule) int {
		return cmp.Or(cmp.Compare(refused(b), refused(a)), cmp.Compare(b.Requests, a.Requests))
	})
	all = all[:min(len(all), most)]
	slices.SortFunc(all, func(a, b *replay.Rule) int { return cmp.Compare(place[a], place[b]) })
	return all
}

func (p *page) head() {
	p.put(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>stint replay: {}</title>
<style>
`, replay.Clip(p.Rules.File, 100))
	p.WriteString(style)
	p.put(`</style>
</head>
<body>
<header>
<h1>{}</h1>
<fieldset class="language">
<legend>{}</legend>
<label lang="en"><input type="radio" name="language" id="en" checked>English</label>
<label lang="zh-CN"><input type="radio" name="language" id="zh">中文</label>
</fieldset>
</header>
<main>
<p class="judgement">{}</p>
`, phrase.Of("What rules would refuse"), phrase.Of("Language"), p.Judgement)
}

const clock = "2006-01-02 15:04:05"

// facts are what was read, and what the numbers do not know.
func (p *page) facts() {
	p.put("<dl class=\"facts\">\n")
	p.fact(phrase.Of("Rules"), p.file(p.Rules))
	if p.Against != nil {
		p.fact(phrase.Of("Compared with"), p.file(*p.Against))
	}
	p.fact(phrase.Of("Requests"), p.Log.About(phrase.Of("%s", p.Requests)))
	if p.Requests > 0 {
		p.fact(phrase.Of("Time"), phrase.Of("%s to %s UTC", p.From.Format(clock), p.To.Format(clock)))
	}
	p.fact(phrase.Of("Clients"), p.Rules.Clients)
	p.fact(phrase.Of("Files"), phrase.Count(len(p.Log.Files), "file"))
	p.put("</dl>\n<details>\n<summary>{}</summary>\n<ul>\n", phrase.Of("Files"))
	for _, f := range p.Log.Files[:min(len(p.Log.Files), mostLines)] {
		p.put("<li>{}: ", name(replay.Clip(f.Path, 200)))
		switch {
		case f.Skipped != "":
			p.put("{} {}", phrase.Of("not read:"), name(replay.Clip(f.Skipped, 200)))
		case f.Form == "":
			p.put("{}", phrase.Of("empty"))
		default:
			p.put("{}", name(replay.Clip(f.Form, 200)))
		}
		p.put("</li>\n")
	}
	p.more(len(p.Log.Files), mostLines)
	p.put("</ul>\n</details>\n")
	p.faults()
}

func (p *page) file(o replay.Outcome) name { return name(replay.Clip(o.File, 200)) }

func (p *page) fact(what phrase.Phrase, is any) {
	p.put("<div><dt>{}</dt><dd>{}</dd></div>\n", what, is)
}

// more says that a list goes on.
func (p *page) more(all, shown int) {
	if all > shown {
		p.put("<li>{}</li>\n", phrase.Of("and %s more", all-shown))
	}
}

// faults are what is missing of the log, and the notes.
func (p *page) faults() {
	p.put("<ul class=\"notes\">\n")
	if p.Log.Unread > 0 {
		p.put("<li>{}\n<ul>\n", p.Log.SayUnread())
		for _, u := range p.Log.FirstUnread {
			p.put("<li><code>{}:{}: {}</code></li>\n", replay.Clip(u.File, 200), int(u.Line), replay.Clip(u.Why, 200))
		}
		p.put("</ul>\n</li>\n")
	}
	line := func(text phrase.Phrase) { p.put("<li>{}</li>\n", text) }
	if p.Log.Late > 0 {
		line(p.Log.SayLate())
	}
	if p.Log.Interrupted {
		line(p.Log.SayInterrupted())
	}
	for _, n := range p.NotReplayed[:min(len(p.NotReplayed), mostLines)] {
		line(n.Sentence())
	}
	p.more(len(p.NotReplayed), mostLines)
	for _, n := range p.Notes {
		line(n)
	}
	p.put("</ul>\n")
}

// comparison is what changes between the old and the new rules.
func (p *page) comparison() {
	a := p.Against
	if a == nil {
		return
	}
	p.put("<section>\n<h2>{}</h2>\n", phrase.Of("Before and after"))
	p.table("change", "", phrase.Of("What both refuse"), "", phrase.Of("Before"), phrase.Of("After"))
	row := func(what phrase.Phrase, old, oldAll, now, all int64) {
		p.put("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n", what, part(old, oldAll), part(now, all))
	}
	row(phrase.Of("Refused requests"), a.Refused, p.Requests, p.Rules.Refused, p.Requests)
	row(phrase.Of("Refused clients"), a.RefusedClients, a.Clients, p.Rules.RefusedClients, p.Rules.Clients)
	p.end()
	p.put("<dl class=\"facts\">\n")
	p.fact(phrase.Of("Newly refused"), p.NewlyRefused)
	p.fact(phrase.Of("Newly passed"), p.NewlyPassed)
	p.put("</dl>\n</section>\n")
}

// part is a number and its share of all.
func part(n, all int64) phrase.Phrase {
	if n == 0 {
		return phrase.Of("%s", n)
	}
	return phrase.Of("%s (%s)", n, replay.Share(n, all))
}

func hour(t time.Time) string { return t.Format(clock[:16]) }
