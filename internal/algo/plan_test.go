package algo

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestNewPlan(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		kind           Kind
		amount         int64
		period         time.Duration
		burst, buckets int64
		want           string // part of the error; "": none
	}{
		{TokenBucket, 1, time.Millisecond, 0, 0, ""},
		{TokenBucket, 0, time.Second, 0, 0, "amount 0: must be at least 1"},
		{TokenBucket, -5, time.Second, 0, 0, "amount -5: must be at least 1"},
		{FixedWindow, Exact, time.Second, 0, 0, "amount 4503599627370496: too large"},
		{FixedWindow, Exact - 1, time.Second, 0, 0, ""},
		{TokenBucket, 1, 999 * time.Microsecond, 0, 0, "period 999µs: must be at least 1ms"},
		{TokenBucket, 1, -time.Second, 0, 0, "period -1s: must be at least 1ms"},
		{TokenBucket, 1, 1500*time.Microsecond + 1, 0, 0, "must be a whole number of microseconds"},
		{FixedWindow, 1, 100 * 365 * day, 0, 0, "at most 71 years"},
		{TokenBucket, 1, time.Second, -1, 0, "burst -1: must be at least 1"},
		{FixedWindow, 1, time.Second, 5, 0, "burst 5: only token_bucket and leaky_bucket"},
		{SlidingWindow, 1, time.Second, 0, -1, "buckets -1: must be from 1 to 1000"},
		{SlidingWindow, 1, time.Second, 0, 1001, "buckets 1001: must be from 1 to 1000"},
		{SlidingLog, 1, time.Second, 0, 5, "buckets 5: only sliding_window"},
		{SlidingWindow, 1, time.Second, 0, 7, "buckets 7: do not divide the period 1s"},
		{SlidingWindow, 1, 1001 * time.Microsecond, 0, 0, "buckets 10: do not divide the period 1.001ms"},
		{TokenBucket, 999983, day, 0, 0, ""}, // in ticks of 1 ms
		{TokenBucket, 999983, day, 1 << 40, 0, "too large for exact arithmetic"},
		{TokenBucket, 999983, day + time.Microsecond, 0, 0, "too large for exact arithmetic"},
		{TokenBucket, math.MaxInt64, day, 0, 0, "too large for exact arithmetic"},
		{TokenBucket, 1, time.Second, math.MaxInt64, 0, "burst 9223372036854775807: too large"},
		{SlidingWindow, 1e9, day, 0, 1, "too large for exact arithmetic"},
		{SlidingWindow, 1e6, day, 0, 1, ""}, // in ticks of 1 ms
		{9, 1, time.Second, 0, 0, "unknown algorithm 9"},
	} {
		p, err := NewPlan(c.kind, c.amount, c.period, c.burst, c.buckets)
		if c.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			} else if p.Full >= Exact || p.Tick != 1 && p.Tick != 1000 {
				t.Errorf("%+v: inexact plan %+v", c, p)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c, err, c.want)
		}
	}
}

func TestMulDivUp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	wide := func() int64 { return r.Int64N(Exact) >> r.IntN(52) }
	for range 100_000 {
		a, b, c := wide(), wide(), wide()+1
		q, rem := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c), new(big.Int))
		if rem.Sign() > 0 {
			q.Add(q, big.NewInt(1))
		}
		want := int64(Exact)
		if q.Cmp(big.NewInt(Exact)) < 0 {
			want = q.Int64()
		}
		if got := mulDivUp(a, b, c); got != want {
			t.Fatalf("⌈%d·%d/%d⌉ = %d, want %d", a, b, c, got, want)
		}
	}
}

// No time idle overflows: a bucket left alone for as long as instants go is empty.
func TestLongIdle(t *testing.T) {
	for _, amount := range []int64{1, 1e6, 1e12} {
		p, err := NewPlan(TokenBucket, amount, time.Second, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		var s State
		v := p.Look(&s, 0)
		p.Settle(&s, &v, amount, true)
		if v := p.Look(&s, Exact-1); v.Used != 0 {
			t.Errorf("amount %d: %d in use after 142 years", amount, v.Used)
		}
	}
}

func TestNewPenalty(t *testing.T) {
	for _, c := range []struct {
		warn, ban      int64
		banFor, forget time.Duration
		growth         int64
		maxBan         time.Duration
		want           string
	}{
		{3, 5, time.Minute, time.Hour, 2, time.Hour, ""},
		{3, 0, 0, 0, 0, 0, ""},
		{0, 1, time.Minute, 0, 0, 0, ""},
		{0, 0, 0, 0, 0, 0, "it neither warns nor bans"},
		{-1, 5, time.Minute, 0, 0, 0, "warn after -1"},
		{0, 1 << 40, time.Minute, 0, 0, 0, "ban after 1099511627776"},
		{0, 5, 0, 0, 0, 0, "ban after 5: set ban for, the length of the first ban, such as 15m"},
		{3, 0, time.Minute, 0, 0, 0, ""}, // the ban is switched off
		{3, 0, -time.Minute, 0, 0, 0, "ban for -1m0s: must not be negative"},
		{0, 5, time.Minute, -time.Second, 0, 0, "forget after -1s"},
		{0, 5, time.Minute, 0, -2, 0, "growth -2"},
		{0, 5, time.Hour, 0, 2, time.Minute, "max ban 1m0s: must be from ban for (1h0m0s)"},
		{0, 5, time.Hour, 0, 2, math.MaxInt64, "max ban"},
	} {
		_, err := NewPenalty(c.warn, c.ban, c.banFor, c.forget, c.growth, c.maxBan)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: error %v, want %q", c, err, c.want)
		}
	}
}

// A ban that grows stops at the longest, however many came before it.
func TestBanGrowth(t *testing.T) {
	p, err := NewPenalty(0, 1, time.Minute, time.Hour, 3, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var r Record
	now := int64(1e15)
	for i, want := range []time.Duration{time.Minute, 3 * time.Minute, 9 * time.Minute, 27 * time.Minute, time.Hour, time.Hour} {
		if s := p.violate(&r, now, 1); s != Banned {
			t.Fatalf("violation %d: sentence %d", i, s)
		}
		if left := Duration(p.BanLeft(&r, now)); left != want {
			t.Errorf("ban %d: %s, want %s", i, left, want)
		}
		now = r.Until
	}
	r.Bans = 1 << 31
	if term := p.term(r.Bans); term != p.MaxBan {
		t.Errorf("after 2^31 bans: %d", term)
	}
}
