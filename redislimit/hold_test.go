package redislimit_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// Redis keeps holds as Memory does, step by step: few of them, and many, with instants that step back and
// with those of a clock that does not. By such a clock, most of many holds run out, one after another.
func TestHoldTwins(t *testing.T) {
	server := redistest.Start(t)
	steps := 60_000
	if testing.Short() {
		steps = 3_000
	}
	for _, c := range []struct {
		name   string
		limits []string
		ends   int // of so many steps, one is a request
		clock  bool
	}{
		{"few", []string{
			"a: 20 per 1s hold 300ms retry 70ms", "b: 40 per 2s fixed_window hold 1s debt 5", "c: 15 per 1s sliding_log hold 200ms",
			"d: 30 per 1s sliding_window hold 400ms debt 0", "e: 4 in_flight hold 250ms", "f: 9 per 500ms", "g: 12 per 700ms sliding_log",
			"h: 3 in_flight hold 1s retry 10ms", "i: 100 per 3s burst 7 hold 2s",
		}, 2, false},
		{"many", []string{"a: 3000 per 10s fixed_window hold 5s debt 20", "b: 600 in_flight hold 3s", "c: 3000 per 10s sliding_log hold 4s"}, 8, false},
		{"many-clock", []string{"a: 3000 per 10s fixed_window hold 5s debt 20", "b: 900 in_flight hold 3s", "c: 3000 per 10s sliding_log hold 4s"}, 8, true},
		{"few-clock", []string{"a: 20 per 1s hold 300ms retry 70ms", "b: 300 in_flight hold 250ms", "c: 400 per 1s sliding_window hold 400ms debt 0"}, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.clock {
				defer redislimit.ClockOfInstants()()
			}
			w := holdWalk{clock: c.clock, redis: open(t, server.URL()+"?namespace="+c.name), memory: new(stint.Memory), steps: steps, seen: map[string]int{}, released: map[stint.HoldID][]int64{}}
			for _, text := range c.limits {
				w.limits = append(w.limits, stint.MustLimit(text))
			}
			w.walk(t, c.ends)
			t.Log(w.seen, w.most)
			for _, what := range []string{"held", "busy", "settled", "unknown", "renewed", "made again", "released", "charged less"} {
				if w.seen[what] < steps/2000 {
					t.Errorf("%s: only %d", what, w.seen[what])
				}
			}
			if most := map[string]int{"few": 15, "many": 400, "many-clock": 800, "few-clock": 100}[c.name]; w.most < int64(most) {
				t.Errorf("at most %d units were held", w.most)
			}
		})
	}
}

type holdWalk struct {
	redis, memory interface {
		stint.Store
		stint.Holder
	}
	limits []*stint.Limit
	clock  bool // its instants do not step back
	steps  int
	now    int64
	last   int64 // the latest of its instants
	n      uint64
	made   []stint.Request // which hold, the newest last
	seen   map[string]int
	most   int64

	released map[stint.HoldID][]int64 // when that may be forgotten
}

func (w *holdWalk) walk(t *testing.T, calls int) {
	seed := attack.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	w.now = 1_700_000_000_000_000
	if w.clock {
		w.now = 4_000_000_000_000_000 // nothing expires by the server's own clock
	}
	w.last = w.now
	for step := range w.steps {
		switch {
		case !w.clock && rng.IntN(40) == 0:
			w.now = w.last - rng.Int64N(400_000) // a record that ran out is kept for a second
		case rng.IntN(200) == 0 && (!w.clock || rng.IntN(40) == 0):
			w.now += rng.Int64N(10_000_000)
		case rng.IntN(3) > 0:
			w.now += rng.Int64N(30_000) / int64(calls)
		}
		w.last = max(w.last, w.now)
		if rng.IntN(calls+1) > 0 || len(w.made) == 0 {
			w.take(t, seed, step, w.request(rng))
		} else {
			w.call(t, seed, step, w.calls(rng))
		}
		if t.Failed() {
			return
		}
	}
}

func (w *holdWalk) request(rng *rand.Rand) stint.Request {
	r := stint.Request{At: time.UnixMicro(w.now)}
	if rng.IntN(4) > 0 {
		w.n++
		binary.BigEndian.PutUint64(r.Hold[4:], w.n*0x9e3779b97f4a7c15)
		binary.BigEndian.PutUint32(r.Hold[:], uint32(rng.IntN(3)))
		if rng.IntN(8) == 0 {
			r.HoldFor = time.Duration(1+rng.IntN(900)) * time.Millisecond
		}
	}
	key := fmt.Sprint("k", rng.IntN(3))
	for _, i := range rng.Perm(len(w.limits))[:1+rng.IntN(min(3, len(w.limits)))] {
		cost := rng.Int64N(5)
		if rng.IntN(9) == 0 {
			cost = rng.Int64N(w.limits[i].Capacity() + 2)
		}
		r.Asks = append(r.Asks, stint.Ask{Key: key, Limit: w.limits[i], Cost: cost, Peek: cost == 0})
	}
	if r.Hold != (stint.HoldID{}) {
		w.made = append(w.made, r)
	}
	return r
}

