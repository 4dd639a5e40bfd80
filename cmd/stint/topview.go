package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/adminapi"
)

// topView is what stint top shows. It knows no terminal.
type topView struct {
	host      string
	now       *adminapi.Live // nil: no event yet
	series    *adminapi.Series
	instances []adminapi.Instance
	offenders *adminapi.Offenders
	sort      byte // a key: d, r or n
	of, by    int  // indexes of offendersOf and offendersBy
	paused    bool
	trouble   string // why there is nothing new
}

// topWants is which offenders a view shows.
type topWants struct{ of, by string }

func newTopView(host string) *topView { return &topView{host: host, sort: 'd'} }

func (v *topView) wants() topWants { return topWants{offendersOf[v.of], offendersBy[v.by]} }

// press handles a key, and reports whether it quits.
func (v *topView) press(key byte) (quit bool) {
	switch key {
	case 'q', 'Q', 3, 4: // ^C and ^D
		return true
	case 'd', 'r', 'n':
		v.sort = key
	case 'o':
		v.of, v.offenders = (v.of+1)%len(offendersOf), nil
	case 'b':
		v.by, v.offenders = (v.by+1)%len(offendersBy), nil
	case ' ':
		v.paused = !v.paused
	}
	return false
}

// lines is the screen: at most height lines of at most width characters; 0: any number.
func (v *topView) lines(width, height int) []string {
	var all []string
	if v.now == nil {
		all = []string{"waiting for " + plain(v.host)}
	} else {
		all = v.summary()
		all = append(all, v.ruleLines()...)
		all = append(all, v.instanceLines()...)
		all = append(all, v.offenderLines()...)
	}
	last := ""
	switch {
	case v.trouble != "":
		last = "NOT CURRENT: " + plain(v.trouble)
	case v.paused:
		last = "paused; space resumes"
	case height > 0:
		last = "q quit   d r n sort rules   o b choose offenders   space pause"
	}
	if height > 0 {
		all = all[:max(0, min(len(all), height-1))]
	}
	if last != "" {
		for len(all) < height-1 {
			all = append(all, "")
		}
		all = append(all, last)
	}
	for i, line := range all {
		all[i] = clipped(strings.TrimRight(line, " "), width)
	}
	return all
}

func clipped(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width])
}

func (v *topView) summary() []string {
	now := v.now
	var sum float64
	var outcomes []string
	for outcome, rate := range now.Outcomes {
		sum += rate
		outcomes = append(outcomes, outcome)
	}
	slices.SortFunc(outcomes, func(a, b string) int {
		return cmp.Or(cmp.Compare(now.Outcomes[b], now.Outcomes[a]), strings.Compare(a, b))
	})
	for i, outcome := range outcomes {
		outcomes[i] = plain(outcome) + " " + perSecond(now.Outcomes[outcome])
	}
	var f facts
	f.add("server", list(plain(v.host), instant(now.At.Truncate(time.Second)), spelling.Several(now.Instances, "instance"), "rules "+shown(now.Version), fmt.Sprintf("controls %d", now.Controls)))
	f.add("requests", list(append([]string{perSecond(sum) + "/s"}, outcomes...)...))
	f.add("decide", "p50 "+shortMicros(now.Decide.P50)+", p99 "+shortMicros(now.Decide.P99))
	f.add("store", fmt.Sprintf("%s calls/s, %s failed/s, p50 %s, p99 %s", perSecond(now.Calls), perSecond(now.Failures), shortMicros(now.Store.P50), shortMicros(now.Store.P99)))
	decides := "the " + plain(now.Decides)
	if now.Decides == "on_store_error" {
		decides = fmt.Sprintf("EACH RULE'S on_store_error, %s decisions/s", perSecond(now.Fallback))
		if now.Down > 0 {
			decides += ", store away for " + limittext.Duration(time.Duration(now.Down)*time.Second)
		}
	}
	f.add("decides", list(decides, named("breaker", plain(now.Breaker))))
	if now.Holds > 0 || now.HoldsLost > 0 || now.CostsUnknown > 0 {
		holds := []string{spelling.Several(now.Holds, "request") + " in flight"}
		if now.HoldsLost > 0 {
			holds = append(holds, perSecond(now.HoldsLost)+" LOST/s")
		}
		if now.CostsUnknown > 0 {
			holds = append(holds, perSecond(now.CostsUnknown)+" of unknown cost/s")
		}
		f.add("holds", list(holds...))
	}
	f.add("bans", fmt.Sprint(now.Bans))
	if now.Firing > 0 {
		f.add("alerts", fmt.Sprintf("%d FIRING", now.Firing))
	}
	if v.series != nil {
		if refused := refusedOf(v.series); len(refused) > 1 {
			f.add("refused", spark(refused, 60)+"  the last "+limittext.Duration(time.Duration(min(len(refused), 60))*time.Duration(v.series.Step)*time.Second))
		}
	}
	var b strings.Builder
	f.print(&b)
	return append(strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), "")
}

