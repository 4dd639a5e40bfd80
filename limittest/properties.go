package limittest

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"pgregory.net/rapid"
)

// world has the store of a property. Each trial has its own keys and begins whole weeks after the
// trials before it: all periods divide a week, so trials can be repeated.
type world struct {
	store  stint.Store
	trials int
	high   int64
}

const week = 7 * 24 * 3600 * 1_000_000

type trial struct {
	*rapid.T
	reader
	world *world
	now   int64 // µs
	key   string
}

func property(holds func(*trial)) func(testing.TB, *env) {
	return func(t testing.TB, e *env) {
		w := &world{store: e.open()}
		rapid.Check(t, func(rt *rapid.T) { holds(w.trial(rt)) })
	}
}

func (w *world) trial(t *rapid.T) *trial {
	w.trials++
	if w.high > exact.Int64()-1000*week {
		w.high = 0
	}
	w.high = (w.high/week + 1) * week
	return &trial{
		T: t, reader: reader{t: t, store: w.store}, world: w, key: fmt.Sprintf("trial %d", w.trials),
		now: w.high + rapid.Int64Range(0, week/2).Draw(t, "offset"),
	}
}

func (t *trial) to(now int64) {
	t.now = now
	t.world.high = max(t.world.high, now)
}

var periods = []time.Duration{
	time.Millisecond, 7 * time.Millisecond, 250 * time.Millisecond, time.Second, 1500 * time.Millisecond,
	time.Minute, time.Hour, 24 * time.Hour,
}

// limit draws a limit with one of the given algorithms, or any.
func (t *trial) limit(name string, of ...stint.Algorithm) *stint.Limit {
	if len(of) == 0 {
		of = []stint.Algorithm{stint.TokenBucket, stint.LeakyBucket, stint.FixedWindow, stint.SlidingLog, stint.SlidingWindow}
	}
	s := stint.Spec{
		Name:      name,
		Algorithm: rapid.SampledFrom(of).Draw(t.T, "algorithm"),
		Amount:    rapid.Int64Range(1, 20).Draw(t.T, "amount"),
		Period:    rapid.SampledFrom(periods).Draw(t.T, "period"),
	}
	if s.Period > time.Hour && rapid.Bool().Draw(t.T, "large") {
		s.Amount += 999_979 // counts in ticks of 1 ms
	}
	switch s.Algorithm {
	case stint.TokenBucket, stint.LeakyBucket:
		s.Burst = rapid.Int64Range(0, 2*s.Amount).Draw(t.T, "burst")
	case stint.SlidingWindow:
		s.Buckets = rapid.SampledFrom([]int{0, 1, 2, 4, 5, 10}).Draw(t.T, "buckets")
	}
	return mustLimit(s)
}

// cost draws a cost that l may allow: from 0 to its capacity.
func (t *trial) cost(l *stint.Limit) int64 {
	c := l.Capacity()
	return rapid.OneOf(rapid.Just(min(1, c)), rapid.Just((c+2)/3), rapid.Just(c), rapid.Int64Range(0, c)).Draw(t.T, "cost")
}

func (t *trial) pass(l *stint.Limit) {
	p := l.Spec().Period.Microseconds()
	t.to(t.now + rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 1000), rapid.Int64Range(0, p/4),
		rapid.Int64Range(p/2, p), rapid.Int64Range(p-1, p+1), rapid.Int64Range(0, 2*p)).Draw(t.T, "pass"))
}

func (t *trial) ask(l *stint.Limit, cost int64) stint.Decision {
	d, _ := t.take(t.now, stint.Ask{Key: t.key, Limit: l, Cost: cost, Peek: cost == 0})
	return d
}

func (t *trial) history(l *stint.Limit, atMost int) (admitted []charge) {
	for range rapid.IntRange(2, atMost).Draw(t.T, "requests") {
		t.pass(l)
		if n := t.cost(l); t.ask(l, n).Allowed {
			admitted = append(admitted, charge{at: t.now, units: n})
		}
	}
	return admitted
}

func (t *trial) fail(format string, args ...any) {
	t.T.Helper()
	t.T.Fatalf("%s\n%s", fmt.Sprintf(format, args...), &t.story)
}

// No window of one period, (t−P, t], admits more than the amount.
func slidingLogIsExact(t *trial) {
	l := t.limit("", stint.SlidingLog)
	admitted := t.history(l, 40)
	period := l.Spec().Period.Microseconds()
	for i, last := range admitted {
		var sum int64
		for _, c := range admitted[:i+1] {
			if c.at > last.at-period {
				sum += c.units
			}
		}
		if sum > l.Spec().Amount {
			t.fail("%s: admitted %d in the period that ends at %d µs", l, sum, last.at)
		}
	}
}

// Between any two admitted requests, at most a burst plus the outflow is admitted.
func bucketsRefillAtTheRate(t *trial) {
	l := t.limit("", stint.TokenBucket, stint.LeakyBucket)
	admitted := t.history(l, 40)
	m := termsOf(l)
	for i, first := range admitted {
		sum := units(0)
		for _, c := range admitted[i:] {
			sum.Add(sum, units(c.units))
			most := new(big.Rat).Mul(m.rate, units(c.at/m.tick-first.at/m.tick))
			if most.Add(most, units(m.capacity)); sum.Cmp(most) > 0 {
				t.fail("%s: admitted %s from %d µs to %d µs, at most %s", l, sum.FloatString(3), first.at, c.at, most.FloatString(3))
			}
		}
	}
}

