package stint

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A request that is refused from memory still counts a violation, if its ask bears a
// penalty. The first 100 after a ban, or after a second without any, go to the store one
// by one: so a penalty with a BanAfter of up to 100, and every violation of a client
// that comes slowly, has each outcome when it has it without us. From then on
// they are summed, and sent every 100 ms, or as soon as they alone make a warning or a
// ban. So the warning or ban of a flood comes no more than 100 ms, and a call, later
// than it would; the key is refused in between all the same, and told how many violations
// the store counted last and how many were refused here since, which makes a warning, but
// not a ban. A batch that goes unanswered is not sent again, and those of a key that
// is forgotten, or refunded to, are dropped.
//
// A request goes to the store each time if its asks bear penalties with several
// records, or one that has not refused bears the only one, for then it might have a
// violation to count tomorrow that it has not today; and so does one whose penalty
// forgets within a second, or bans for less than one, which this instance may not hear
// of.
const (
	oneByOne   = 100
	batchEvery = 100 * time.Millisecond
	tallyLasts = time.Second
	// mostBatches bounds how many keys have violations that are not sent yet.
	mostBatches = 1024
	// batchTimeout bounds how long one is sent.
	batchTimeout = time.Second
)

// tally counts the violations of a key under a penalty.
type tally struct {
	mark
	hash      uint64
	key       string
	penalty   *Penalty
	last      atomic.Int64 // instant of the last, ns
	single    atomic.Int64 // sent one by one
	sent      atomic.Int64 // of refused
	elsewhere atomic.Int64 // what the store counts beside those sent, when it last told
	_         [64]byte
	refused   atomic.Int64 // from memory
}

// told notes that the store counts so many violations, those sent by then among them.
func (t *tally) told(violations, sent int64) { t.elsewhere.Store(violations - sent) }

// tell makes d, a refusal from memory of r, that of the n-th violation that is known.
func (t *tally) tell(d *Decision, r *Request, n int64) {
	p := &t.penalty.plan
	if p.Warn > 0 && n >= p.Warn {
		d.Outcome = Warned
	}
	if d.Violations = n; p.Ban > 0 {
		d.Violations = min(n, p.Ban)
	}
	for i := range r.Asks {
		if d.Penalty = r.Asks[i].Penalty; d.Penalty != nil {
			return
		}
	}
}

// lives tells whether t goes on at now.
func (t *tally) lives(epoch uint64, now int64) bool {
	return t.holds(epoch) && now-t.last.Load() < int64(tallyLasts)
}

// batches are the tallies with something pending.
type batches struct {
	mu sync.Mutex
	of map[*tally]struct{}
	n  atomic.Int64
}

// learnViolation notes the violations of a request that the store has refused. The
// tally is of those to come, if the same request comes again; nil: it has none. ok is
// false where they must be counted one by one.
func (d *Denials) learnViolation(m *moment, r *Request, answer *Decision, each []Decision, now int64) (t *tally, ok bool) {
	whose, refused := -1, false
	for i := range each {
		a := &r.Asks[i]
		if a.Penalty == nil {
			continue
		}
		if whose >= 0 && !r.Asks[whose].sharesRecord(a) {
			return nil, false
		}
		if whose = i; !each[i].Allowed {
			refused = true
		}
	}
	if whose < 0 || !refused || answer.Violations == 0 {
		return nil, whose < 0
	}
	a := &r.Asks[whose]
	if p := &a.Penalty.plan; p.Forget < tallyLasts.Microseconds() || p.Ban > 0 && p.BanFor < tallyLasts.Microseconds() {
		return nil, false
	}
	t = d.tally(m.mark(whose), a, now)
	t.told(answer.Violations, t.sent.Load())
	t.last.Store(now)
	return t, t.single.Add(1) >= oneByOne
}

// tally is that of an ask's record, perhaps a new one.
func (d *Denials) tally(mark mark, a *Ask, now int64) *tally {
	hash := d.recordHash(a.Key, a.Penalty.id)
	if t := d.findTally(hash, a, mark.epoch, now); t != nil {
		return t
	}
	t := &tally{mark: mark, hash: hash, key: kept(a.Key), penalty: a.Penalty}
	d.tallies.put(hash, t, func(old *tally) bool { return old.isOf(hash, a) || !old.lives(mark.epoch, now) })
	return t
}

