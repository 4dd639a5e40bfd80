package stint

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/logline"
)

const (
	// sendTimeout is how long a call in the background waits for the Store.
	sendTimeout = time.Second
	// maxCalls is how many calls are sent at once.
	maxCalls = 256
	// maxOwed bounds the bytes of settlements that are kept, and maxAbandoned those of
	// settlements with 0 among them, without which a hold runs out by itself.
	maxOwed      = 32 << 20
	maxAbandoned = maxOwed / 2
	// Settlements that were not answered are sent again after firstWait, then after twice as
	// long each time, but after longestWait at the latest.
	firstWait   = 100 * time.Millisecond
	longestWait = time.Second
)

// keeper keeps what requests to a Limiter hold: it renews what still runs, and sends again what
// could not be settled. A timer starts its work, so that there is a goroutine only meanwhile.
type keeper struct {
	mu      sync.Mutex
	live    dueHeap // what is renewed
	owed    []*held // settlements that are to be sent, the first first
	bytes   int     // of owed
	wait    time.Duration
	retry   time.Time // owed is not sent before
	timer   *time.Timer
	at      time.Time // when timer ends
	working bool      // and no timer is set
	lines   struct{ dropped, lost logline.Line }
}

// held is what one request holds. Its Reservation refers to it, and it does not refer to its
// Reservation, so that a Reservation that nobody refers to is garbage.
type held struct {
	l     *Limiter
	id    HoldID
	parts []part
	one   [1]part // parts, if there is no more
	every time.Duration
	// longest is how long the part that lasts longest lasts without renewal.
	longest time.Duration
	dropped atomic.Bool // its Reservation is garbage

	// The rest is guarded by keeper.mu; parts[].cost, too, until it is ended.
	ended     bool
	due       time.Time     // of the next renewal
	until     time.Time     // by then the records have run out if nobody renews them
	index     int           // in keeper.live; -1: not there
	restoring chan struct{} // not nil: a call that can make a lost record again is under way; closed after it
	doubtful  bool          // a settlement was sent and not answered
	abandoned bool          // no more than settled with 0
	err       error         // why it is owed
}

// part is what is held under one limit.
type part struct {
	ask   int // in the request; -1: it is the unit of Limiter.Instance
	key   string
	limit *Limit
	units int64 // 0: nothing is held, and the cost is charged
	last  time.Duration
	by    Source
	cost  int64
	done  bool // settled

	again bool // the store had no record, and was asked to put it back
	lost  bool // it did not, because the record was released
}

// renews tells whether there is a record of p to be renewed.
func (p *part) renews() bool { return p.units > 0 && !p.lost }

// newHeld is what r holds; nil if that is nothing. each holds the answers to its asks; nil: they
// are not known.
func newHeld(l *Limiter, r *Request, each []Decision) *held {
	h := &held{l: l, id: r.Hold, index: -1}
	h.parts = h.one[:0]
	for i := range r.Asks {
		a := &r.Asks[i]
		units := a.Units()
		if a.Limit == nil || !a.Limit.IsHeld() || units == 0 && (each == nil || a.Limit.spec.Algorithm == InFlight) {
			continue
		}
		p := part{ask: i, key: a.Key, limit: a.Limit, units: units}
		if each != nil {
			if p.by = each[i].By; p.by == ByPolicy {
				continue // nothing was counted
			}
		}
		h.add(p, r.HoldFor)
	}
	if each != nil && l.holdsHere(r) {
		h.add(part{ask: -1, key: instanceKey, limit: l.Instance, units: 1, by: ByInstance}, 0)
	}
	if len(h.parts) == 0 {
		return nil
	}
	return h
}

// add adds p, which lasts for last, or as its limit says.
func (h *held) add(p part, last time.Duration) {
	if p.units > 0 {
		p.last = cmp.Or(last, algo.Duration(p.limit.counted.Plan.Hold))
		h.longest = max(h.longest, p.last)
		if h.every == 0 || p.last/3 < h.every {
			h.every = p.last / 3
		}
	}
	h.parts = append(h.parts, p)
}

// renews tells whether anything of h is a record that lasts only for a time.
func (h *held) renews() bool { return h.every > 0 }

// drop is called when the Reservation of h is garbage, in a goroutine that must not wait. The
// keeper finds out when it would renew h.
func (h *held) drop() { h.dropped.Store(true) }

