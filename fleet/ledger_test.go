package fleet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/attack"
)

// outage is a Fallback whose store refuses everything while it is away, so that nothing
// is in doubt, beside a store that is never away and is charged with all that is
// admitted.
type outage struct {
	*stint.Limiter
	fall   *fleet.Fallback
	store  *refusing
	truth  *stint.Limiter
	closed func() // at the very instant
	turned chan fleet.BreakerState
}

func newOutage(t *testing.T, instances int) *outage {
	o := &outage{store: &refusing{Memory: new(stint.Memory)}, truth: stint.NewLimiter(new(stint.Memory)), turned: make(chan fleet.BreakerState, 3)}
	o.fall = &fleet.Fallback{Store: o.store, Instances: instances}
	o.fall.Breaker.Changed = func(to fleet.BreakerState, _ error) {
		if to == fleet.Closed && o.closed != nil {
			o.closed()
		}
		o.turned <- to
	}
	o.Limiter = stint.NewLimiter(o.fall)
	t.Cleanup(o.fall.Close)
	return o
}

// ask asks for n units, and charges the truth with what is admitted.
func (o *outage) ask(t *testing.T, key string, l *stint.Limit, n int64) (allowed bool) {
	t.Helper()
	d, err := o.AllowN(t.Context(), key, l, n)
	if err != nil {
		t.Fatal(err)
	}
	if d.Allowed {
		if d, err := o.truth.AllowN(t.Context(), key, l, n); err != nil || !d.Allowed {
			t.Fatalf("%s: more was admitted than the limit allows: %+v, %v", l, d, err)
		}
	}
	return d.Allowed
}

func (o *outage) goes(t *testing.T) {
	t.Helper()
	o.store.away.Store(true)
	for range 5 {
		if _, err := o.Allow(t.Context(), "opener", stint.MustLimit("100 per 1h")); err != nil {
			t.Fatal(err)
		}
	}
	if to := <-o.turned; to != fleet.Open {
		t.Fatal(to)
	}
}

// comes ends the outage, and returns a millisecond after the breaker has closed.
func (o *outage) comes(t *testing.T) {
	t.Helper()
	o.store.away.Store(false)
	for <-o.turned != fleet.Closed {
	}
	time.Sleep(time.Millisecond)
	synctest.Wait()
}

func used(t *testing.T, l *stint.Limiter, key string, limit *stint.Limit) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), key, limit)
	if err != nil {
		t.Fatal(err)
	}
	return limit.Capacity() - d.Remaining
}

// A bucket with a burst above its amount takes longer than a period to run dry.
func TestLedgerOfBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, l := newOutage(t, 1), stint.MustLimit("1 per 1s burst 100")
		admitted := 0
		spend := func() {
			for o.ask(t, "k", l, 1) {
				admitted++
			}
		}
		began := time.Now()
		spend()
		time.Sleep(10 * time.Second) // 10 come back
		o.goes(t)
		spend()
		time.Sleep(2 * time.Second)
		o.comes(t)
		spend()
		if most := 100 + int(time.Since(began)/time.Second); admitted > most {
			t.Errorf("%d were admitted in %s, want %d", admitted, time.Since(began), most)
		}
	})
}

// Who stays at half of a limit is not refused when the store is back, however long it
// was away.
func TestLedgerOfHalfRate(t *testing.T) {
	for _, text := range []string{"10 per 1m", "10 per 1m leaky_bucket", "10 per 1m fixed_window", "10 per 1m sliding_log", "10 per 1m sliding_window"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, l := newOutage(t, 1), stint.MustLimit(text)
				for i := range 100 {
					switch i {
					case 10:
						o.goes(t)
					case 60:
						o.comes(t)
					}
					if !o.ask(t, "k", l, 1) {
						t.Errorf("refused at %d of 100", i)
					}
					time.Sleep(12 * time.Second)
				}
			})
		})
	}
}

