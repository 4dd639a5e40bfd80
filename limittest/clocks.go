package limittest

import (
	"testing"
	"time"

	"github.com/stintdev/stint"
	"pgregory.net/rapid"
)

// checkClocks: a clock that jumps, as when another machine takes over, admits at most a burst per
// jump beyond the limit, and blocks no key for longer than a period beyond its wait.
func checkClocks(t testing.TB, e *env) {
	w := &world{store: e.open()}
	rapid.Check(t, func(rt *rapid.T) {
		t := w.trial(rt)
		t.now += 104 * week // room to jump back
		jumpy(t)
		t.world.high = max(t.world.high, t.now)
	})
}

// admission is an admitted request, on a clock that does not jump.
type admission struct {
	at, units int64
	jumps     int // before it
}

func jumpy(t *trial) {
	l := t.limit("")
	period := l.Spec().Period.Microseconds()
	var real int64 // the time that passed
	var jumps int
	var admitted []admission
	wait := func(d int64) {
		real += d
		t.now += d
	}
	for range rapid.IntRange(5, 60).Draw(t.T, "requests") {
		if rapid.IntRange(0, 7).Draw(t.T, "jumps") == 0 {
			by := rapid.SampledFrom([]int64{second, 60 * second, 3600 * second, 24 * 3600 * second, 52 * week, period, period + 1}).Draw(t.T, "by")
			if rapid.Bool().Draw(t.T, "back") {
				by = -by
			}
			if then := t.now + by; then > 0 && then < exact.Int64()-52*week {
				t.now, jumps = then, jumps+1
			}
		}
		wait(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, period/4), rapid.Int64Range(0, 2*period)).Draw(t.T, "wait"))
		n := max(1, t.cost(l))
		d := t.ask(l, n)
		if d.Allowed {
			admitted = append(admitted, admission{real, n, jumps})
			continue
		}
		if rapid.Bool().Draw(t.T, "patient") {
			wait(max(period, second) + d.RetryAfter.Microseconds())
			if d := t.ask(l, n); !d.Allowed {
				t.fail("locked for longer than a period and its wait, after %d jumps: %s", jumps, show(&d))
			}
			admitted = append(admitted, admission{real, n, jumps})
		}
	}
	burst, refill := burstOf(l)
	for i, first := range admitted {
		var sum int64
		for _, a := range admitted[i:] {
			if a.at >= first.at+period {
				break
			}
			sum += a.units
			if most := int64(a.jumps-first.jumps+1)*burst + refill; sum > most {
				t.fail("%s: admitted %d within a period and %d jumps, at most %d", l, sum, a.jumps-first.jumps, most)
			}
		}
	}
}

// burstOf is the most that a limit admits within a period.
func burstOf(l *stint.Limit) (burst, refill int64) {
	switch s := l.Spec(); s.Algorithm {
	case stint.TokenBucket, stint.LeakyBucket:
		m := termsOf(l)
		return m.capacity + 1 + ceil(m.rate), s.Amount // where ticks begin and end
	case stint.SlidingLog:
		return s.Amount, 0
	default:
		return 2 * s.Amount, 0
	}
}

// checkClocksOfBans lets the clock jump during a ban: it ends within twice its length.
func checkClocksOfBans(t testing.TB, e *env) {
	p := mustPenalty(stint.PenaltySpec{BanAfter: 1, BanFor: time.Minute})
	l := mustLimit(stint.Spec{Amount: 1, Period: time.Second})
	w := &world{store: e.open()}
	rapid.Check(t, func(rt *rapid.T) {
		t := w.trial(rt)
		t.now += 104 * week
		a := stint.Ask{Key: t.key, Limit: l, Penalty: p}
		t.take(t.now, a)
		if d, _ := t.take(t.now, a); d.BanLeft != time.Minute {
			t.fail("no ban: %s", show(&d))
		}
		banned := t.now
		back := rapid.SampledFrom([]int64{0, second, 60 * second, 60*second + 1, 3600 * second, 24 * 3600 * second, 52 * week}).Draw(t.T, "back")
		t.now -= back
		for range rapid.IntRange(0, 3).Draw(t.T, "looks") {
			t.now += rapid.Int64Range(0, 10*second).Draw(t.T, "wait")
			a.Peek, a.Cost = true, 0
			if d, _ := t.take(t.now, a); d.BanLeft > time.Minute || (d.BanLeft > 0) != (t.now < banned+60*second && t.now >= banned-60*second) {
				t.fail("a ban of a minute, %d µs from where it began: %s", t.now-banned, show(&d))
			}
		}
		if a.Peek = false; back > 60*second+30*second {
			t.to(max(t.now, banned-back+60*second))
			if d, _ := t.take(t.now, a); !d.Allowed {
				t.fail("a minute after a jump: %s", show(&d))
			}
			t.to(banned) // the clock comes to it again
		} else {
			t.to(max(t.now, banned+60*second))
		}
		if d, _ := t.take(t.now, a); !d.Allowed {
			t.fail("a ban of a minute that began %d µs ago, after a jump back by %d µs: %s", t.now-banned, back, show(&d))
		}
		t.world.high = max(t.world.high, banned+104*week)
	})
}