// call makes a call about p.
func (h *held) call(p *part, action HoldAction) HoldCall {
	c := HoldCall{Action: action, Key: p.key, Limit: p.limit, Hold: h.id, Units: p.units, For: p.last, By: p.by}
	if action == HoldSettle {
		c.Cost = p.cost
		if p.units == 0 {
			c.Action = HoldCharge
		}
	}
	return c
}

// size is how many bytes h takes, about.
func (h *held) size() int {
	n := int(unsafe.Sizeof(*h)) + int(unsafe.Sizeof(part{}))*len(h.parts)
	for i := range h.parts {
		n += len(h.parts[i].key)
	}
	return n
}

// end ends h with costs as Reservation.Settle gets them. It reports false if h was ended before.
// If restoring is not nil, a call is under way that may put a lost record back until it is closed.
func (h *held) end(cost []int64) (restoring <-chan struct{}, first bool) {
	k := &h.l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.ended {
		return nil, false
	}
	h.ended = true
	if h.index >= 0 {
		heap.Remove(&k.live, h.index)
	}
	for i := range h.parts {
		switch p := &h.parts[i]; {
		case p.limit.spec.Algorithm == InFlight: // nothing is charged
		case len(cost) == 0:
			p.cost = p.units
		case len(cost) == 1:
			p.cost = cost[0]
		default:
			p.cost = cost[p.ask]
		}
	}
	return h.restoring, true
}

// settle sends what h, which is ended, did cost.
func (h *held) settle(ctx context.Context) error {
	calls := h.settlements(nil)
	if len(calls) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil { // the client has left: that is no reason not to charge it
		return h.owe(err)
	}
	if slices.ContainsFunc(calls, func(c HoldCall) bool { return c.Action == HoldCharge }) {
		// A charge cannot be sent again, so its caller's leaving may not interrupt it.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
		defer cancel()
	}
	h.l.send(ctx, calls)
	owed, err := h.answered(ctx, calls)
	if owed != nil {
		err = errors.Join(err, h.owe(owed))
	}
	return err
}

// settlements appends to calls what is still to be sent of h, which is ended.
func (h *held) settlements(calls []HoldCall) []HoldCall {
	for i := range h.parts {
		p := &h.parts[i]
		if p.units == 0 && p.cost == 0 {
			p.done = true
		}
		if !p.done {
			calls = append(calls, h.call(p, HoldSettle))
		}
	}
	return calls
}

// answered reads the answers to settlements. owed is not nil if some are to be sent again; err is
// what became of the others.
func (h *held) answered(ctx context.Context, calls []HoldCall) (owed, err error) {
	for i := range h.parts {
		p := &h.parts[i]
		if p.done {
			continue
		}
		c := &calls[0]
		calls = calls[1:]
		switch {
		case c.Err == nil:
			p.done = true
			if !c.Found && !h.doubtful { // else it was settled when the answer was lost
				err = errors.Join(err, fmt.Errorf("stint: %w: key %q under %s", ErrHoldLost, limittext.Clip(p.key), p.limit))
			}
		case c.Action == HoldCharge, errors.Is(c.Err, ErrRequest), errors.Is(c.Err, ErrUnsupported):
			p.done = true
			err = errors.Join(err, c.Err)
		default:
			owed = c.Err
		}
		if p.done && !h.abandoned {
			h.l.holdEnded(ctx, c)
		}
	}
	h.doubtful = h.doubtful || owed != nil
	return owed, err
}

// owe keeps h, which is ended, to send it in the background. It returns err if there is no room.
func (h *held) owe(err error) error {
	k, size, most := &h.l.keeper, h.size(), maxOwed
	if h.abandoned {
		most = maxAbandoned
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bytes+size > most {
		h.err = fmt.Errorf("no room to keep the settlement: %w", err)
		return h.giveUp()
	}
	for i := range h.parts { // the caller's may be part of a long text
		h.parts[i].key = strings.Clone(h.parts[i].key)
	}
	h.err = err
	k.bytes += size
	k.owed = append(k.owed, h)
	k.arm(h.l, time.Now())
	return nil
}

// abandon settles what r may hold with 0, because it is unknown whether r was allowed.
func (l *Limiter) abandon(r *Request, err error) {
	if (r.Hold == HoldID{}) || !r.At.IsZero() || errors.Is(err, ErrRequest) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrFull) {
		return
	}
	if h := newHeld(l, r, nil); h != nil {
		h.ended, h.abandoned, h.doubtful = true, true, true
		h.until = time.Now().Add(h.longest)
		_ = h.owe(err) // without room, it runs out
	}
}