func (w *holdWalk) take(t *testing.T, seed uint64, step int, r stint.Request) {
	got, want := make([]stint.Decision, len(r.Asks)), make([]stint.Decision, len(r.Asks))
	d, err := w.redis.Take(t.Context(), &r, got)
	e, err2 := w.memory.Take(t.Context(), &r, want)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if d != e || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("seed %d, step %d: %+v:\n got %+v\nwant %+v", seed, step, r, got, want)
	}
	for i := range got {
		w.most = max(w.most, got[i].Held)
		if got[i].Busy {
			w.seen["busy"]++
		}
	}
	if d.Allowed && r.Hold != (stint.HoldID{}) {
		w.seen["held"]++
	}
}

func (w *holdWalk) calls(rng *rand.Rand) []stint.HoldCall {
	var calls []stint.HoldCall
	for range 1 + rng.IntN(12) {
		r := &w.made[len(w.made)-1-min(rng.IntN(len(w.made)), rng.IntN(1<<rng.IntN(11)))]
		a := r.Asks[rng.IntN(len(r.Asks))]
		c := stint.HoldCall{Action: stint.HoldAction(rng.IntN(4)), Key: a.Key, Limit: a.Limit, Hold: r.Hold, Units: a.Units(), For: r.HoldFor, Cost: rng.Int64N(9), Again: rng.IntN(3) == 0}
		if rng.IntN(20) == 0 {
			c.Cost = rng.Int64N(1 << 40)
		}
		if !a.Limit.IsHeld() {
			c.Action = stint.HoldCharge
		} else if c.Action == stint.HoldCharge && a.Limit.Spec().Algorithm == stint.InFlight {
			c.Action = stint.HoldSettle
		} else if c.Action == stint.HoldRelease && rng.IntN(3) > 0 {
			c.Action = stint.HoldSettle
		}
		if c.Again = c.Again && !w.mayBeDropped(c.Hold); c.Action == stint.HoldRenew && w.mayBeDropped(c.Hold) {
			c.Action = stint.HoldSettle
		}
		if c.Action == stint.HoldRelease {
			lasts := c.For
			if lasts == 0 {
				lasts = c.Limit.Spec().Hold
			}
			w.released[c.Hold] = append(w.released[c.Hold], w.now+2*lasts.Microseconds()+1_000_000)
		}
		calls = append(calls, c)
	}
	return calls
}

// mayBeDropped tells whether a store may or may not remember that a hold was released. Where the
// instants are those of requests, it may forget it a second after that has run out; an earlier instant
// may follow. By a clock, where instants end as they come, the second is not waited for.
func (w *holdWalk) mayBeDropped(id stint.HoldID) bool {
	if w.clock {
		return len(w.released[id]) > 0
	}
	return slices.ContainsFunc(w.released[id], func(end int64) bool { return end <= w.last && w.now < end })
}

func (w *holdWalk) call(t *testing.T, seed uint64, step int, calls []stint.HoldCall) {
	want := append([]stint.HoldCall(nil), calls...)
	w.redis.Holds(t.Context(), time.UnixMicro(w.now), calls)
	w.memory.Holds(context.Background(), time.UnixMicro(w.now), want)
	for i := range calls {
		c := &calls[i]
		if *c != want[i] || c.Err != nil {
			t.Fatalf("seed %d, step %d, call %d of %d, under %s:\n got %+v\nwant %+v", seed, step, i, len(calls), c.Limit, *c, want[i])
		}
		switch {
		case c.Action == stint.HoldCharge && c.Charged < c.Cost:
			w.seen["charged less"]++
		case c.Action == stint.HoldSettle && c.Found:
			w.seen["settled"]++
		case c.Action == stint.HoldSettle:
			w.seen["unknown"]++
		case c.Action == stint.HoldRelease && c.Found:
			w.seen["released"]++
		case c.Action == stint.HoldRenew && c.Found:
			w.seen["renewed"]++
		case c.Action == stint.HoldRenew && c.Again && c.Held > 0:
			w.seen["made again"]++
		}
	}
}
