package replaypage

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/cmd/stint/internal/replay"
	"github.com/stintdev/stint/internal/limittext"
)

// mark is a limit that is drawn into a curve.
type mark struct {
	kind   string // its class: now, old or new
	terms  string
	period time.Duration
	amount float64 // in the window of the curve
	burst  int64   // if it differs from the limit's amount
}

// curve is how many keys stay below a peak in a window, and the limits whose periods are nearest to it.
type curve struct {
	window time.Duration
	points [][2]int64 // peak and keys
	marks  []mark
}

// curves draws a curve for each window that a limit of the rule is about.
func (p *page) curves(id string, r, old *replay.Rule, s *replay.Suggestion) {
	if len(s.Windows) == 0 {
		return
	}
	all := make([]curve, len(s.Windows))
	for i, w := range s.Windows {
		all[i] = curve{window: time.Duration(w.Seconds * float64(time.Second)), points: w.Curve}
	}
	add := func(kind string, limits []string) {
		for _, terms := range limits {
			if m, ok := markOf(kind, terms); ok {
				c := nearest(all, m.period)
				m.amount *= float64(c.window) / float64(m.period)
				c.marks = append(c.marks, m)
			}
		}
	}
	add("now", r.Limits)
	if old != nil && old.Key == r.Key && !slices.Equal(old.Limits, r.Limits) { // the peaks are those of r's keys
		add("old", old.Limits)
	}
	add("new", s.Limits)
	all = slices.DeleteFunc(all, func(c curve) bool { return len(c.marks) == 0 })
	if len(all) == 0 {
		return
	}
	p.put("<h3>{}</h3>\n<p>{}</p>\n<div class=\"two\">\n", phrase.Of("Peaks of keys"),
		phrase.Of("The peak of a key is the most units that it used in any window of that length. Keys and hours that are set apart are left out."))
	for i := range all[:min(len(all), mostCurves)] {
		p.curve(id+"-peaks-"+strconv.Itoa(i+1), &all[i])
	}
	p.put("</div>\n")
}

const (
	mostCurves = 4
	mostMarks  = 6 // in a curve
)

// markOf is the amount and the period of a limit. It is not ok if no line can be drawn.
func markOf(kind, terms string) (m mark, ok bool) {
	l, err := stint.ParseLimit(terms)
	if err != nil || l.IsUnlimited() {
		return m, false
	}
	spec := l.Spec()
	m = mark{kind: kind, terms: terms, period: spec.Period, amount: float64(spec.Amount)}
	if l.Capacity() != spec.Amount {
		m.burst = l.Capacity()
	}
	switch spec.Calendar.Unit {
	case stint.Day:
		m.period = 24 * time.Hour
	case stint.Week:
		m.period = 7 * 24 * time.Hour
	case stint.Month:
		m.period = 30 * 24 * time.Hour
	case stint.Year:
		m.period = 365 * 24 * time.Hour
	}
	return m, m.period > 0
}

// nearest is the curve whose window differs from a period by the smallest factor.
func nearest(all []curve, period time.Duration) *curve {
	best := &all[0]
	factor := func(c *curve) float64 { return math.Abs(math.Log(float64(c.window) / float64(period))) }
	for i := range all {
		if factor(&all[i]) < factor(best) {
			best = &all[i]
		}
	}
	return best
}

// scale is the axis of peaks, which is logarithmic.
type scale struct{ low, high float64 }

func (c *curve) scale() scale {
	s := scale{math.Inf(1), 1}
	see := func(n float64) { s.low, s.high = min(s.low, max(n, 0.01)), max(s.high, n) }
	for _, p := range c.points {
		see(float64(p[0]))
	}
	for _, m := range c.marks {
		see(m.amount)
	}
	return scale{s.low / 1.25, s.high * 1.25}
}

// at is the place of a number, in percent of the width.
func (s scale) at(n float64) float64 {
	return min(max(100*math.Log(max(n, 1e-9)/s.low)/math.Log(s.high/s.low), 0), 100)
}

// ticks are at most seven powers of ten; on a short axis, their double and their half, too.
func (s scale) ticks() (all []float64) {
	first, last := math.Ceil(math.Log10(s.low)), math.Floor(math.Log10(s.high))
	step := max(1, math.Ceil((last-first+1)/7))
	for e := first - 1; e <= last; e += step {
		for _, n := range []float64{1, 2, 5} {
			n *= math.Pow(10, e)
			if n > s.low && n < s.high && (last-first < 3 || n == math.Pow(10, e)) {
				all = append(all, n)
			}
		}
	}
	return all
}

