package stint

import (
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// cache is a set-associative table of fixed size. What it holds is looked at without
// writing anything, so that a key that all cores ask for costs each of them no more
// than one that nobody else does.
type cache[E any] struct {
	slots []atomic.Pointer[E]
	ways  int
}

func (t *cache[E]) make(room int) {
	t.ways = min(room, 8)
	t.slots = make([]atomic.Pointer[E], room/t.ways*t.ways)
}

// set is where what has that hash can be.
func (t *cache[E]) set(hash uint64) []atomic.Pointer[E] {
	i, _ := bits.Mul64(hash, uint64(len(t.slots)/t.ways))
	return t.slots[int(i)*t.ways:][:t.ways]
}

// put puts e in the place of one that may go, else of one at random: whoever
// chooses keys can drive others out, but not those of his choice.
func (t *cache[E]) put(hash uint64, e *E, mayGo func(*E) bool) {
	set := t.set(hash)
	for i := range set {
		if old := set[i].Load(); old == nil || mayGo(old) {
			set[i].Store(e)
			return
		}
	}
	set[rand.IntN(len(set))].Store(e)
}

// denial is a request that was refused.
type denial struct {
	hash    uint64
	epoch   uint64
	until   int64 // ns
	told    int64 // when the answer came, ns
	decided int   // the place of the ask that decided
	tally   *tally
	asks    []askDenied
	one     [1]askDenied

	// banned means that a ban refused. Then retry, as told, is all that is known.
	banned bool
	retry  time.Duration
}

// askDenied is an ask of it, and what it was told. Only those that refused have a
// mark: what is undone elsewhere does not make the request pass.
type askDenied struct {
	mark
	key       string
	limit     *Limit
	penalty   *Penalty
	cost      int64
	maxDelay  time.Duration
	allowed   bool
	remaining int64
	retry     time.Duration
	reset     time.Duration
}

// hashOf is of what a request asks, without what is rarely all that differs.
func (d *Denials) hashOf(r *Request) uint64 {
	var h uint64
	for i := range r.Asks {
		a := &r.Asks[i]
		h = (h ^ d.hash(a.Key)) * 0x9e3779b97f4a7c15
		if a.Limit == nil {
			continue
		}
		p := &a.Limit.plan
		h = (h ^ uint64(a.Units()) ^ uint64(p.Period)<<20 ^ uint64(p.Capacity)<<40) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h * 0xbf58476d1ce4e5b9
}

// isOf tells whether e is of the same request as r.
func (e *denial) isOf(r *Request) bool {
	if len(e.asks) != len(r.Asks) {
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

// holds tells whether e still holds.
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

// recall answers a request as it was refused before, if that stands.
func (d *Denials) recall(r *Request, out []Decision) (Decision, bool) {
	epoch := d.epoch.Load()
	if epoch == 0 {
		return Decision{}, false
	}
	ban, banned := d.recallBan(r, epoch)
	if banned && ban.BanLeft >= mostWait(r) {
		d.remembered()
		return ban, true
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
			ban.RetryAfter = max(ban.RetryAfter, leftOf(e.retry, e.told, now))
			return ban, true
		}
		if !e.holds(epoch, now) {
			return Decision{}, false
		}
		var violations int64
		if e.tally != nil {
			var ok bool
			if violations, ok = d.violated(e.tally, now); !ok {
				return Decision{}, false
			}
		}
		d.remembered()
		return e.answer(r, out, violations, now), true
	}
	return Decision{}, false
}

// answer puts what was told in the words of r at now, after so many violations.
func (e *denial) answer(r *Request, out []Decision, violations, now int64) Decision {
	for i := range out {
		out[i] = e.asks[i].answer(&r.Asks[i], e.told, now)
	}
	whole := e.asks[e.decided].answer(&r.Asks[e.decided], e.told, now)
	if e.tally != nil {
		e.tally.tell(&whole, r, violations)
	}
	return whole
}

func (was *askDenied) answer(a *Ask, told, now int64) Decision {
	d := Decision{
		Outcome:    Limited,
		Limit:      a.Limit,
		Key:        a.Key,
		Remaining:  was.remaining,
		RetryAfter: left(was.retry, told, now),
		ResetAfter: left(was.reset, told, now),
	}
	if was.allowed {
		d.Allowed, d.Outcome = true, Allowed
	}
	return d
}

// learn remembers the answer to r, if it is a refusal of the store's that lasts. each
// may be nil where r has one ask.
func (d *Denials) learn(m *moment, r *Request, answer *Decision, each []Decision) {
	if answer.Allowed || answer.By != ByStore || m.epoch != d.epoch.Load() {
		return
	}
	if answer.Outcome == Banned {
		d.learnBan(m, r, answer)
		d.learnWait(m, r, answer)
		return
	}
	if each == nil {
		var one [1]Decision
		one[0] = *answer
		each = one[:]
	}
	wait := Never // until the first of those that refused would allow
	for i := range each {
		if each[i].By != ByStore || each[i].RetryAfter == Never {
			return
		}
		if !each[i].Allowed {
			wait = min(wait, each[i].RetryAfter)
		}
	}
	told := d.now()
	e := &denial{epoch: m.epoch, until: stands(m.at, wait), told: told}
	t, ok := d.learnViolation(m, r, answer, each, told)
	if e.tally = t; !ok || e.until <= told {
		return
	}
	d.keep(e, m, r, each)
}

// keep remembers e, which is of r.
func (d *Denials) keep(e *denial, m *moment, r *Request, each []Decision) {
	e.fill(m, r, each)
	e.hash = d.hashOf(r)
	d.requests.put(e.hash, e, func(old *denial) bool {
		return !old.holds(m.epoch, e.told) || old.hash == e.hash && old.banned == e.banned && old.isOf(r)
	})
}

// learnWait remembers how long a request is refused that a ban refused: if its limits
// refuse for longer, that is longer than the ban.
func (d *Denials) learnWait(m *moment, r *Request, answer *Decision) {
	told := d.now()
	e := &denial{epoch: m.epoch, until: stands(m.at, answer.BanLeft), told: told, banned: true, retry: answer.RetryAfter}
	if e.until > told && answer.BanLeft < mostWait(r) {
		d.keep(e, m, r, make([]Decision, len(r.Asks))) // none allowed: what is undone of any changes the wait
	}
}

// mostWait is more than any of r's limits ever tells to wait, where they do not
// change. It is Never where r may face a second ban, which may run for longer than one
// that is remembered.
func mostWait(r *Request) time.Duration {
	if r.mayFaceBans() {
		return Never
	}
	var longest time.Duration
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Limit == nil {
			continue
		}
		if a.Units() > a.Limit.plan.Capacity {
			return Never
		}
		longest = max(longest, algo.Duration(a.Limit.plan.Longest()))
	}
	return longest
}

// mayFaceBans tells whether more than one ban can answer r.
func (r *Request) mayFaceBans() bool {
	var one *Ask
	for i := range r.Asks {
		a := &r.Asks[i]
		switch {
		case a.Penalty == nil || a.Penalty.plan.Ban == 0:
		case one == nil:
			one = a
		case !one.sharesRecord(a):
			return true
		}
	}
	return false
}

// fill copies what was asked and told.
func (e *denial) fill(m *moment, r *Request, each []Decision) {
	if e.asks = e.one[:]; len(each) != 1 {
		e.asks = make([]askDenied, len(each))
	}
	e.decided = -1
	for i := range each {
		a, was := &r.Asks[i], &each[i]
		ask := &e.asks[i]
		*ask = askDenied{
			limit: a.Limit, penalty: a.Penalty, cost: a.Units(), maxDelay: a.MaxDelay,
			allowed: was.Allowed, remaining: was.Remaining, retry: was.RetryAfter, reset: was.ResetAfter,
		}
		if i > 0 && a.Key == r.Asks[i-1].Key {
			ask.key = e.asks[i-1].key
		} else {
			ask.key = kept(a.Key)
		}
		if was.Allowed {
			continue
		}
		ask.mark = m.mark(i)
		if e.decided < 0 || was.RetryAfter > e.asks[e.decided].retry {
			e.decided = i
		}
	}
}

// ban is one that runs.
type ban struct {
	mark
	hash    uint64
	key, id string // whom, and the penalty's ID
	until   int64  // ns
	told    int64
	left    time.Duration // when it was told
}

func (d *Denials) recordHash(key, id string) uint64 {
	return (d.hash(key) ^ bits.RotateLeft64(maphash.String(d.seed, id), 31)) * 0x9e3779b97f4a7c15
}

// recallBan answers with the longest of the bans of r's keys that are remembered.
func (d *Denials) recallBan(r *Request, epoch uint64) (Decision, bool) {
	var longest Decision
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty == nil || a.Penalty.plan.Ban == 0 {
			continue
		}
		hash := d.recordHash(a.Key, a.Penalty.id)
		set := d.bans.set(hash)
		for j := range set {
			b := set[j].Load()
			if b == nil || b.hash != hash || b.key != a.Key || b.id != a.Penalty.id {
				continue
			}
			now := d.now()
			if now >= b.until || !b.holds(epoch) {
				continue
			}
			if left := left(b.left, b.told, now); left > longest.BanLeft {
				longest = Decision{Outcome: Banned, Key: a.Key, RetryAfter: left, BanLeft: left, Penalty: a.Penalty}
			}
		}
	}
	return longest, longest.BanLeft > 0
}

// learnBan remembers the ban that an answer to r tells of, if it is clear whose.
func (d *Denials) learnBan(m *moment, r *Request, answer *Decision) {
	whose := answer.punished(r)
	if answer.BanLeft <= 0 || whose < 0 {
		return
	}
	a, told := &r.Asks[whose], d.now()
	d.beginAnew(a, m.epoch)
	b := &ban{
		mark: m.mark(whose), hash: d.recordHash(a.Key, a.Penalty.id), key: kept(a.Key), id: a.Penalty.id,
		until: stands(m.at, answer.BanLeft), told: told, left: answer.BanLeft,
	}
	d.bans.put(b.hash, b, func(old *ban) bool {
		return told >= old.until || !old.holds(m.epoch) || old.hash == b.hash && old.key == b.key && old.id == b.id
	})
}
