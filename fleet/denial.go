package fleet

import (
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

type denial struct {
	hash    uint64
	epoch   uint64
	until   int64 // ns
	came    int64 // when the answer came, ns
	decided int   // index of the ask that decided
	asHold  bool  // the request holds units: then even one without cost may be refused
	asks    []askDenied
	one     [1]askDenied

	// banned means that a ban refused. Then only retry is known.
	banned bool
	retry  time.Duration
}

// askDenied is an ask of a denial, and its answer. Only asks that refused have a mark.
type askDenied struct {
	mark
	key       string
	limit     *stint.Limit
	penalty   *stint.Penalty
	cost      int64
	maxDelay  time.Duration
	allowed   bool
	busy      bool // refused because of holds, and retry is a hint
	remaining int64
	held      int64
	retry     time.Duration
	reset     time.Duration
}

// hashOf leaves out fields that rarely differ alone.
func (d *Denials) hashOf(r *stint.Request) uint64 {
	var h uint64
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Limit == nil {
			continue
		}
		p := planOf(a.Limit)
		h = (h ^ d.hash(a.Key)) * 0x9e3779b97f4a7c15
		h = (h ^ uint64(a.Units()) ^ uint64(p.Period)<<20 ^ uint64(p.Capacity)<<40) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h * 0xbf58476d1ce4e5b9
}

func (e *denial) isOf(r *stint.Request) bool {
	if len(e.asks) != len(r.Asks) || e.asHold != (r.Hold != stint.HoldID{}) {
		return false
	}
	for i := range e.asks {
		was, a := &e.asks[i], &r.Asks[i]
		if was.cost != a.Units() || was.maxDelay != a.MaxDelay || was.key != a.Key || !sameLimit(was.limit, a.Limit) || !samePenalty(was.penalty, a.Penalty) {
			return false
		}
	}
	return true
}

func (e *denial) holds(epoch uint64, now int64) bool {
	if e.epoch != epoch || now >= e.until {
		return false
	}
	for i := range e.asks {
		if a := &e.asks[i]; !a.allowed && !a.mark.holds(epoch) {
			return false
		}
	}
	return true
}

func (d *Denials) recall(r *stint.Request, out []stint.Decision) (stint.Decision, bool) {
	epoch := d.epoch.Load()
	if epoch == 0 {
		return stint.Decision{}, false
	}
	ban, banned := d.recallBan(r, epoch)
	if banned && ban.BanLeft >= mostWait(r) {
		d.remembered()
		return ban, true
	}
	if !banned && hasPenalty(r) {
		return stint.Decision{}, false
	}
	hash := d.hashOf(r)
	set := d.requests.set(hash)
	for i := range set {
		e := set[i].Load()
		if e == nil || e.hash != hash || e.banned != banned || !e.isOf(r) {
			continue
		}
		now := d.now()
		if banned && e.holds(epoch, now) {
			d.remembered()
			ban.RetryAfter = max(ban.RetryAfter, leftOf(e.retry, e.came, now))
			return ban, true
		}
		if !e.holds(epoch, now) {
			return stint.Decision{}, false
		}
		d.remembered()
		return e.answer(r, out, now), true
	}
	return stint.Decision{}, false
}

func (e *denial) answer(r *stint.Request, out []stint.Decision, now int64) stint.Decision {
	for i := range out {
		out[i] = e.asks[i].answer(&r.Asks[i], e.came, now)
	}
	return e.asks[e.decided].answer(&r.Asks[e.decided], e.came, now)
}

func (was *askDenied) answer(a *stint.Ask, came, now int64) stint.Decision {
	d := stint.Decision{
		Outcome:    stint.Limited,
		Remembered: true,
		Limit:      a.Limit,
		Key:        a.Key,
		Remaining:  was.remaining,
		Held:       was.held,
		Busy:       was.busy,
		RetryAfter: left(was.retry, came, now),
		ResetAfter: left(was.reset, came, now),
	}
	switch {
	case was.allowed:
		d.Allowed, d.Outcome = true, stint.Allowed
	case was.busy:
		d.RetryAfter = was.retry // a hint does not count down
	}
	return d
}

// learn remembers a lasting refusal by the store. each may be nil if r has one ask. A Busy refusal
// does not last: it ends when anybody settles.
func (d *Denials) learn(m *moment, r *stint.Request, answer *stint.Decision, each []stint.Decision) {
	if answer.Allowed || answer.Busy || answer.By != stint.ByStore || m.epoch != d.epoch.Load() {
		return
	}
	if answer.Outcome == stint.Banned {
		d.learnBan(m, r, answer)
		d.learnWait(m, r, answer)
		return
	}
	if hasPenalty(r) {
		return // the next refusal is a violation, too
	}
	if each == nil {
		var one [1]stint.Decision
		one[0] = *answer
		each = one[:]
	}
	wait := stint.Never // until the first refusing ask would allow
	for i := range each {
		if each[i].By != stint.ByStore || each[i].RetryAfter == stint.Never {
			return
		}
		if !each[i].Allowed && !each[i].Busy {
			wait = min(wait, each[i].RetryAfter)
		}
	}
	now := d.now()
	e := &denial{epoch: m.epoch, until: stands(m.at, wait), came: now}
	if e.until > now {
		d.keep(e, m, r, each)
	}
}

func (d *Denials) keep(e *denial, m *moment, r *stint.Request, each []stint.Decision) {
	e.fill(m, r, each)
	e.hash = d.hashOf(r)
	d.requests.put(e.hash, e, func(old *denial) bool {
		return !old.holds(m.epoch, e.came) || old.hash == e.hash && old.banned == e.banned && old.isOf(r)
	})
}

// learnWait remembers how long r is refused if its limits refuse for longer than a ban.
func (d *Denials) learnWait(m *moment, r *stint.Request, answer *stint.Decision) {
	now := d.now()
	e := &denial{epoch: m.epoch, until: stands(m.at, answer.BanLeft), came: now, banned: true, retry: answer.RetryAfter}
	if e.until > now && answer.BanLeft < mostWait(r) {
		d.keep(e, m, r, make([]stint.Decision, len(r.Asks))) // none allowed: an invalidation of any key changes the wait
	}
}

// mostWait bounds RetryAfter of r's limits. It is Never if a second ban may refuse r, which may be
// longer than the remembered one.
func mostWait(r *stint.Request) time.Duration {
	if mayFaceBans(r) {
		return stint.Never
	}
	var longest time.Duration
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Limit == nil {
			continue
		}
		if a.Units() > planOf(a.Limit).Capacity {
			return stint.Never
		}
		longest = max(longest, algo.Duration(max(planOf(a.Limit).Longest(), planOf(a.Limit).Busy)))
	}
	return longest
}

