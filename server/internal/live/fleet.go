package live

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/stintdev/stint/server/adminapi"
)

// The instances of a fleet report their counters as parts of the report "live". One of them, which has the
// claim "live", adds up all counters and reports the sum, which the others read. So each instance makes two
// or three small calls every 2 seconds, however many there are. When another instance takes over, it
// continues from the last sum; the counts of the seconds between are lost.

const (
	partsName = "live"
	sumName   = "live-sum"
	sumPart   = "sum"
	claimName = "live"

	exchangeEvery = 2 * time.Second
	callTimeout   = 1500 * time.Millisecond
	// An idle instance reports every idleEvery. Its report is kept for reportKeep.
	idleEvery  = 6 * time.Second
	reportKeep = 15 * time.Second
	claimKeep  = 6 * time.Second
	// overdue is after how long without a new sum an instance tries to become the one that adds up.
	overdue = 5 * time.Second
	// stale is after how long it uses its own numbers.
	stale = 12 * time.Second
	// fleetWindow is the time over which a fleet's rates are the mean.
	fleetWindow = 6 * time.Second
	// forgetAfter is how long the counters of an instance that no longer reports are remembered.
	forgetAfter = 5 * time.Minute
	// maxRuleBytes bounds the rules in a report. If there are more, the last by name are
	// left out; their requests are still in the outcomes.
	maxRuleBytes = 200 << 10
)

// report is an instance's report about itself.
type report struct {
	Host     string             `json:"host"`
	Program  string             `json:"program"`
	Started  time.Time          `json:"started"`
	Up       int64              `json:"up_ms"` // for how long it has run
	Version  string             `json:"version"`
	Decides  string             `json:"decides"`
	Breaker  string             `json:"breaker,omitempty"`
	Down     int64              `json:"down_ms,omitempty"`
	Bans     int64              `json:"bans"`
	Holds    gauges             `json:"holds,omitempty"` // by rule
	Rates    adminapi.Rates     `json:"rates"`
	Decide   adminapi.Quantiles `json:"decide"`
	Counters Counts             `json:"counters"`
}

// sum is an instance's report about the fleet.
type sum struct {
	By        string `json:"by"` // the ID of the instance
	Number    int64  `json:"number"`
	Up        int64  `json:"up_ms"`
	Instances int64  `json:"instances"`
	Down      int64  `json:"down_ms,omitempty"` // the longest
	Bans      int64  `json:"bans"`              // by penalties
	Holds     gauges `json:"holds,omitempty"`
	Counters  Counts `json:"counters"`
}

// maxDown bounds an instance's reported outage, in ms.
const maxDown = int64(100 * 365 * 24 * time.Hour / time.Millisecond)

// down is for how long the store has been down, at the instance that has missed it longest.
func (s *sum) down() time.Duration {
	return time.Duration(min(max(s.Down, 0), maxDown)) * time.Millisecond
}

var errReport = errors.New("live: another instance's report cannot be read")

func decode[T any](text []byte, counts func(*T) *Counts) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(text, v); err != nil {
		return nil, errReport
	}
	if c := counts(v); !valid(c.Outcomes[:]) || !valid(c.Store[:]) {
		return nil, errReport
	}
	return v, nil
}

func readReport(text []byte) (*report, error) {
	return decode(text, func(r *report) *Counts { return &r.Counters })
}

func readSum(text []byte) (*sum, error) {
	return decode(text, func(s *sum) *Counts { return &s.Counters })
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and strings always marshal
	}
	return text
}

// bounded is a copy of c whose rules take up to maxRuleBytes in JSON.
func bounded(c *Counts) Counts {
	names := make([]string, 0, len(c.Rules))
	for name := range c.Rules {
		names = append(names, name)
	}
	slices.Sort(names)
	short, bytes := *c, 0
	short.Rules = make(map[string]RuleCounts, len(names))
	for _, name := range names {
		counts := c.Rules[name]
		if bytes += len(encode(name)) + len(encode(counts)) + 2; bytes > maxRuleBytes {
			break
		}
		short.Rules[name] = counts
	}
	return short
}

// boundedHolds are the holds of rules that hold something now, as many as fit into a report: a quarter of the
// bound of its rules.
func (s *State) boundedHolds() gauges {
	var short gauges
	bytes := 0
	for _, rule := range slices.Sorted(maps.Keys(s.Holds)) {
		n := s.Holds[rule]
		if n <= 0 {
			continue
		}
		if bytes += len(rule) + 24; bytes > maxRuleBytes/4 {
			break
		}
		short = short.plus(gauges{rule: n})
	}
	return short
}

