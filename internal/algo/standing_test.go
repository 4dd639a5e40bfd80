package algo

import (
	"math/rand/v2"
	"testing"
)

// What is shown of a record is what the next violation is added to.
func TestStanding(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	forgotten := 0
	for range 100_000 {
		p := Penalty{Warn: 1, BanFor: 10, Forget: 1 + rng.Int64N(50), Growth: 2, MaxBan: 1000}
		r := Record{Last: rng.Int64N(100), Violations: rng.Int64N(9), Until: rng.Int64N(120), Bans: rng.Int64N(4), Forget: 1 + rng.Int64N(50)}
		now := rng.Int64N(250)
		violations, bans := p.Standing(&r, now)
		if violations < r.Violations || bans < r.Bans {
			forgotten++
		}
		if clean := r.Clean(); now >= clean && violations+bans > 0 {
			t.Fatalf("%+v was to be forgotten at %d: %d and %d count at %d under %+v", r, clean, violations, bans, now, p)
		}
		next := r
		p.violate(&next, now, 1)
		if next.Violations != violations+1 || next.Bans != bans {
			t.Fatalf("%+v at %d under %+v: shown %d and %d, then %+v", r, now, p, violations, bans, next)
		}
		p.Ban, next = violations+1, r
		if p.violate(&next, now, 1) != Banned || next.Bans != bans+1 || next.Until != max(now, r.Last)+p.term(bans) {
			t.Fatalf("%+v at %d under %+v: shown %d and %d, banned as %+v", r, now, p, violations, bans, next)
		}
	}
	if forgotten < 1000 {
		t.Errorf("only %d records had something to forget", forgotten)
	}
}

func TestReadRecord(t *testing.T) {
	good := "\x4f\xff\xff\xff\xff\xff\xfe" + "\x80\x00\x00\x00" + "\x00\x1f\xff\xff\xff\xff\xff\xfd" + "\x7f\xff\xff\xfc" + "\x0f\xff\xff\xff\xff\xff\xfb"
	want := Record{Last: 1<<52 - 2, Violations: 1 << 31, Until: 1<<53 - 3, Bans: 1<<31 - 4, Forget: 1<<52 - 5}
	if r, ok := ReadRecord(good); !ok || r != want {
		t.Errorf("%+v, %t, want %+v", r, ok, want)
	}
	for _, bad := range []string{"", good[1:], good + "x", "\x3f" + good[1:], "\x50" + good[1:]} {
		if _, ok := ReadRecord(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}