// keep has h renewed from now on.
func (k *keeper) keep(h *held) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	h.until = now.Add(h.longest)
	k.schedule(h, now.Add(h.every))
	k.arm(h.l, now)
}

func (k *keeper) schedule(h *held, due time.Time) {
	h.due = due
	heap.Push(&k.live, h)
}

// arm sets the timer of l's keeper for what is to be done next. mu must be locked.
func (k *keeper) arm(l *Limiter, now time.Time) {
	if k.working {
		return // it arms at its end
	}
	next := k.retry
	switch {
	case len(k.owed) > 0:
	case len(k.live) == 0:
		return
	case next.Before(k.live[0].due):
		next = k.live[0].due
	}
	if k.timer != nil {
		// One that ends when nothing is due costs less than to stop it each time.
		if !next.Before(k.at) || !k.timer.Stop() {
			return
		}
	}
	k.at = next
	k.timer = time.AfterFunc(next.Sub(now), func() { keep(l) })
}

// keep does what is due.
func keep(l *Limiter) {
	k := &l.keeper
	k.mu.Lock()
	k.timer, k.working = nil, true
	k.mu.Unlock()
	renewed, repaid := true, true
	for more := true; more && renewed; {
		more, renewed = k.renew(l)
	}
	for more := true; more && repaid; {
		more, repaid = k.repay(l)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if renewed && repaid {
		k.wait, k.retry = 0, time.Time{}
	} else {
		k.wait = min(max(2*k.wait, firstWait), longestWait)
		k.retry = now.Add(k.wait)
	}
	k.working = false
	k.arm(l, now)
}

// renew renews some holds that are due. more says that there may be others. answers is false if
// all calls failed.
func (k *keeper) renew(l *Limiter) (more, answers bool) {
	start := time.Now()
	hs, calls, timeout := k.due(start)
	if len(calls) == 0 {
		return false, true
	}
	sendFor(l, calls, timeout)
	lost, again, answers := k.renewed(hs, calls, start)
	if len(lost) > 0 {
		sendFor(l, again, timeout)
		k.restored(lost, again, start)
	}
	return true, answers
}

func sendFor(l *Limiter, calls []HoldCall, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	l.send(ctx, calls)
}

// due takes out some holds that are to be renewed at now, and makes their calls. Those that are
// due soon come along, so that fewer calls are sent. timeout is how long they can wait.
func (k *keeper) due(now time.Time) (hs []*held, calls []HoldCall, timeout time.Duration) {
	timeout = sendTimeout
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.live) > 0 && len(calls) < maxCalls {
		h := k.live[0]
		if h.due.Add(-h.every / 4).After(now) {
			break
		}
		heap.Pop(&k.live)
		if h.dropped.Load() {
			k.endDropped(h)
			continue
		}
		hs = append(hs, h)
		timeout = min(timeout, h.every)
		for i := range h.parts {
			if p := &h.parts[i]; p.renews() {
				calls = append(calls, h.call(p, HoldRenew))
			}
		}
	}
	return hs, calls, timeout
}

// endDropped has a hold settled by what it held, because its Reservation is garbage. mu must be
// locked.
func (k *keeper) endDropped(h *held) {
	h.ended = true
	for i := range h.parts {
		if p := &h.parts[i]; p.limit.spec.Algorithm != InFlight {
			p.cost = p.units
		}
	}
	k.bytes += h.size() // whatever room is left: it took as much before
	k.owed = append(k.owed, h)
	k.lines.dropped.Log(slog.LevelWarn, "stint: a Reservation was dropped without Settle or Cancel: it is charged what it held",
		fmt.Errorf("not settled: %s", h.parts[0].limit))
}

// renewed reads the answers to renewals that were sent at start. lost is what the store has lost of
// them, and again are the calls that put that back; it must not be settled until restored was
// called. answers is false if no call was answered.
func (k *keeper) renewed(hs []*held, calls []HoldCall, start time.Time) (lost []*held, again []HoldCall, answers bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for _, h := range hs {
		failed, before := false, len(again)
		for i := range h.parts {
			p := &h.parts[i]
			if !p.renews() {
				continue
			}
			c := &calls[0]
			calls = calls[1:]
			failed, answers = failed || c.Err != nil, answers || c.Err == nil
			missing := c.Err == nil && !c.Found
			p.again, p.lost = missing && !p.again, missing && p.again
			if p.again && !h.ended {
				again = append(again, h.call(p, HoldRenew))
				again[len(again)-1].Again = true
			}
		}
		h.until = now.Add(h.longest) // also without an answer: the call may have been done
		switch {
		case h.ended:
		case len(again) > before:
			h.restoring = make(chan struct{})
			lost = append(lost, h)
		default:
			k.reschedule(h, start, failed)
		}
	}
	return lost, again, answers
}