// holdsNow are the fleet's requests that hold something, by rule. The lock is held.
func (l *Live) holdsNow() map[string]int64 {
	if l.inFleet() {
		return l.sum.Holds
	}
	return l.state.Holds
}

// inFleet reports whether the numbers are the fleet's. The lock is held.
func (l *Live) inFleet() bool { return l.isCurrent() && l.sum.Instances > 1 }

// isCurrent reports whether the newest sum is new enough. The lock is held.
func (l *Live) isCurrent() bool { return l.sum != nil && l.clock().Sub(l.sumAt) < stale }

// saw takes a sum. The lock is held.
func (l *Live) saw(s *sum) {
	now, before := l.clock(), l.sum
	if before != nil && before.By == s.By && before.Number == s.Number {
		return
	}
	was := l.inFleet()
	over := now.Sub(l.sumAt)
	l.sum, l.sumAt = s, now
	// Otherwise this instance has used its own numbers for that time.
	if !was || !l.inFleet() {
		return
	}
	if before.By == s.By && s.Up > before.Up {
		over = min(time.Duration(s.Up-before.Up)*time.Millisecond, over+exchangeEvery)
	}
	// If another instance adds up now, it continues from the sum that it has read, which may be older.
	grown := increase(&s.Counters, &before.Counters, before.By == s.By)
	l.took(growth{grown, over}, fleetWindow)
	l.all.keep(in(s.Counters.Rules))
}

// exchange is an instance's part in the exchange of reports. Not safe for concurrent use.
type exchange struct {
	*Live
	collector *collector // nil: another instance adds up
	reported  time.Time
	last      Counts // as reported
	holds     map[string]int64
}

func (l *Live) exchangeUntilDone(ctx context.Context) {
	x := &exchange{Live: l}
	ticker := time.NewTicker(exchangeEvery)
	defer ticker.Stop()
	for {
		if err := x.round(ctx); err != nil && ctx.Err() == nil && l.Failed != nil {
			l.Failed(err)
		}
		select {
		case <-ctx.Done():
			x.leave(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
		}
	}
}

// leave tells others that this instance is gone, instead of letting its report expire.
func (x *exchange) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout/3)
	defer cancel()
	if !x.reported.IsZero() {
		_ = x.Reports.Report(ctx, partsName, x.ID, nil, reportKeep)
	}
	if x.collector != nil {
		_, _ = x.Reports.Claim(ctx, claimName, x.ID, time.Millisecond)
	}
}

func (x *exchange) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := x.report(ctx); err != nil {
		return err
	}
	if x.collector == nil {
		parts, err := x.Reports.Reported(ctx, sumName)
		if err != nil {
			return err
		}
		if err := x.readSum(parts[sumPart]); err != nil {
			return err
		}
		if !x.isOverdue() {
			return nil
		}
	}
	return x.collect(ctx)
}

// report reports this instance, if it has something new to report.
func (x *exchange) report(ctx context.Context) error {
	x.mu.Lock()
	x.step()
	now := x.clock()
	grown := increase(&x.own, &x.last, true)
	idle := grown.Outcomes == [len(Outcomes)]int64{} && len(grown.Rules) == 0 && maps.Equal(x.state.Holds, x.holds)
	if idle && !x.reported.IsZero() && now.Sub(x.reported) < idleEvery-slack {
		x.mu.Unlock()
		return nil
	}
	// Removed rules are dropped only now, so that one that comes back continues from its reported counts.
	x.own.keep(x.has)
	r, own, holds := x.reportNow(), x.own.clone(), x.state.Holds
	x.mu.Unlock()
	if err := x.Reports.Report(ctx, partsName, x.ID, encode(r), reportKeep); err != nil {
		return err
	}
	x.reported, x.last, x.holds = now, *own, holds
	return nil
}

// reportNow is this instance's report. The lock is held.
func (l *Live) reportNow() *report {
	return &report{
		Host: l.Host, Program: l.Program, Started: l.started.UTC(), Up: time.Since(l.started).Milliseconds(),
		Version: l.state.Version, Decides: l.state.Decides, Breaker: l.state.Breaker, Down: l.state.Down.Milliseconds(), Bans: l.state.Bans, Holds: l.state.boundedHolds(),
		Rates: l.ownNow.outcomes(), Decide: l.ownNow.sum.DecideTimes.quantiles(), Counters: bounded(&l.own),
	}
}