func (v *topView) ruleLines() []string {
	rules := slices.Clone(v.now.Rules)
	slices.SortStableFunc(rules, func(a, b adminapi.LiveRule) int {
		by := strings.Compare(a.Name, b.Name)
		switch v.sort {
		case 'd':
			return cmp.Or(cmp.Compare(b.Applied, a.Applied), by)
		case 'r':
			return cmp.Or(cmp.Compare(b.Refused, a.Refused), by)
		}
		return by
	})
	t := table{heads: []string{"RULE", "APPLIED/S", "REFUSED/S", "REFUSED"}}
	for _, r := range rules {
		share := "shadow"
		if r.Applied > 0 {
			share = fmt.Sprintf("%.1f%%", 100*r.Refused/r.Applied)
		}
		t.row(shown(r.Name), perSecond(r.Applied), perSecond(r.Refused), share)
	}
	if len(t.rows) == 0 {
		return []string{"no rule applies to anything now"}
	}
	return t.lines()
}

// instanceLines is empty if there is one.
func (v *topView) instanceLines() []string {
	if len(v.instances) < 2 {
		return nil
	}
	t := table{heads: []string{"INSTANCE", "HOST", "REQUESTS/S", "P99", "RULES", "DECIDES"}}
	for _, i := range v.instances {
		var sum float64
		for _, rate := range i.Outcomes {
			sum += rate
		}
		t.row(shown(i.ID), shown(i.Host), perSecond(sum), shortMicros(i.Decide.P99), shown(i.Version), plain(i.Decides))
	}
	return append([]string{""}, t.lines()...)
}

// offenderLines is empty if the server does not count offenders.
func (v *topView) offenderLines() []string {
	if v.offenders == nil {
		return nil
	}
	want := v.wants()
	t := table{heads: []string{"OFFENDER, LAST HOUR", "RULE", strings.ToUpper(want.by), "AT LEAST"}}
	for _, o := range v.offenders.Offenders {
		name := shown(o.Name)
		if want.of == "keys" {
			name = shownKey(o.Key)
		}
		t.row(name, shown(o.Rule), fmt.Sprint(o.Count), fmt.Sprint(o.Count-o.Error))
	}
	if len(t.rows) == 0 {
		return []string{"", fmt.Sprintf("no %s with %s in the last hour", want.of, want.by)}
	}
	return append([]string{""}, t.lines()...)
}

func (t *table) lines() []string {
	var b strings.Builder
	t.print(&b)
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// refusedOf is how many requests a second were refused, step by step.
func refusedOf(s *adminapi.Series) []float64 {
	var sum []float64
	for _, outcome := range []string{"limited", "warned", "banned", "blocked"} {
		for i, rate := range s.Outcomes[outcome] {
			if i == len(sum) {
				sum = append(sum, 0)
			}
			sum[i] += rate
		}
	}
	return sum
}

// spark draws the last most numbers as bars.
func spark(numbers []float64, most int) string {
	numbers = numbers[max(0, len(numbers)-most):]
	top := slices.Max(numbers)
	bars := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, n := range numbers {
		bar := 0
		if top > 0 {
			bar = min(int(n/top*float64(len(bars)-1)+0.5), len(bars)-1)
		}
		b.WriteRune(bars[max(bar, 0)])
	}
	return b.String()
}

// shortMicros is a duration such as 850µs or 12.3ms.
func shortMicros(us int64) string {
	if us == 0 {
		return "-"
	}
	d := time.Duration(us) * time.Microsecond
	switch {
	case d < time.Millisecond:
		return d.String()
	case d < time.Second:
		return fmt.Sprintf("%.1fms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.2fs", d.Seconds())
}