// mayFaceBans reports whether more than one ban can refuse r.
func mayFaceBans(r *stint.Request) bool {
	var one *stint.Ask
	for i := range r.Asks {
		a := &r.Asks[i]
		switch {
		case a.Penalty == nil || penaltyOf(a.Penalty).Ban == 0:
		case one == nil:
			one = a
		case one.Key != a.Key || one.Penalty.ID() != a.Penalty.ID():
			return true
		}
	}
	return false
}

// hasPenalty reports whether a refusal of r may be a violation.
func hasPenalty(r *stint.Request) bool {
	for i := range r.Asks {
		if r.Asks[i].Penalty != nil {
			return true
		}
	}
	return false
}

func (e *denial) fill(m *moment, r *stint.Request, each []stint.Decision) {
	if e.asks = e.one[:]; len(each) != 1 {
		e.asks = make([]askDenied, len(each))
	}
	e.decided = -1
	e.asHold = r.Hold != stint.HoldID{}
	for i := range each {
		a, was := &r.Asks[i], &each[i]
		ask := &e.asks[i]
		*ask = askDenied{
			limit: a.Limit, penalty: a.Penalty, cost: a.Units(), maxDelay: a.MaxDelay,
			allowed: was.Allowed, busy: was.Busy, remaining: was.Remaining, held: was.Held, retry: was.RetryAfter, reset: was.ResetAfter,
		}
		if i > 0 && a.Key == r.Asks[i-1].Key {
			ask.key = e.asks[i-1].key
		} else {
			ask.key = strings.Clone(a.Key)
		}
		if was.Allowed {
			continue
		}
		ask.mark = m.mark(i)
		if was.Busy {
			continue // it may fit at any time; then the other asks still refuse
		}
		if e.decided < 0 || was.RetryAfter > e.asks[e.decided].retry {
			e.decided = i
		}
	}
}
