package stint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/pause"
)

// Pause makes l refuse all requests for key, under any limit, for d from now, because a server said so,
// for example with status 429 and Retry-After. Wait, WaitN and the others wait; requests allowed before
// go on. If key is already paused for longer, that stays. A d of 0 or less lifts the pause, but callers
// that wait for its end do not ask earlier.
//
// Such a refusal is Limited and Remembered, and not a violation. RetryAfter is the rest of the pause,
// and Limit is nil. Nothing is taken, and each ask of the request has the same answer. Peeks are
// refused; requests with an instant are not.
//
// l remembers the pause, also while its Store does not answer. If l has a Store that is a Violator,
// Pause stores it there, in one round trip or, if a shorter pause runs, three: as a ban of key under a
// penalty named "stint pause", which Banned returns. Other Limiters over the Store, such as those of
// other instances, then refuse the requests that have a PauseAsk of key, and no others. A
// httplimit.Transport with MaxPause adds one to its requests.
//
// The error wraps ErrRequest if key is malformed, and ErrFull if l remembers 10,000 pauses and has no
// room for this one. After any other error, l knows the pause, but other Limiters may not: the Store
// failed, or did not answer in time, so that a fleet.Fallback decided alone.
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

// PauseAsk returns an Ask that refuses, as Limiter.Pause says, while key is paused by any Limiter
// over the same Store. Add it to the asks of a request. It takes nothing.
func PauseAsk(key string) Ask { return Ask{Key: key, Penalty: pausing} }

// pausing is the penalty whose bans are pauses. Each pause has its own length: see pauseFor.
var pausing = pauseFor(time.Second)

func pauseFor(d time.Duration) *Penalty {
	p, err := NewPenalty(PenaltySpec{Name: "stint pause", BanAfter: 1, BanFor: max(d, time.Millisecond), ForgetAfter: time.Second})
	if err != nil {
		panic(err)
	}
	return p
}

// pauseIn pauses key in s; a d of 0 lifts the pause.
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
	// A running ban cannot be extended.
	if err := Reset(ctx, s, &Request{Asks: []Ask{PauseAsk(key)}}); err != nil || d == 0 {
		return err
	}
	_, err := banFor(ctx, s, key, d)
	return err
}

var errPausedHere = errors.New("stint: pause of a key: the store did not answer, so that only this instance knows it")

// banFor bans key in s for a pause of d, unless such a ban runs already: then ran is the time left of
// it.
func banFor(ctx context.Context, s Store, key string, d time.Duration) (ran time.Duration, err error) {
	came, err := Violate(ctx, s, &Request{Asks: []Ask{{Key: key, Penalty: pauseFor(d)}}})
	switch {
	case err != nil:
		return 0, err
	case came.By != ByStore:
		return 0, errPausedHere
	case came.Outcome != Banned:
		return 0, fmt.Errorf("stint: pause of a key: %w", ErrFull)
	case (internals{}).BanRan(&came):
		return came.BanLeft, nil
	}
	return 0, nil
}

// pauses are the pauses of l and of Limiters over the same counts.
func (l *Limiter) pauses() *pause.Pauses[string] {
	if l.of != nil {
		return &l.of.paused
	}
	return &l.paused
}

// refusePaused is the refusal of r if l has paused one of its keys, by the longest pause.
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

// orPaused turns d into the refusal by a pause if d is a ban that stands for one.
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