func (x *exchange) readSum(text []byte) error {
	if text == nil {
		return nil
	}
	s, err := readSum(text)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.saw(s)
	return nil
}

func (x *exchange) isOverdue() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sum == nil || x.clock().Sub(x.sumAt) > overdue
}

// collect adds up the reports of all instances, if this one has the claim.
func (x *exchange) collect(ctx context.Context) error {
	has, err := x.Reports.Claim(ctx, claimName, x.ID, claimKeep)
	if err != nil {
		return err
	}
	if !has {
		x.collector = nil
		return nil
	}
	parts, err := x.Reports.Reported(ctx, partsName)
	if err != nil {
		return err
	}
	if x.collector == nil {
		x.mu.Lock()
		x.collector = newCollector(x.sum, later(x.sumAt, x.started), x.clock())
		x.mu.Unlock()
	}
	s := x.collector.add(parts, x.clock())
	s.By, s.Up = x.ID, time.Since(x.started).Milliseconds()
	if err := x.Reports.Report(ctx, sumName, sumPart, encode(s), reportKeep); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.saw(s)
	return nil
}

// collector adds up the counters of a fleet's instances.
type collector struct {
	number int64
	total  Counts
	at     time.Time // of the last sum
	from   map[string]*collected
	// Until then, instances of the previous sum may not have reported since the store lost their reports.
	before *sum // nil: there was none
	until  time.Time
}

// collected is an instance whose counters are in the total.
type collected struct {
	counters Counts
	at       time.Time // when its report was last there
	bans     int64
	down     int64
	holds    gauges
	up       int64     // as in its report
	changed  time.Time // when that was first seen
}

// newCollector continues from a sum that was made at that time; nil: from nothing.
func newCollector(from *sum, at, now time.Time) *collector {
	c := &collector{at: at, from: map[string]*collected{}, before: from, until: now.Add(idleEvery + exchangeEvery)}
	if from != nil {
		c.total = *from.Counters.clone()
	}
	return c
}

// add adds the growth of the reports since the last. An unknown instance counts from its start if that was
// after the last sum. If it is older, its counts so far are in an earlier sum, or are from before the first.
func (c *collector) add(parts map[string][]byte, now time.Time) *sum {
	left := int64(0)
	for id, text := range parts {
		if len(text) == 0 { // it has left
			left++
			if known := c.from[id]; known != nil {
				known.changed = time.Time{}
			}
			continue
		}
		r, err := readReport(text)
		if err != nil {
			continue // of another version of the program
		}
		known := c.from[id]
		if known == nil {
			known = &collected{}
			c.from[id] = known
			if time.Duration(r.Up)*time.Millisecond > now.Sub(c.at)+exchangeEvery {
				known.counters = r.Counters
			}
		}
		c.total.add(increase(&r.Counters, &known.counters, true))
		known.counters, known.at, known.bans, known.holds = r.Counters, now, min(max(r.Bans, 0), maxCount), r.Holds
		known.down = min(max(r.Down, 0), maxDown)
		if known.up != r.Up {
			known.up, known.changed = r.Up, now
		}
	}
	s := c.present(now, left)
	c.number++
	c.at = now
	s.Number, s.Counters = c.number, bounded(&c.total)
	return s
}

// present counts the present instances, and drops rules that none of them has. An instance whose report is
// missing counts until the report would have expired: a flush of the store may have lost it, and the instance
// reports again soon. left is how many have said that they left.
func (c *collector) present(now time.Time, left int64) *sum {
	s := &sum{}
	inForce := map[string]RuleCounts{}
	for id, known := range c.from {
		if now.Sub(known.at) > forgetAfter {
			delete(c.from, id)
			continue
		}
		if known.at.Before(now) && now.Sub(known.changed) >= reportKeep {
			continue
		}
		s.Instances++
		s.Bans += known.bans
		s.Down = max(s.Down, known.down)
		s.Holds = s.Holds.plus(known.holds)
		for name := range known.counters.Rules {
			inForce[name] = RuleCounts{}
		}
	}
	if b := c.before; b != nil && now.Before(c.until) && s.Instances < b.Instances-left {
		s.Instances, s.Bans = b.Instances-left, max(s.Bans, b.Bans)
	}
	c.total.keep(in(inForce))
	return s
}