// What a store holds after an outage is what it would hold had it never been away: no
// unit more, and none less but for what is said of each algorithm.
func TestLedgerIsTrue(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	random := rand.New(rand.NewPCG(attack.Seed(t), 0))
	for _, c := range []struct {
		text  string
		whole time.Duration // what is no older than this is charged in full
	}{
		{"1 per 1s burst 100", 0},
		{"7 per 3s", 0},
		{"30 per 1m burst 5", 0},
		{"100 per 168h burst 20000", 0}, // in ticks of 1 ms
		{"20 per 7s leaky_bucket", 0},
		{"20 per 7s fixed_window", 0},
		{"20 per day in America/Havana", 0},
		{"20 per month in Europe/Berlin starts 31", 0},
		{"20 per 10s sliding_window", 9 * time.Second},
		{"1 per 1s sliding_window", 900 * time.Millisecond},
		{"20 per 12s sliding_window buckets 60", 12*time.Second - 4*200*time.Millisecond},
		{"20 per 7s sliding_log", 7 * time.Second * 15 / 16},
	} {
		t.Run(c.text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := stint.MustLimit(c.text)
				o := newOutage(t, 1)
				period := l.Spec().Period
				if c := l.Spec().Calendar; c.Unit != 0 {
					period = map[stint.CalendarUnit]time.Duration{stint.Day: 24 * time.Hour, stint.Month: 30 * 24 * time.Hour}[c.Unit]
				}
				wait := period / 20 // not a probe each 5 s for weeks
				o.fall.Breaker.Wait, o.fall.Breaker.MaxWait = wait, wait
				for round := range rounds {
					key := fmt.Sprint("k", round)
					type spending struct {
						at    time.Time
						units int64
					}
					var spent []spending // without the store
					away := false
					step := period / time.Duration(1+random.IntN(20))
					spend := func(n int) {
						for range n {
							time.Sleep(time.Duration(random.Int64N(step.Microseconds())) * time.Microsecond) // memories made in between tell the same time
							cost := 1 + random.Int64N(1+l.Capacity()/4)
							if o.ask(t, key, l, cost) && away {
								spent = append(spent, spending{time.Now(), cost})
							}
						}
					}
					spend(random.IntN(20))
					o.goes(t)
					away = true
					spend(random.IntN(40))
					var most int64
					o.closed = func() { most = used(t, o.truth, key, l) }
					o.comes(t)
					o.closed = nil
					have, least := used(t, stint.NewLimiter(o.store.Memory), key, l), used(t, o.truth, key, l)
					if c.whole > 0 {
						least = 0
						for _, s := range spent {
							if time.Since(s.at) < c.whole-time.Millisecond {
								least += s.units
							}
						}
					}
					if have > most || have < least {
						t.Fatalf("round %d: the store holds %d, want from %d to %d", round, have, least, most)
					}
				}
			})
		})
	}
}

// What is owed of ten thousand keys takes a while to be charged. Meanwhile the store
// decides, about each key as if that had been charged, and nobody waits for other keys.
func TestLedgerIsKnownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, takes = 10_000, 5 * time.Millisecond
		o, l := newOutage(t, 1), stint.MustLimit("3 per 24h sliding_log")
		store := &busy{refusing: o.store, takes: takes}
		o.fall.Store = store
		o.goes(t)
		for i := range keys {
			for n := range 4 {
				if o.ask(t, fmt.Sprint(i), l, 1) != (n < 3) {
					t.Fatalf("%d of 3 by this instance", n)
				}
			}
		}
		o.store.away.Store(false)
		for <-o.turned != fleet.Closed {
		}
		for range 100 {
			asked := time.Now()
			d, err := o.Allow(t.Context(), fmt.Sprint(rand.N(keys)), l)
			if took := time.Since(asked); err != nil || d.Allowed || d.By != stint.ByStore || took > 4*takes {
				t.Fatalf("%+v by %s after %s, %v", d, d.By, took, err)
			}
		}
		if n := store.lists.Load(); n == 0 || n > keys/64 {
			t.Errorf("meanwhile %d lists were charged", n)
		}
		time.Sleep(2 * keys / 64 * takes)
		for i := range keys {
			if n := used(t, stint.NewLimiter(o.store.Memory), fmt.Sprint(i), l); n != 3 {
				t.Fatalf("of key %d the store holds %d", i, n)
			}
		}
	})
}