// findTally is that of an ask's record, if there is one; else nil.
func (d *Denials) findTally(hash uint64, a *Ask, epoch uint64, now int64) *tally {
	set := d.tallies.set(hash)
	for i := range set {
		if t := set[i].Load(); t != nil && t.isOf(hash, a) && t.lives(epoch, now) {
			return t
		}
	}
	return nil
}

func (t *tally) isOf(hash uint64, a *Ask) bool {
	return t.hash == hash && t.key == a.Key && samePenalty(t.penalty, a.Penalty)
}

// beginAnew has the violations of a's record go one by one again: a ban has begun,
// with which they are counted from 0.
func (d *Denials) beginAnew(a *Ask, epoch uint64) {
	if t := d.findTally(d.recordHash(a.Key, a.Penalty.id), a, epoch, d.now()); t != nil {
		t.single.Store(0)
	}
}

// violated counts a violation from memory and returns how many are known then. ok is
// false where it must go to the store.
func (d *Denials) violated(t *tally, now int64) (known int64, ok bool) {
	if !t.lives(t.epoch, now) || t.single.Load() < oneByOne || d.batches.n.Load() >= mostBatches {
		return 0, false
	}
	if now-t.last.Load() > int64(tallyLasts/10) { // so that it is seldom written
		t.last.Store(now)
	}
	n := t.refused.Add(1)
	switch n - t.sent.Load() {
	case 1:
		d.later(t)
	case t.penalty.plan.Ban:
		go d.commit(t)
	}
	return max(1, t.elsewhere.Load()+n), true
}

// later commits t when its time has come.
func (d *Denials) later(t *tally) {
	b := &d.batches
	b.mu.Lock()
	if b.of == nil {
		b.of = make(map[*tally]struct{})
	}
	b.of[t] = struct{}{}
	b.n.Store(int64(len(b.of)))
	b.mu.Unlock()
	time.AfterFunc(batchEvery, func() { d.commit(t) })
}

// commit counts in the store what is pending, and learns what comes of it.
func (d *Denials) commit(t *tally) {
	b := &d.batches
	b.mu.Lock()
	delete(b.of, t)
	b.n.Store(int64(len(b.of)))
	sent := t.refused.Load()
	n := sent - t.sent.Swap(sent)
	b.mu.Unlock()
	if t.refused.Load() > sent {
		d.later(t) // it came before it could see that it is the first
	}
	if n == 0 || t.stripe.undone.Load() != t.undone {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	r := Request{Asks: []Ask{{Key: t.key, Penalty: t.penalty, Cost: n}}}
	switch answer, err := d.Violate(ctx, &r); {
	case err != nil || answer.By != ByStore:
	case answer.Outcome == Banned: // and then the count starts again
		t.told(0, sent)
	default:
		t.told(answer.Violations, sent)
	}
}

// commitAll counts in the store all that is pending.
func (d *Denials) commitAll() {
	d.batches.mu.Lock()
	var all []*tally
	for t := range d.batches.of {
		all = append(all, t)
	}
	d.batches.mu.Unlock()
	var sent sync.WaitGroup
	for _, t := range all {
		sent.Go(func() { d.commit(t) })
	}
	sent.Wait()
}

// Violate implements Violator. A ban that is remembered answers, if there can be no other.
func (d *Denials) Violate(ctx context.Context, r *Request) (Decision, error) {
	if !r.At.IsZero() {
		return powers{d.Store}.violate(ctx, r)
	}
	d.init()
	if epoch := d.epoch.Load(); epoch != 0 && !r.mayFaceBans() {
		if b, ok := d.recallBan(r, epoch); ok {
			d.remembered()
			return b, nil
		}
	}
	var m moment
	begun := d.begin(&m, r)
	answer, err := powers{d.Store}.violate(ctx, r)
	if begun && err == nil && answer.By == ByStore && answer.Outcome == Banned {
		d.learnBan(&m, r, &answer)
	}
	return answer, err
}
