package replaypage

import (
	"slices"
	"strconv"
	"strings"

	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/cmd/stint/internal/replay"
)

// columns are those of the table of rules. The last are there if there are old rules.
func (p *page) columns() []any {
	all := []any{
		phrase.Of("Rule"), phrase.Of("Requests"), phrase.Of("Refused"), phrase.Of("Keys"), phrase.Of("Refused keys"),
		phrase.Of("Refused before"), phrase.Of("Newly refused"), phrase.Of("Newly passed"),
	}
	if p.Against == nil {
		return all[:5]
	}
	return all
}

// rules is the table of all rules, with those that are in the old rules only at its end.
func (p *page) rules() {
	p.put("<section>\n<h2>{}</h2>\n", phrase.Of("Rules"))
	p.table("rules", "", phrase.Of("What each rule refuses"), p.columns()...)
	shown := p.busiest(mostRows)
	for _, r := range shown {
		p.row(r)
	}
	p.put("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td>", phrase.Of("all rules, by client"),
		p.Requests, part(p.Rules.Refused, p.Requests), p.Rules.Clients, part(p.Rules.RefusedClients, p.Rules.Clients))
	if a := p.Against; a != nil {
		p.put("<td>{}</td><td>{}</td><td>{}</td>", part(a.Refused, p.Requests), p.NewlyRefused, p.NewlyPassed)
	}
	p.put("</tr>\n")
	gone := p.gone()
	for _, old := range gone[:min(len(gone), mostRows-len(shown))] {
		p.put("<tr><th scope=\"row\">{} ({})</th><td></td><td></td><td></td><td></td><td>{}</td><td></td><td>{}</td></tr>\n",
			name(replay.Clip(old.Name, 64)), phrase.Of("only before"), part(old.Refused, old.Requests), old.NewlyPassed)
	}
	p.end()
	if left := len(p.ByRule) + len(gone) - mostRows; left > 0 {
		p.put("<p>{}</p>\n", phrase.Of("%s that refuse least are left out of the table.", phrase.Count(left, "rule")))
	}
	if left := len(p.ByRule) - len(p.sections); left > 0 {
		p.put("<p>{}</p>\n", phrase.Of("Below are the %s that refuse most; %s more are in the table only, or in --json.", phrase.Count(len(p.sections), "rule"), left))
	}
	p.put("</section>\n")
}

// gone are the old rules that are not among the new ones.
func (p *page) gone() (gone []*replay.Rule) {
	for i := range p.AgainstByRule {
		old := &p.AgainstByRule[i]
		if !slices.ContainsFunc(p.ByRule, func(r replay.Rule) bool { return r.Name == old.Name }) {
			gone = append(gone, old)
		}
	}
	return gone
}

func (p *page) row(r *replay.Rule) {
	p.put("<tr><th scope=\"row\">")
	if i := slices.Index(p.sections, r); i >= 0 {
		p.put("<a href=\"#rule-{}\">{}</a>", i+1, name(replay.Clip(r.Name, 64)))
	} else {
		p.put("{}", name(replay.Clip(r.Name, 64)))
	}
	p.put("</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td>", r.Requests, part(r.Refused, r.Requests), r.Keys, part(r.RefusedKeys, r.Keys))
	if p.Against != nil {
		var before, passed any = "", ""
		if old := p.old[r.Name]; old != nil {
			before, passed = part(old.Refused, old.Requests), old.NewlyPassed
		}
		p.put("<td>{}</td><td>{}</td><td>{}</td>", before, r.NewlyRefused, passed)
	}
	p.put("</tr>\n")
}

// rule is the section of the i-th rule that has one.
func (p *page) rule(i int, r *replay.Rule) {
	id := "rule-" + strconv.Itoa(i)
	p.put("<section id=\"{}\" class=\"rule\">\n<h2>{}</h2>\n", id, name(replay.Clip(r.Name, 64)))
	p.put("<p class=\"judgement\">{}</p>\n<dl class=\"facts\">\n", r.Judgement)
	old := p.old[r.Name]
	if old != nil && !slices.Equal(old.Limits, r.Limits) {
		p.fact(phrase.Of("Limits before"), limits(old))
	}
	p.fact(phrase.Of("Limits"), limits(r))
	if old != nil && old.Key != r.Key {
		p.fact(phrase.Of("Key before"), name(replay.Clip(old.Key, 200)))
	}
	p.fact(phrase.Of("Key"), name(replay.Clip(r.Key, 200)))
	if r.Mode == "shadow" {
		p.fact(phrase.Of("Mode"), phrase.Of("shadow"))
	}
	p.fact(phrase.Of("Bans"), r.Bans)
	if h := r.Worst(); h.Refused > 0 {
		p.fact(phrase.Of("Most in an hour"), phrase.Of("%s of %s, from %s UTC", h.Refused, h.Requests, hour(h.From)))
	}
	p.put("</dl>\n")
	if r.Sampled {
		p.put("<p>{}</p>\n", phrase.Of("It counts very many keys: their numbers are of a sample."))
	}
	p.weeks(id, r, old)
	s := p.studied[r.Name]
	if s != nil {
		p.curves(id, r, old, s)
	}
	p.whom(id, r)
	if s != nil {
		p.suggestion(id, s)
	}
	p.put("</section>\n")
}

func limits(r *replay.Rule) any {
	if len(r.Limits) == 0 {
		return phrase.Of("no limit")
	}
	return name(replay.Clip(strings.Join(r.Limits, ", "), 200))
}

// whom are the keys and clients that a rule refuses.
func (p *page) whom(id string, r *replay.Rule) {
	if r.Refused == 0 {
		return
	}
	p.put("<div class=\"two\">\n")
	p.table(id+"-keys", "", phrase.Of("Refused most"), phrase.Of("Key"), phrase.Of("Refused"), phrase.Of("Requests"))
	for _, k := range r.MostRefused {
		var requests any = phrase.Of("unknown")
		if k.Requests > 0 {
			requests = k.Requests
		}
		p.put("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n", name(replay.Clip(k.Key.String(), 44)), k.Refused, requests)
	}
	p.end()
	if len(r.Best) > 0 {
		p.table(id+"-best", "", phrase.Of("The best clients among them: all their other requests passed"), phrase.Of("Client"), phrase.Of("Refused"), phrase.Of("Passed"))
		for _, c := range r.Best {
			p.put("<tr><th scope=\"row\">{}", name(replay.Clip(c.Client, 44)))
			if c.SignedIn {
				p.put(" ({})", phrase.Of("signed in"))
			}
			p.put("</th><td>{}</td><td>{}</td></tr>\n", c.Refused, c.Passed)
		}
		p.end()
	}
	p.put("</div>\n")
}

// suggestion are the limits that the requests suggest, and why.
func (p *page) suggestion(id string, s *replay.Suggestion) {
	p.put("<h3>{}</h3>\n", phrase.Of("Suggested limits"))
	if len(s.Limits) > 0 {
		p.put("<p>{}</p>\n", name(strings.Join(s.Limits, ", ")))
	}
	p.put("<p>{}</p>\n", s.Why)
	if len(s.Notes) > 0 {
		p.put("<ul class=\"notes\">\n")
		for _, n := range s.Notes {
			p.put("<li>{}</li>\n", n)
		}
		p.put("</ul>\n")
	}
	if len(s.Apart) == 0 {
		return
	}
	p.table(id+"-apart", "", phrase.Of("Keys that are set apart"))
	for _, a := range s.Apart {
		p.put("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", name(replay.Clip(a.Key, 44)), a.Why)
	}
	p.end()
}