// busy is a store that takes its time for each call.
type busy struct {
	*refusing
	takes time.Duration
	lists atomic.Int64
}

func (b *busy) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	time.Sleep(b.takes)
	return b.refusing.Take(ctx, r, out)
}

func (b *busy) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	time.Sleep(b.takes)
	b.lists.Add(1)
	for i := range rs {
		answers[i].Decision, answers[i].Err = b.refusing.Take(ctx, &rs[i], answers[i].Each)
	}
}

// What is owed takes bounded memory, however long the keys are, and makes room when
// nothing of it is in use any more.
func TestLedgerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t, 1)
		o.fall.Local = &stint.Memory{MaxKeys: 1 << 21}
		minute, hour := stint.MustLimit("5 per 1m fixed_window"), stint.MustLimit("5 per 1h fixed_window")
		o.goes(t)
		long := strings.Repeat("k", stint.MaxKey-10)
		count := func(l *stint.Limit, keys int) (charged int) {
			for i := range keys {
				if used(t, stint.NewLimiter(o.store.Memory), fmt.Sprint(long, i), l) > 0 {
					charged++
				}
			}
			return charged
		}
		spend := func(l *stint.Limit, keys int) {
			for i := range keys {
				if _, err := o.Allow(t.Context(), fmt.Sprint(long, i), l); err != nil {
					t.Fatal(err)
				}
			}
		}
		spend(minute, 10_000)
		time.Sleep(2 * time.Minute)
		spend(hour, 10_000)
		o.comes(t)
		time.Sleep(time.Second)
		if n, most := count(hour, 10_000), 32<<20/stint.MaxKey; n > most || n < most*9/10-1000 {
			t.Errorf("%d keys of %d bytes were owed, want up to %d", n, len(long), most)
		}
	})
}

// Instances that share a limit, and are asked in turn, together owe what is in use: each
// counts its own, which runs out by its share.
func TestLedgerOfFleet(t *testing.T) {
	const live = 3
	for _, text := range []string{"90 per 1m", "1 per 1s burst 90", "90 per 1m leaky_bucket", "90 per 1m fixed_window", "90 per 1m sliding_log", "90 per 1m sliding_window"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := stint.MustLimit(text)
				truth := stint.NewLimiter(new(stint.Memory))
				store := &refusing{Memory: new(stint.Memory)}
				var outages []*outage
				for range live {
					o := newOutage(t, live)
					o.store, o.truth, o.fall.Store = store, truth, store
					o.fall.Breaker.MaxWait = 100 * time.Millisecond // they come back together
					outages = append(outages, o)
				}
				spend := func(n int) {
					for range n {
						for _, o := range outages {
							o.ask(t, "k", l, 1)
						}
						time.Sleep(100 * time.Millisecond)
					}
				}
				spend(10)
				for _, o := range outages {
					o.goes(t)
				}
				spend(700)
				var most int64
				outages[live-1].closed = func() { most = used(t, truth, "k", l) }
				for _, o := range outages {
					o.comes(t)
				}
				// Each charges up to a unit too much of a bucket, and a unit is in use
				// here for a little longer than there.
				have := used(t, stint.NewLimiter(store.Memory), "k", l)
				if least := most*15/16 - 1; have > most+live || have < least {
					t.Errorf("the store holds %d, want from %d to %d", have, least, most+live)
				}
				if most < 30 {
					t.Errorf("only %d are in use", most)
				}
			})
		})
	}
}