// restored reads the answers to renewals that were to put lost records back.
func (k *keeper) restored(hs []*held, calls []HoldCall, start time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for _, h := range hs {
		failed := false
		for i := range h.parts {
			p := &h.parts[i]
			if !p.again {
				continue
			}
			if calls[0].Err != nil {
				p.again, failed = false, true
			}
			calls = calls[1:]
		}
		close(h.restoring)
		h.restoring = nil
		h.until = now.Add(h.longest)
		if !h.ended {
			k.reschedule(h, start, failed)
		}
	}
}

// reschedule has h renewed again, if anything of it is left: soon if that failed now.
func (k *keeper) reschedule(h *held, now time.Time, failed bool) {
	wait := h.every
	if failed {
		wait /= 2 // due takes it out after half of that
	}
	for i := range h.parts {
		if h.parts[i].renews() {
			k.schedule(h, now.Add(wait))
			return
		}
	}
}

// repay sends some settlements that are owed. more says that there are others. answers is false
// if all calls failed.
func (k *keeper) repay(l *Limiter) (more, answers bool) {
	hs, timeout := k.owing()
	var calls []HoldCall
	ends := make([]int, len(hs))
	for i, h := range hs {
		calls = h.settlements(calls)
		ends[i] = len(calls)
	}
	if len(calls) == 0 {
		return false, true
	}
	sendFor(l, calls, timeout)
	var again []*held
	begin := 0
	for i, h := range hs {
		owed, err := h.answered(context.Background(), calls[begin:ends[i]])
		begin = ends[i]
		if owed != nil {
			h.err = owed
			again = append(again, h)
		}
		k.log(h, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range hs {
		k.bytes -= h.size()
	}
	for _, h := range again {
		k.bytes += h.size()
	}
	k.owed = append(k.owed, again...)
	answers = len(again) < len(hs)
	return answers && len(k.owed) > len(again), answers
}

// owing takes out some of what is owed, without what has run out.
func (k *keeper) owing() (hs []*held, timeout time.Duration) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for len(k.owed) > 0 && n < maxCalls {
		h := k.owed[0]
		k.owed[0], k.owed = nil, k.owed[1:]
		if h.longest > 0 && !now.Before(h.until) {
			k.bytes -= h.size()
			k.log(h, h.giveUp())
			continue
		}
		hs = append(hs, h)
		n += len(h.parts)
	}
	timeout = sendTimeout
	if len(k.live) > 0 { // renewals must not wait for this
		timeout = min(timeout, max(k.live[0].due.Sub(now), firstWait))
	}
	return hs, timeout
}

// giveUp ends settlements that were not answered, because of h.err. It returns what is lost by that.
func (h *held) giveUp() (err error) {
	for _, c := range h.settlements(nil) {
		c.Err = fmt.Errorf("stint: %w: key %q under %s: %w", ErrHoldLost, limittext.Clip(c.Key), c.Limit, h.err)
		if c.Cost > 0 {
			err = errors.Join(err, c.Err)
		}
		if !h.abandoned {
			h.l.holdEnded(context.Background(), &c)
		}
	}
	return err
}

// log logs that a settlement in the background was lost.
func (k *keeper) log(h *held, err error) {
	if err != nil && !h.abandoned {
		k.lines.lost.Log(slog.LevelWarn, "stint: a request is not charged what it did cost", err)
	}
}

// dueHeap has the hold that is due first at its root.
type dueHeap []*held

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d dueHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push implements heap.Interface.
func (d *dueHeap) Push(x any) {
	h := x.(*held)
	h.index = len(*d)
	*d = append(*d, h)
}

// Pop implements heap.Interface.
func (d *dueHeap) Pop() any {
	last := len(*d) - 1
	h := (*d)[last]
	(*d)[last], *d = nil, (*d)[:last]
	h.index = -1
	return h
}
