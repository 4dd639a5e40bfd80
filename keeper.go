package stint

import (
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/stintdev/stint/internal/logline"
)

const (
	// sendTimeout is how long a call in the background waits for the Store.
	sendTimeout = time.Second
	// maxCalls is how many calls are sent at once.
	maxCalls = 256
	// maxOwed bounds the bytes of kept settlements, unless SetMaxOwed was called. Settlements with
	// 0 get half of that, because such holds also expire by themselves.
	maxOwed = 32 << 20
	// Unanswered settlements are sent again after firstWait, then after twice as long each
	// time, up to longestWait.
	firstWait   = 100 * time.Millisecond
	longestWait = time.Second
	// A hold that was not found, but that a late call may still make, is settled again
	// after absentPause, then after twice as long each time, up to four times absentPause.
	absentPause = time.Second
)

// keeper keeps the holds of a Limiter's requests: it renews those of running requests, and
// sends again settlements that failed. A timer starts its work, so that a goroutine exists only
// while it works.
type keeper struct {
	mu      sync.Mutex
	live    dueHeap // to be renewed
	owed    []*held // settlements to be sent, in order
	bytes   int     // of owed
	most    int     // of bytes; 0: maxOwed
	wait    time.Duration
	retry   time.Time // owed is not sent before this
	timer   *time.Timer
	at      time.Time // when timer fires
	working bool      // and no timer is set
	lines   struct{ dropped, lost logline.Line }
	// onLost is called, instead of logging, when a settlement in the background was lost. It
	// is not changed once the Limiter is in use. nil: log.
	onLost func(*Limit, error)
}

// keep starts the renewals of h.
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

// arm sets the timer of l's keeper for its next work. mu must be locked.
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
		// A timer that fires when nothing is due costs less than stopping it each time.
		if !next.Before(k.at) || !k.timer.Stop() {
			return
		}
	}
	k.at = next
	k.timer = time.AfterFunc(next.Sub(now), func() { keep(l) })
}

// keep does all work that is due.
func keep(l *Limiter) {
	k := &l.keeper
	k.mu.Lock()
	k.timer, k.working = nil, true
	k.mu.Unlock()
	renewed, repaid := true, true
	for more := true; more && repaid; { // renewals that fall due do not wait for all settlements
		for due := true; due && renewed; {
			due, renewed = k.renew(l)
		}
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

// renew renews some holds that are due. more says that others may be due. answers is false if
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

// due removes some holds from live that are due at now, and makes their calls. It includes
// those due soon, so that fewer calls are sent. timeout is how long the calls can wait.
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

// endDropped settles a hold with the units that it held, because its Reservation is garbage. mu
// must be locked.
func (k *keeper) endDropped(h *held) {
	h.ended = true
	for i := range h.parts {
		if p := &h.parts[i]; p.limit.spec.Algorithm != InFlight {
			p.cost = p.units
		}
	}
	k.bytes += h.size() // even above most: it took as much before
	k.owed = append(k.owed, h)
	k.lines.dropped.Log(slog.LevelWarn, "stint: a Reservation was dropped without Settle or Cancel: it is charged what it held",
		fmt.Errorf("not settled: %s", h.parts[0].limit))
}

// renewed reads the answers to renewals that were sent at start. lost are the holds of which the
// store has lost a record, and again are the calls that put those back; the holds must not be
// settled until restored was called. answers is false if no call was answered.
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
			p.released = c.Err == nil && c.Released
			p.again = c.Err == nil && !c.Found && !c.Released
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

// restored reads the answers to calls that put lost records back.
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
			p.released = calls[0].Err == nil && calls[0].Released
			failed = failed || calls[0].Err != nil
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

// reschedule plans the next renewal of h, if any part needs one: soon if this one failed.
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

// repay sends some owed settlements. more says that there are others. answers is false if all
// calls failed.
func (k *keeper) repay(l *Limiter) (more, answers bool) {
	hs, late, timeout := k.owing()
	for _, h := range late {
		k.log(h, h.giveUp())
	}
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
	var again, absent []*held
	begin := 0
	for i, h := range hs {
		owed, err := h.answered(context.Background(), calls[begin:ends[i]])
		begin = ends[i]
		if owed != nil {
			h.err = owed
			again = append(again, h)
		} else if h.absent {
			absent = append(absent, h)
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
	for _, h := range absent {
		k.bytes += h.size()
		k.settleLater(l, h)
	}
	k.owed = append(k.owed, again...)
	answers = len(again) < len(hs)
	return answers && len(k.owed) > len(again), answers
}

// settleLater settles h, which was not found, again after a while. mu must be locked.
func (k *keeper) settleLater(l *Limiter, h *held) {
	h.pause = min(max(absentPause, 2*h.pause), 4*absentPause)
	time.AfterFunc(h.pause, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.owed = append(k.owed, h)
		k.arm(l, time.Now())
	})
}

// owing removes some holds from owed. late are those that have expired.
func (k *keeper) owing() (hs, late []*held, timeout time.Duration) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for len(k.owed) > 0 && n < maxCalls {
		h := k.owed[0]
		k.owed[0], k.owed = nil, k.owed[1:]
		if h.longest > 0 && !now.Before(h.until) {
			k.bytes -= h.size()
			late = append(late, h)
			continue
		}
		hs = append(hs, h)
		n += len(h.parts)
	}
	timeout = sendTimeout
	if len(k.live) > 0 { // renewals must not wait for this
		timeout = min(timeout, max(k.live[0].due.Sub(now), firstWait))
	}
	return hs, late, timeout
}

// log logs that a settlement in the background was lost.
func (k *keeper) log(h *held, err error) {
	switch {
	case err == nil || h.abandoned:
	case k.onLost != nil:
		k.onLost(h.parts[0].limit, err)
	default:
		k.lines.lost.Log(slog.LevelWarn, "stint: a request is not charged what it did cost", err)
	}
}

// dueHeap is a heap with the hold that is due first at its root.
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
