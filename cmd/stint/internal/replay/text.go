package replay

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/internal/spelling"
)

// width is that of the text, in characters.
const width = 80

// Write writes the report as text, at most 80 characters wide.
func (p *Report) Write(w io.Writer) error {
	t := &writer{}
	t.facts(p)
	t.table(p)
	for i := range p.ByRule {
		t.rule(&p.ByRule[i])
	}
	for i := range p.Suggestions {
		t.suggestion(&p.Suggestions[i])
	}
	t.line("")
	t.wrapped("", p.Judgement.String())
	_, err := io.WriteString(w, t.String())
	return err
}

type writer struct{ strings.Builder }

func (t *writer) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// wrapped writes a sentence in lines that begin with blanks.
func (t *writer) wrapped(indent, text string) {
	line := indent
	for word := range strings.FieldsSeq(text) {
		if n := utf8.RuneCountInString(line); n > len(indent) && n+1+utf8.RuneCountInString(word) > width {
			t.line("%s", line)
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	t.line("%s", line)
}

const layout = "2006-01-02 15:04:05"

func (t *writer) facts(p *Report) {
	t.files(&p.Log)
	if p.Requests > 0 {
		t.line("%s, %s to %s UTC", p.Log.About(phrase.Count(p.Requests, "request")), p.From.Format(layout), p.To.Format(layout))
	}
	for _, n := range p.NotReplayed {
		t.wrapped("", n.Sentence().String())
	}
	for _, n := range p.Notes {
		t.wrapped("", n.String())
	}
}

// mostFiles is how many files are named that were read, and that were not.
const mostFiles = 10

// more says of how many files no name is shown.
func (t *writer) more(n int, what string) {
	if n > mostFiles {
		t.line("%s %s", spelling.SeveralGrouped(int64(n-mostFiles), "more file"), what)
	}
}

// files says which form of lines was read, and what was not.
func (t *writer) files(l *Log) {
	read, skipped := 0, 0
	for _, f := range l.Files {
		what, of := cmp.Or(f.Form, "empty"), &read
		if f.Skipped != "" {
			what, of = "not read: "+f.Skipped, &skipped
		}
		if *of++; *of <= mostFiles {
			t.wrapped("", Clip(f.Path, 200)+": "+Clip(what, 200))
		}
	}
	t.more(read, "that were read")
	t.more(skipped, "that were not read")
	if l.Unread > 0 {
		t.line("%s", l.SayUnread())
		for _, u := range l.FirstUnread {
			t.wrapped("  ", fmt.Sprintf("%s:%d: %s", Clip(u.File, 200), u.Line, Clip(u.Why, 200)))
		}
	}
	if l.Late > 0 {
		t.line("%s", l.SayLate())
	}
	if l.Interrupted {
		t.line("%s", l.SayInterrupted())
	}
}

const columns = "%-22s %13s %16s %11s %14s"

func (t *writer) table(p *Report) {
	t.line("")
	t.line(columns, "", "requests", "refused", "keys", "refused")
	row := func(name string, requests, refused, keys, refusedKeys int64) {
		t.line(columns, Clip(name, 22), spelling.Grouped(requests), amount(refused, requests), spelling.Grouped(keys), amount(refusedKeys, keys))
	}
	for i := range p.ByRule {
		r := &p.ByRule[i]
		row(r.Name, r.Requests, r.Refused, r.Keys, r.RefusedKeys)
	}
	row("all rules, by client", p.Requests, p.Rules.Refused, p.Rules.Clients, p.Rules.RefusedClients)
	if a := p.Against; a != nil {
		row("old rules, by client", p.Requests, a.Refused, a.Clients, a.RefusedClients)
		t.line("")
		t.line("Against %s: %s newly refused, %s newly passed", a.File, spelling.Grouped(p.NewlyRefused), spelling.Grouped(p.NewlyPassed))
	}
}

// amount is a number and its share, in 12 characters if it can be.
func amount(n, all int64) string {
	if n == 0 {
		return "0"
	}
	return spelling.Grouped(n) + " " + percent(n, all)
}

func (t *writer) rule(r *Rule) {
	t.line("")
	limits := "no limit"
	if len(r.Limits) > 0 {
		limits = strings.Join(r.Limits, ", ")
	}
	t.line("%s: %s, by %s", Clip(r.Name, 40), Clip(limits, 60), Clip(r.Key, 60))
	t.wrapped("  ", r.Judgement.String())
	if r.Refused == 0 {
		return
	}
	if r.Bans > 0 {
		t.line("  %s", spelling.SeveralGrouped(r.Bans, "ban"))
	}
	if h := r.Worst(); h.Refused > 0 {
		t.line("  most in the hour from %s UTC: %s of %s", h.From.Format(layout[:16]), spelling.Grouped(h.Refused), spelling.Grouped(h.Requests))
	}
	t.line("  refused most:")
	for _, k := range r.MostRefused {
		of := ""
		if k.Requests > 0 {
			of = " of " + spelling.Grouped(k.Requests)
		}
		t.line("    %-44s %s%s", Clip(k.Key.String(), 44), spelling.Grouped(k.Refused), of)
	}
	if len(r.Best) == 0 {
		return
	}
	t.line("  the best clients among them:")
	for _, c := range r.Best {
		signedIn := ""
		if c.SignedIn {
			signedIn = ", signed in"
		}
		t.line("    %-36s %s refused, %s passed%s", Clip(c.Client, 36), spelling.Grouped(c.Refused), spelling.Grouped(c.Passed), signedIn)
	}
}

func (t *writer) suggestion(s *Suggestion) {
	t.line("")
	if len(s.Limits) == 0 {
		t.wrapped("", Clip(s.Rule, 64)+": "+s.Why.String())
		return
	}
	t.wrapped("", fmt.Sprintf("Suggested for %s: %s", Clip(s.Rule, 40), strings.Join(s.Limits, ", ")))
	t.wrapped("  ", s.Why.String())
	for _, n := range s.Notes {
		t.wrapped("  ", n.String())
	}
	for _, a := range s.Apart {
		t.wrapped("    ", a.Why.String()+": "+Clip(a.Key, 44))
	}
}

// Worst is the hour with most refused requests.
func (r *Rule) Worst() (most Hour) {
	for _, h := range r.Hours {
		if h.Refused > most.Refused {
			most = h
		}
	}
	return most
}

// Clip is text without unprintable characters, and shortened to n characters.
func Clip(text string, n int) string {
	text = strings.Map(func(c rune) rune {
		if !strconv.IsPrint(c) {
			return utf8.RuneError
		}
		return c
	}, text)
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}
