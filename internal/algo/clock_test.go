package algo

import (
	"testing"
	"time"
)

const (
	sec  = int64(1_000_000)
	year = 365 * 24 * 3600 * sec
	noon = 20_000*86_400*sec + 12*3600*sec // the start of a window of every period here
)

// A clock jumps by so much after a key was exhausted. How long the key is locked
// then, by the clock that has jumped: 0, or its wait from the last charge on, which
// a clock waits for that is behind by no more than a period.
func TestClocks(t *testing.T) {
	const period = 60 * sec
	for _, l := range []struct {
		name string
		kind Kind
		wait int64 // of one more, just after the last charge
	}{
		{"token bucket", TokenBucket, period / 10},
		{"leaky bucket", LeakyBucket, period / 10},
		{"fixed window", FixedWindow, period},
		{"sliding log", SlidingLog, period},
		{"sliding window", SlidingWindow, period + period/100},
	} {
		for _, c := range []struct {
			name   string
			jump   int64
			locked bool // at once
			waits  int64
		}{
			{"no jump", 0, true, 0},
			{"back by a second", -sec, true, sec},
			{"back by a period", -period, true, period},
			{"back by a period and 1µs", -period - 1, false, 0},
			{"back by a year", -year, false, 0},
			{"forward by a second", sec, true, -sec},
			{"forward by two periods", 2 * period, false, 0},
			{"forward by a year", year, false, 0},
		} {
			t.Run(l.name+"/"+c.name, func(t *testing.T) {
				p, err := NewPlan(l.kind, 10, time.Minute, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				var s State
				ask := func(now, n int64) Verdict {
					v := p.Look(&s, now)
					return p.Settle(&s, &v, n, p.Fits(&v, n))
				}
				ask(noon, 10)
				now := noon + c.jump
				d := ask(now, 1)
				if d.Allowed == c.locked {
					t.Fatalf("just after the jump: %+v", d)
				}
				if c.locked {
					before := s.Last
					free := now + max(0, c.waits) + d.Retry
					if want := noon + l.wait; free > now+2*period+period/100 || l.kind != SlidingWindow && free != want {
						t.Errorf("free at %d, want %d", free-noon, want-noon)
					}
					if d := ask(free-1, 1); d.Allowed || s.Last != before {
						t.Errorf("just before its time: %+v", d)
					}
					if d := ask(free, 1); !d.Allowed {
						t.Errorf("when its time has come: %+v", d)
					}
					return
				}
				if d.Remaining != 9 || s.Last != now {
					t.Errorf("one of a fresh burst: %+v, charged at %d", d, s.Last-noon)
				}
				if d := ask(now, 9); !d.Allowed {
					t.Errorf("the rest of it: %+v", d)
				}
				if d := ask(now, 1); d.Allowed || d.Retry > period+period/100 {
					t.Errorf("one more than one burst: %+v", d)
				}
				if d := ask(now+2*period, 10); !d.Allowed {
					t.Errorf("two periods on: %+v", d)
				}
			})
		}
	}
}

// A refusal writes nothing, wherever the state lies: what is far ahead counts again
// for who comes back to it.
func TestFarAheadIsNotWritten(t *testing.T) {
	for kind := TokenBucket; kind <= SlidingWindow; kind++ {
		p, err := NewPlan(kind, 10, time.Minute, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var s State
		v := p.Look(&s, noon)
		p.Settle(&s, &v, 10, true)
		for _, n := range []int64{0, 1, 11} { // a peek, a refusal by another ask, by this one
			v := p.Look(&s, noon-year)
			if d := p.Settle(&s, &v, n, n == 0); d.Remaining != 10 || d.Reset != 0 || s.Last != noon {
				t.Errorf("%d: cost %d: %+v, %+v", kind, n, d, s)
			}
		}
		if p.Refund(&s, noon-year, 3) || s.Last != noon {
			t.Errorf("%d: units refunded to nothing: %+v", kind, s)
		}
		if v := p.Look(&s, noon); v.Used != p.Full {
			t.Errorf("%d: used %d at the instant of the charge", kind, v.Used)
		}
	}
}

// A ban outlasts a jump by no more than its own length, and one that a fresh
// violation brings always runs.
func TestClocksOfBans(t *testing.T) {
	p, err := NewPenalty(1, 2, time.Minute, time.Hour, 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		jump int64
		left int64
		bans int64 // that count for the next
	}{
		{"back by a second", -sec, 60 * sec, 1},
		{"back by its length", -60 * sec, 60 * sec, 1},
		{"back by more", -60*sec - 1, 0, 0},
		{"back by a year", -year, 0, 0},
		{"forward by a second", sec, 59 * sec, 1},
		{"forward by its length", 60 * sec, 0, 1},
		{"forward by a year", year, 0, 0},
	} {
		var r Record
		p.violate(&r, noon, 1)
		if p.violate(&r, noon, 1) != Banned {
			t.Fatal("no ban")
		}
		now := noon + c.jump
		if left := p.BanLeft(&r, now); left != c.left {
			t.Errorf("%s: %d left, want %d", c.name, left, c.left)
		}
		if _, bans := p.Standing(&r, now); bans != c.bans {
			t.Errorf("%s: %d bans, want %d", c.name, bans, c.bans)
		}
	}
	// Violations half an hour ahead still count; the ban begins now.
	var r Record
	p.violate(&r, noon, 1)
	if now := noon - 1800*sec; p.violate(&r, now, 1) != Banned || r.Last != now || p.BanLeft(&r, now) != 60*sec || p.BanLeft(&r, now+60*sec) != 0 {
		t.Errorf("banned half an hour behind its violations: %+v", r)
	}
	// Those further ahead than they are remembered do not.
	r = Record{}
	p.violate(&r, noon, 1)
	if now := noon - 3600*sec - 1; p.violate(&r, now, 1) != Warned || r != (Record{Last: now, Violations: 1, Forget: 3600 * sec}) {
		t.Errorf("a violation in an hour's future: %+v", r)
	}
}
