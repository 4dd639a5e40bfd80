package replaypage

import (
	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/cmd/stint/internal/replay"
)

func days() [7]phrase.Phrase {
	return [7]phrase.Phrase{
		phrase.Of("Mon"), phrase.Of("Tue"), phrase.Of("Wed"), phrase.Of("Thu"), phrase.Of("Fri"), phrase.Of("Sat"), phrase.Of("Sun"),
	}
}

// steps are the shares from which a cell of the map has the next colour.
var steps = [...]float64{0, 0.01, 0.05, 0.2, 0.5}

// weeks are the maps of a rule's refused requests, hour by weekday, before and after.
func (p *page) weeks(id string, r, old *replay.Rule) {
	if r.Refused == 0 && (old == nil || old.Refused == 0) {
		return
	}
	p.put("<h3>{}</h3>\n<div class=\"two\">\n", phrase.Of("Hour by weekday"))
	if old != nil {
		p.week(id+"-before", phrase.Of("Refused before, by weekday and hour in UTC"), &old.Week)
		p.week(id+"-after", phrase.Of("Refused after, by weekday and hour in UTC"), &r.Week)
	} else {
		p.week(id+"-after", phrase.Of("Refused, by weekday and hour in UTC"), &r.Week)
	}
	p.put("</div>\n<p class=\"legend\">{}", phrase.Of("Share of the requests in that hour:"))
	for i, share := range [...]string{"0", "0–1%", "1–5%", "5–20%", "20–50%", "50–100%"} {
		p.put(" <span class=\"c{}\">{}</span>", i, share)
	}
	p.put("</p>\n")
}

// week is a map. A cell is empty if nothing was refused, so that nobody hears 168 zeros.
func (p *page) week(id string, caption phrase.Phrase, w *replay.Week) {
	headings := []any{""}
	for h := range 24 {
		headings = append(headings, h)
	}
	p.table(id, "week", caption, headings...)
	for d, day := range days() {
		p.put("<tr><th scope=\"row\">{}</th>", day)
		for _, c := range w[d] {
			switch {
			case c.Requests == 0:
				p.put("<td></td>")
			case c.Refused == 0:
				p.put("<td class=\"c0\"></td>")
			default:
				p.put("<td class=\"c{}\" title=\"{} / {}\">{}</td>", colour(c), c.Refused, c.Requests, compact(c.Refused))
			}
		}
		p.put("</tr>\n")
	}
	p.end()
}

// colour is which of five colours a cell has.
func colour(c replay.Count) int {
	share, n := float64(c.Refused)/float64(c.Requests), 0
	for _, from := range steps {
		if share > from {
			n++
		}
	}
	return n
}