// A refused request is refused again with the same answer, and its limits answer a peek as before.
func denialChangesNothing(t *trial) {
	var asks []stint.Ask
	for i := range rapid.IntRange(1, 3).Draw(t.T, "asks") {
		asks = append(asks, stint.Ask{
			Key:   t.key + rapid.SampledFrom([]string{"a", "b"}).Draw(t.T, "key"),
			Limit: t.limit(fmt.Sprint(i)),
		})
	}
	for range rapid.IntRange(1, 20).Draw(t.T, "requests") {
		t.pass(asks[0].Limit)
		for i := range asks {
			stint.Internal(friend.Of{}).SetUnits(&asks[i], t.cost(asks[i].Limit))
		}
		before := t.peek(asks)
		d, each := t.take(t.now, asks...)
		if d.Allowed {
			continue
		}
		again, eachAgain := t.take(t.now, asks...)
		t.want("refused again", again, d)
		after := t.peek(asks)
		for i := range asks {
			t.want(fmt.Sprintf("refused again, ask %d", i), eachAgain[i], each[i])
			t.want(fmt.Sprintf("peek after a refusal, ask %d", i), after[i], before[i])
		}
	}
}

func (t *trial) peek(asks []stint.Ask) (each []stint.Decision) {
	for _, a := range asks {
		stint.Internal(friend.Of{}).SetUnits(&a, 0)
		d, _ := t.take(t.now, a)
		each = append(each, d)
	}
	return each
}

// A refused request is allowed after RetryAfter, and a microsecond earlier is not.
func retryAfterIsExact(t *trial) {
	l := t.limit("")
	t.history(l, 20)
	n := max(1, t.cost(l))
	d := t.ask(l, n)
	for !d.Allowed {
		then := t.now + d.RetryAfter.Microseconds()
		t.to(then - 1)
		if d := t.ask(l, n); d.Allowed || d.RetryAfter != time.Microsecond {
			t.fail("1µs before the time: %s, want a refusal with a retry of 1µs", show(&d))
		}
		t.to(then)
		if d = t.ask(l, n); !d.Allowed {
			t.fail("after the wait that was asked for: %s", show(&d))
		}
	}
}

// Remaining is how many requests of cost 1 still pass.
func remainingIsExact(t *trial) {
	l := t.limit("")
	t.history(l, 20)
	d := t.ask(l, 0)
	if d.Remaining > 100 { // leave a few
		if d := t.ask(l, d.Remaining-3); !d.Allowed || d.Remaining != 3 {
			t.fail("all but 3 of the rest: %s", show(&d))
		}
		d.Remaining = 3
	}
	for left := d.Remaining; left > 0; left-- {
		if d := t.ask(l, 1); !d.Allowed || d.Remaining != left-1 {
			t.fail("%d were left: %s", left, show(&d))
		}
	}
	if d := t.ask(l, 1); d.Allowed || d.Remaining != 0 {
		t.fail("none was left: %s", show(&d))
	}
}

// After ResetAfter a key is as if never used, and a microsecond earlier is not.
func resetAfterIsExact(t *trial) {
	l := t.limit("")
	t.history(l, 20)
	if d := t.ask(l, 0); d.ResetAfter > 0 {
		then := t.now + d.ResetAfter.Microseconds()
		t.to(then - 1)
		if d := t.ask(l, 0); d.ResetAfter != time.Microsecond {
			t.fail("1µs before the reset: %s", show(&d))
		}
		t.to(then)
	}
	used := t.ask(l, 0)
	if used.Remaining != l.Capacity() || used.ResetAfter != 0 {
		t.fail("when it should be reset: %s", show(&used))
	}
	n := t.cost(l)
	used = t.ask(l, n)
	t.key += " unused"
	unused := t.ask(l, n)
	used.Key = t.key
	t.want("as a key that was never used", used, unused)
}

// retryAfterSuffices: a client that waits for the RetryAfter of the last refusal is allowed,
// whether a limit or a ban refused.
func retryAfterSuffices(t *trial) {
	var asks []stint.Ask
	var longest time.Duration
	for i := range rapid.IntRange(1, 3).Draw(t.T, "limits") {
		l := t.limit(string(rune('a' + i)))
		asks = append(asks, stint.Ask{Key: t.key, Limit: l, Cost: rapid.Int64Range(1, min(5, l.Capacity())).Draw(t.T, "cost")})
		longest = max(longest, l.Spec().Period)
	}
	p := mustPenalty(stint.PenaltySpec{
		BanAfter: rapid.Int64Range(1, 4).Draw(t.T, "ban after"),
		BanFor:   max(time.Millisecond, longest/time.Duration(rapid.IntRange(1, 50).Draw(t.T, "ban for")*2)).Truncate(time.Microsecond),
		Growth:   rapid.Int64Range(1, 3).Draw(t.T, "growth"),
		MaxBan:   2 * longest,
	})
	asks[rapid.IntRange(0, len(asks)-1).Draw(t.T, "punished")].Penalty = p
	for range 20 {
		d, _ := t.take(t.now, asks...)
		for n := 0; !d.Allowed; n++ {
			if d.RetryAfter < d.BanLeft {
				t.Fatalf("told to come back in %s, of a ban of %s\n%s", d.RetryAfter, d.BanLeft, &t.story)
			}
			wait := d.RetryAfter.Microseconds()
			obeys := n == 5 || rapid.Bool().Draw(t.T, "obeys")
			if !obeys {
				wait = rapid.Int64Range(0, wait).Draw(t.T, "comes after")
			}
			t.to(t.now + wait)
			if d, _ = t.take(t.now, asks...); obeys && !d.Allowed {
				t.Fatalf("refused though it waited for as long as it was told\n%s", &t.story)
			}
		}
		t.to(t.now + rapid.Int64Range(0, longest.Microseconds()/10).Draw(t.T, "pause"))
	}
}
