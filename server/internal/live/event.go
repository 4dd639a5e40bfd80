package live

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint/server/adminapi"
)

const (
	// busiest is the most rules in a Live.
	busiest = 12
	// maxEvent is the length of the longest event, in bytes. Rules that do not fit are left
	// out, the least busy first.
	maxEvent = 2000
)

// Now returns the present state. If rule is not empty, it has the numbers of that rule, too. The result is
// shared: it must not be changed.
func (l *Live) Now(rule string) *adminapi.Live {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refresh()
	if rule == "" {
		return l.live
	}
	live := *l.live
	live.Rule = l.ruleNow(rule)
	return &live
}

// eventOf returns Now as an event of a stream. Streams of all rules share it.
func (l *Live) eventOf(rule string) []byte {
	if rule != "" {
		return encodeEvent(l.Now(rule))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refresh()
	if l.event == nil {
		l.event = encodeEvent(l.live)
	}
	return l.event
}

// encodeEvent returns live as a server-sent event, without the rules that do not fit.
func encodeEvent(live *adminapi.Live) []byte {
	short := *live
	for {
		data, err := json.Marshal(&short)
		if err != nil {
			panic(err) // numbers and strings always marshal
		}
		if len(data) <= maxEvent || len(short.Rules) == 0 {
			return append(append([]byte("data: "), data...), "\n\n"...)
		}
		short.Rules = short.Rules[:len(short.Rules)-1]
	}
}

// refresh computes live, unless that was less than a tick ago. The lock is held.
func (l *Live) refresh() {
	l.step()
	if l.live != nil && l.clock().Sub(l.liveAt) < tick-slack {
		return
	}
	r := &l.now
	live := &adminapi.Live{
		At:       time.Now().UTC().Truncate(time.Millisecond),
		Outcomes: r.outcomes(),
		Decide:   r.sum.DecideTimes.quantiles(),
		Store:    r.sum.StoreTimes.quantiles(),
		Calls:    r.rate(r.sum.StoreTimes.Total()),
		Failures: r.rate(r.sum.Store[Timeouts] + r.sum.Store[Errors]),
		Decides:  l.state.Decides, Breaker: l.state.Breaker, Down: int64(l.state.Down / time.Second), Instances: l.state.Instances,
		Bans: l.state.Bans + l.state.ManualBans, Firing: l.state.Firing,
		Rules:   []adminapi.LiveRule{},
		Version: l.state.Version, Controls: l.state.Controls,
	}
	if l.inFleet() {
		live.Bans = l.sum.Bans + l.state.ManualBans
	}
	holds := l.holdsNow()
	var fallback, lost, unknown int64
	for name, c := range r.sum.Rules {
		fallback += c[Fallback]
		lost += c[HoldsLost]
		unknown += c[CostsUnknown]
		if c.Applied()+c[Shadow] > 0 {
			live.Rules = append(live.Rules, adminapi.LiveRule{Name: name, Applied: r.rate(c.Applied()), Decided: r.rate(c.Decided()), Refused: r.rate(c.Refused()), Holds: holds[name]})
		}
	}
	for name, n := range holds {
		live.Holds += n
		if c := r.sum.Rules[name]; c.Applied()+c[Shadow] == 0 {
			live.Rules = append(live.Rules, adminapi.LiveRule{Name: name, Holds: n})
		}
	}
	live.Fallback, live.HoldsLost, live.CostsUnknown = r.rate(fallback), r.rate(lost), r.rate(unknown)
	slices.SortFunc(live.Rules, func(a, b adminapi.LiveRule) int {
		return cmp.Or(cmp.Compare(max(b.Applied, b.Refused), max(a.Applied, a.Refused)), strings.Compare(a.Name, b.Name))
	})
	live.Rules = live.Rules[:min(len(live.Rules), busiest)]
	l.live, l.liveAt, l.event = live, l.clock(), nil
}

// ruleNow is how busy a rule is; nil: no rule in force has that name. The lock is held.
func (l *Live) ruleNow(name string) *adminapi.RuleRates {
	if !l.has(name) {
		return nil
	}
	c, now := l.now.sum.Rules[name], adminapi.Rates{}
	for _, p := range plotted {
		if c[p.of] > 0 {
			now[p.name] = l.now.rate(c[p.of])
		}
	}
	return &adminapi.RuleRates{
		Name: name, Outcomes: now, Fallback: l.now.rate(c[Fallback]), Violations: l.now.rate(c[Violations]),
		Holds: l.holdsNow()[name], HoldsLost: l.now.rate(c[HoldsLost]), CostsUnknown: l.now.rate(c[CostsUnknown]),
	}
}

// round rounds a rate to three digits after the point, so that events stay short.
func round(rate float64) float64 { return math.Round(rate*1000) / 1000 }
