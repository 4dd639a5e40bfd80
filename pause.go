package stint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/pause"
)

// Pause has l refuse all requests for key, under any limit, for d from now: because a server said so,
// as by a Retry-After of 429. Wait, WaitN and the others wait; what was allowed before goes on. If key
// is paused for longer already, that stays. A d of 0 or less lifts the pause; callers that wait for its
// end then do not ask earlier.
//
// Such a refusal is Limited and Remembered, and no violation. RetryAfter is what is left, and Limit is
// nil. It takes nothing, and is the answer to each ask of the request, too. Peeks are refused; requests
// with an instant are not.
//
// l remembers the pause, also while its Store is away. If l has a Store that is a Violator, Pause tells
// it, in one round trip or, where a shorter pause runs, three. It is kept as a ban of key under a
// penalty named "stint pause", which Banned returns. Other Limiters over the Store, such as those of
// other instances, then refuse the requests that have a PauseAsk of key, and no others. A
// httplimit.Transport with MaxPause sends them.
//
// The error wraps ErrRequest if key is malformed, and ErrFull if l remembers 10,000 pauses and has no
// room for this one. After an error of the Store, l knows the pause, and others may not.
func (l *Limiter) Pause(ctx context.Context, key string, d time.Duration) (err error) {
	if err := checkKey(key); err != nil {
		return err
	}
	d = min(d, algo.MaxBan)
	if d <= 0 {
		l.pauses().Lift(key)
	} else if !l.pauses().Add(key, d) {
		err = fmt.Errorf("stint: pause of a key: %w: %d are paused", ErrFull, pause.Most)
	}
	if l.Store == nil {
		return err // nobody else asks
	}
	return errors.Join(err, pauseIn(ctx, l.Store, key, max(d, 0)))
}

// PauseAsk is an ask whether key is paused by any Limiter over the same Store: a request that has it
// beside those of its limits is refused then, as Limiter.Pause says. It takes nothing.
func PauseAsk(key string) Ask { return Ask{Key: key, Penalty: pausing} }

// pausing is the penalty whose bans are the pauses. Those that are imposed have a length of their own.
var pausing = pauseFor(time.Second)

func pauseFor(d time.Duration) *Penalty {
	p, err := NewPenalty(PenaltySpec{Name: "stint pause", BanAfter: 1, BanFor: max(d, time.Millisecond), ForgetAfter: time.Second})
	if err != nil {
		panic(err)
	}
	return p
}

// pauseIn pauses key in s; 0: it lifts the pause.
func pauseIn(ctx context.Context, s Store, key string, d time.Duration) error {
	if _, ok := As[Violator](s); !ok {
		return nil // it keeps no bans
	}
	if d > 0 {
		ran, err := banFor(ctx, s, key, d)
		if err != nil || ran == 0 || ran >= d {
			return err
		}
	}
	// A ban that runs gets no longer.
	if err := Reset(ctx, s, &Request{Asks: []Ask{PauseAsk(key)}}); err != nil || d == 0 {
		return err
	}
	_, err := banFor(ctx, s, key, d)
	return err
}

// banFor bans key in s for a pause of d, unless such a ban ran already: then ran is what is left of it.
func banFor(ctx context.Context, s Store, key string, d time.Duration) (ran time.Duration, err error) {
	came, err := Violate(ctx, s, &Request{Asks: []Ask{{Key: key, Penalty: pauseFor(d)}}})
	switch {
	case err != nil:
		return 0, err
	case came.Outcome != Banned:
		return 0, fmt.Errorf("stint: pause of a key: %w", ErrFull)
	case (internals{}).BanRan(&came):
		return came.BanLeft, nil
	}
	return 0, nil
}

// pauses are those of l and of the Limiters over the same counts.
func (l *Limiter) pauses() *pause.Pauses[string] {
	if l.of != nil {
		return &l.of.paused
	}
	return &l.paused
}

// refusePaused is the refusal of r if l has paused one of its keys, and of the longest pause.
func (l *Limiter) refusePaused(r *Request, each []Decision) (d Decision, ok bool) {
	if !l.pauses().Any() || !r.At.IsZero() {
		return d, false
	}
	for i := range r.Asks {
		if left := l.pauses().Left(r.Asks[i].Key); left > d.RetryAfter {
			d = Decision{Outcome: Limited, Remembered: true, Key: r.Asks[i].Key, RetryAfter: (left + time.Microsecond - 1).Truncate(time.Microsecond)}
		}
	}
	if d.RetryAfter == 0 {
		return d, false
	}
	answerEach(each, &d)
	return d, true
}

// orPaused turns d, if it is a ban that is a pause, into its refusal.
func orPaused(d *Decision, each []Decision) {
	if d.Outcome == Banned && d.Penalty != nil && d.Penalty.id == pausing.id {
		*d = Decision{Outcome: Limited, By: d.By, Remembered: d.Remembered, Key: d.Key, RetryAfter: d.RetryAfter}
		answerEach(each, d)
	}
}

// answerEach makes d the answer to each ask.
func answerEach(each []Decision, d *Decision) {
	for i := range each {
		each[i] = *d
	}
}