// curve draws a curve. What a drawing cannot say to all is in the table beside it.
func (p *page) curve(id string, c *curve) {
	if len(c.points) == 0 {
		return
	}
	window, s := limittext.Duration(c.window), c.scale()
	p.put(`<figure>
<figcaption id="{}">{}</figcaption>
<div class="plot">
<div class="y" aria-hidden="true"><span>100%</span><span>50%</span><span>0%</span></div>
<div class="drawn">
<svg role="img" aria-labelledby="{}" viewBox="0 0 100 100" preserveAspectRatio="none">
<path class="grid" d="M0 0H100M0 25H100M0 50H100M0 75H100M0 100H100"/>
<path class="line" d="{}"/>
`, id, phrase.Of("Share of the keys with at most that peak in any %s", window), id, c.path(s))
	marks := c.marks[:min(len(c.marks), mostMarks)]
	for _, m := range marks {
		p.put("<path class=\"{}\" d=\"M{} 0V100\"/>\n", m.kind, s.at(m.amount))
	}
	p.put("</svg>\n")
	for i, m := range marks {
		p.label(i, s.at(m.amount), m)
	}
	p.put("</div>\n<div class=\"x\" aria-hidden=\"true\">")
	for _, n := range s.ticks() {
		p.put("<span style=\"left:{}%\">{}</span>", s.at(n), tick(n))
	}
	p.put("</div>\n</div>\n<ul class=\"marks\">\n")
	for _, m := range marks {
		p.mark(c, m, window)
	}
	p.put("</ul>\n")
	p.numbers(id, c)
	p.put("</figure>\n")
}

// label writes the terms of a limit beside its line, on the side with more room.
func (p *page) label(i int, at float64, m mark) {
	terms := name(replay.Clip(m.terms, 28))
	if at > 50 {
		p.put("<span class=\"label\" aria-hidden=\"true\" style=\"right:{}%;bottom:{}px\">{}</span>\n", 100-at, 6+22*i, terms)
	} else {
		p.put("<span class=\"label\" aria-hidden=\"true\" style=\"left:{}%;bottom:{}px\">{}</span>\n", at, 6+22*i, terms)
	}
}

// mark says what a line is, and how many keys have no higher peak. A smaller burst refuses some of them all the same.
func (p *page) mark(c *curve, m mark, window string) {
	what := phrase.Of("limit")
	switch m.kind {
	case "old":
		what = phrase.Of("limit before")
	case "new":
		what = phrase.Of("suggested limit")
	}
	stay := phrase.Of("no peak of %s keys is above it", c.all())
	if within := c.within(m.amount); within < c.all() {
		stay = phrase.Of("at least %s of %s keys have no peak above it", within, c.all())
	}
	p.put("<li class=\"{}\">{} {}: {}", m.kind, what, name(replay.Clip(m.terms, 100)), stay)
	if m.period != c.window {
		p.put(" ({})", phrase.Of("scaled to the window: %s in %s", strconv.FormatFloat(m.amount, 'g', 3, 64), window))
	}
	if m.burst != 0 {
		p.put(" ({})", phrase.Of("its burst of %s is not drawn", m.burst))
	}
	p.put("</li>\n")
}

// all is how many keys there are, and within how many have no peak above an amount, as far as the points tell.
func (c *curve) all() int64 { return c.points[len(c.points)-1][1] }

func (c *curve) within(amount float64) (keys int64) {
	for _, p := range c.points {
		if float64(p[0]) <= amount {
			keys = p[1]
		}
	}
	return keys
}

// path goes up at each peak.
func (c *curve) path(s scale) string {
	var b strings.Builder
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }
	b.WriteString("M0 100")
	for _, p := range c.points {
		b.WriteString("H" + number(s.at(float64(p[0]))) + "V" + number(100-100*float64(p[1])/float64(c.all())))
	}
	return b.String() + "H100"
}

// numbers are some of the points as a table.
func (p *page) numbers(id string, c *curve) {
	const most = 10
	p.put("<details>\n<summary>{}</summary>\n<table>\n", phrase.Of("Numbers"))
	p.put("<thead><tr><th scope=\"col\">{}</th><th scope=\"col\">{}</th></tr></thead>\n<tbody>\n", phrase.Of("Peak"), phrase.Of("Keys with at most that peak"))
	n := min(len(c.points), most)
	for i := range n {
		point := c.points[(i+1)*len(c.points)/n-1]
		p.put("<tr><td>{}</td><td>{}</td></tr>\n", point[0], part(point[1], c.all()))
	}
	p.put("</tbody>\n</table>\n</details>\n")
}

// tick is the text of a number on the axis.
func tick(n float64) string {
	if n < 1 {
		return strconv.FormatFloat(n, 'g', 2, 64)
	}
	return compact(int64(math.Round(n)))
}

// compact is n in three characters, or a few more if it is very large.
func compact(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1000, "k"}} {
		if n >= unit.size {
			return strconv.FormatInt((n+unit.size/2)/unit.size, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}
