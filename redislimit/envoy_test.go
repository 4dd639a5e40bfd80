package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// envoyNames counts limits whose names begin with "envoy" in Envoy's keys: as domain_KEY_, and what
// follows in the name.
func envoyNames(l *stint.Limit, key string) (string, bool) {
	rest, ok := strings.CutPrefix(l.Spec().Name, "envoy")
	return "domain_" + key + "_" + rest, ok
}

func openEnvoy(t testing.TB, address string, keys redislimit.EnvoyKeys) *redislimit.Store {
	t.Helper()
	keys.Name = envoyNames
	s, err := redislimit.Connect(context.Background(), address, redislimit.Options{Envoy: &keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// oldInstance counts as an instance of envoyproxy/ratelimit: INCRBY and EXPIRE in a pipeline,
// whatever comes of it.
type oldInstance struct {
	client rueidis.Client
	prefix string
}

func newOldInstance(t testing.TB, prefix string, addresses ...string) *oldInstance {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addresses, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &oldInstance{c, prefix}
}

func (o *oldInstance) key(name string, period time.Duration, at time.Time) string {
	seconds := int64(period / time.Second)
	return o.prefix + name + strconv.FormatInt(at.Unix()/seconds*seconds, 10)
}

// take counts units and returns what stands after them.
func (o *oldInstance) take(t testing.TB, name string, period time.Duration, units int64, at time.Time) int64 {
	t.Helper()
	key, seconds := o.key(name, period, at), int64(period/time.Second)
	b := o.client.B()
	replies := o.client.DoMulti(context.Background(),
		b.Incrby().Key(key).Increment(units).Build(),
		b.Expire().Key(key).Seconds(seconds+rand.Int64N(300)).Build())
	after, err := replies[0].AsInt64()
	if err != nil || replies[1].Error() != nil {
		t.Fatal(err, replies[1].Error())
	}
	return after
}

func (o *oldInstance) count(t testing.TB, key string) int64 {
	t.Helper()
	n, err := o.client.Do(context.Background(), o.client.B().Get().Key(key).Build()).AsInt64()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Fatal(err)
	}
	return n
}

func (o *oldInstance) lives(t testing.TB, key string) int64 {
	t.Helper()
	n, err := o.client.Do(context.Background(), o.client.B().Ttl().Key(key).Build()).AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// One count, two kinds of instances: what one takes, the other finds. A refused request leaves no
// trace here, and one that another instance has charged counts.
func TestEnvoyKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openEnvoy(t, "redis://"+server.Addr, redislimit.EnvoyKeys{Prefix: "pre:", JitterMax: 300 * time.Second})
	old := newOldInstance(t, "pre:", server.Addr)
	limiter, limit := stint.NewLimiter(s), stint.MustLimit("envoy: 10 per 1h fixed_window")
	at := time.Unix(1795225537, 0)
	key := "pre:domain_k_zero_1795222800"
	take := func(cost int64) stint.Decision {
		t.Helper()
		ask := stint.Ask{Key: "k_zero", Limit: limit, Cost: cost, Peek: cost == 0}
		d, err := limiter.Take(t.Context(), &stint.Request{Asks: []stint.Ask{ask}, At: at}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	end := time.Unix(1795226400, 0).Sub(at)
	if d := take(3); !d.Allowed || d.Remaining != 7 || d.ResetAfter != end || d.RetryAfter != 0 {
		t.Errorf("first: %+v", d)
	}
	if n, ttl := old.count(t, key), old.lives(t, key); n != 3 || ttl < 3599 || ttl >= 3900 {
		t.Errorf("%s is %d for %d s", key, n, ttl)
	}
	if after := old.take(t, "domain_k_zero_", time.Hour, 4, at); after != 7 {
		t.Errorf("the old instance finds %d", after)
	}
	if d := take(4); d.Allowed || d.Remaining != 3 || d.RetryAfter != end {
		t.Errorf("refused: %+v", d)
	}
	if d := take(11); d.Allowed || d.RetryAfter != stint.Never {
		t.Errorf("never: %+v", d)
	}
	if n := old.count(t, key); n != 7 {
		t.Errorf("after refusals: %d", n)
	}
	if d := take(3); !d.Allowed || d.Remaining != 0 {
		t.Errorf("last: %+v", d)
	}
	if d := take(0); !d.Allowed || d.Remaining != 0 {
		t.Errorf("a peek at the limit: %+v", d)
	}
	old.take(t, "domain_k_zero_", time.Hour, 5, at) // it refuses, and has charged
	if d := take(0); d.Allowed || d.Remaining != 0 || d.RetryAfter != end {
		t.Errorf("a peek above the limit: %+v", d)
	}
	// Giving back takes from what both have.
	request := &stint.Request{At: at, Asks: []stint.Ask{{Key: "k_zero", Limit: limit, Cost: 6}}}
	if err := s.Refund(t.Context(), request); err != nil || old.count(t, key) != 9 {
		t.Errorf("refunded: %v, %d", err, old.count(t, key))
	}
	request.Asks[0].Cost = 100
	if err := s.Refund(t.Context(), request); err != nil || old.count(t, key) != 0 {
		t.Errorf("refunded: %v, %d", err, old.count(t, key))
	}
	// What was used before it was asked for is charged whole, as they do.
	calls := []stint.HoldCall{{Action: stint.HoldCharge, Key: "k_zero", Limit: limit, Cost: 25}}
	if s.Holds(t.Context(), at, calls); calls[0].Err != nil || calls[0].Charged != 25 || calls[0].Remaining != 0 || calls[0].ResetAfter != end || old.count(t, key) != 25 {
		t.Errorf("charged: %+v, %d", calls[0], old.count(t, key))
	}
	bounded, err := stint.NewLimit(stint.Spec{Name: "envoy", Algorithm: stint.FixedWindow, Amount: 10, Period: time.Hour, Debt: 20})
	if err != nil {
		t.Fatal(err)
	}
	calls[0].Limit = bounded
	if s.Holds(t.Context(), at, calls); calls[0].Err != nil || calls[0].Charged != 5 || old.count(t, key) != 30 {
		t.Errorf("charged up to a debt: %+v, %d", calls[0], old.count(t, key))
	}
	if err := s.Reset(t.Context(), request); err != nil || old.count(t, key) != 0 {
		t.Errorf("reset: %v, %d", err, old.count(t, key))
	}
	if d := take(10); !d.Allowed {
		t.Errorf("after a reset: %+v", d)
	}
	// The next window is another key.
	at = at.Add(end)
	if d := take(10); !d.Allowed || old.count(t, "pre:domain_k_zero_1795226400") != 10 {
		t.Errorf("the next window: %+v", d)
	}
}

// A count whose EXPIRE was lost expires after the next charge, and a value that is no count is
// named, not overwritten.
func TestEnvoyKeysOfOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, old := openEnvoy(t, "redis://"+server.Addr, redislimit.EnvoyKeys{}), newOldInstance(t, "", server.Addr)
	limiter, limit := stint.NewLimiter(s), stint.MustLimit("envoy: 10 per 24h fixed_window")
	do := func(args ...string) {
		t.Helper()
		if err := old.client.Do(t.Context(), old.client.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now()
	key := old.key("domain_k_", 24*time.Hour, at)
	do("SET", key, "4")
	if d, err := limiter.Allow(t.Context(), "k", limit); err != nil || d.Remaining != 5 || old.lives(t, key) < 86399 {
		t.Errorf("%+v, %v, lives %d", d, err, old.lives(t, key))
	}
	stored, err := s.Inspect(t.Context(), "k", []*stint.Limit{limit, stint.MustLimit("own: 1 per 1m")})
	if err != nil || !stored[0].Held || stored[0].Expires < 23*time.Hour || stored[1].Held {
		t.Errorf("inspected: %+v, %v", stored, err)
	}
	for _, write := range [][]string{{"SET", key, "x"}, {"LPUSH", key, "1"}, {"SET", key, "-4"}} {
		do("DEL", key)
		do(write...)
		if _, err := limiter.Allow(t.Context(), "k", limit); !errors.Is(err, fleet.ErrBroken) {
			t.Errorf("%v: %v", write, err)
		}
	}
}

// Under both kinds of limits, a request is all or nothing, and penalties count refusals by either.
func TestEnvoyKeysMixed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, old := openEnvoy(t, "redis://"+server.Addr, redislimit.EnvoyKeys{}), newOldInstance(t, "", server.Addr)
	limiter := stint.NewLimiter(s)
	penalty, err := stint.NewPenalty(stint.PenaltySpec{Name: "p", BanAfter: 2, BanFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	theirs, own := stint.MustLimit("envoy: 3 per 24h fixed_window"), stint.MustLimit("own: 2 per 24h sliding_log")
	key := old.key("domain_k_", 24*time.Hour, time.Now())
	take := func(asks ...stint.Ask) ([]stint.Decision, stint.Decision) {
		t.Helper()
		each := make([]stint.Decision, len(asks))
		d, err := limiter.Take(t.Context(), &stint.Request{Asks: asks}, each)
		if err != nil {
			t.Fatal(err)
		}
		return each, d
	}
	both := []stint.Ask{{Key: "k", Limit: own}, {Key: "k", Limit: theirs}}
	each, d := take(both...)
	if !d.Allowed || each[0].Remaining != 1 || each[1].Remaining != 2 || each[0].Limit != own || each[1].Limit != theirs {
		t.Errorf("first: %+v, %+v", d, each)
	}
	old.take(t, "domain_k_", 24*time.Hour, 2, time.Now())
	if each, d = take(both...); d.Allowed || d.Limit != theirs || !each[0].Allowed || each[0].Remaining != 1 || each[1].Remaining != 0 {
		t.Errorf("theirs refuses: %+v, %+v", d, each)
	}
	if left, err := limiter.Peek(t.Context(), "k", own); err != nil || left.Remaining != 1 {
		t.Errorf("the other was charged: %+v, %v", left, err)
	}
	if err := limiter.Reset(t.Context(), "k", theirs); err != nil {
		t.Fatal(err)
	}
	take(both...)
	if each, d = take(both...); d.Allowed || d.Limit != own || !each[1].Allowed || old.count(t, key) != 1 {
		t.Errorf("own refuses: %+v, %+v, count %d", d, each, old.count(t, key))
	}

	punished := stint.Ask{Key: "p", Limit: theirs, Cost: 3, Penalty: penalty}
	take(punished)
	if _, d := take(punished); d.Outcome != stint.Limited || d.Violations != 1 || d.Penalty != penalty {
		t.Errorf("first violation: %+v", d)
	}
	if _, d := take(punished); d.Outcome != stint.Banned || d.BanLeft != time.Hour || d.RetryAfter < time.Hour || d.Limit != theirs {
		t.Errorf("banned: %+v", d)
	}
	if _, d := take(punished); d.Outcome != stint.Banned || d.Limit != nil || d.BanLeft <= 0 {
		t.Errorf("while the ban runs: %+v", d)
	}
}

// Whatever is asked, in lists or one by one, the counts are those of a table of numbers.
func TestEnvoyKeysModel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	t.Run("one server", func(t *testing.T) {
		envoyModel(t, openEnvoy(t, "redis://"+server.Addr, redislimit.EnvoyKeys{Prefix: "{tag}"}), newOldInstance(t, "{tag}", server.Addr))
	})
	t.Run("cluster", func(t *testing.T) {
		var hosts []string
		for _, s := range redistest.StartCluster(t, 3) {
			hosts = append(hosts, s.Addr)
		}
		envoyModel(t, openEnvoy(t, "redis+cluster://"+strings.Join(hosts, ","), redislimit.EnvoyKeys{}), newOldInstance(t, "", hosts...))
	})
}

func envoyModel(t *testing.T, s *redislimit.Store, old *oldInstance) {
	limiter := stint.NewLimiter(s)
	limits := []*stint.Limit{stint.MustLimit("envoy a: 7 per 1h fixed_window"), stint.MustLimit("envoy b: 20 per 24h fixed_window"), stint.MustLimit("envoy c: 3 per 168h fixed_window")}
	random := rand.New(rand.NewPCG(3, 4))
	model := map[string]int64{}
	start := time.Unix(1_795_225_537, 0)
	steps := 3000
	if testing.Short() {
		steps = 600
	}
	for step := range steps {
		at := start.Add(time.Duration(step) * time.Minute)
		name := func(a *stint.Ask) string {
			n, _ := envoyNames(a.Limit, a.Key)
			return old.key(n, a.Limit.Spec().Period, at)
		}
		ask := func() stint.Ask {
			cost := int64(random.IntN(4))
			return stint.Ask{Key: fmt.Sprint("k{", random.IntN(3)), Limit: limits[random.IntN(3)], Cost: cost, Peek: cost == 0}
		}
		request := func() stint.Request {
			r := stint.Request{At: at}
			for range 1 + random.IntN(3) {
				a := ask()
				for _, b := range r.Asks {
					if a.Key == b.Key && a.Limit == b.Limit {
						a.Limit = nil
					}
				}
				if a.Limit != nil {
					r.Asks = append(r.Asks, a)
				}
			}
			return r
		}
		// want decides r by the table, and checks what the store has said.
		want := func(r *stint.Request, d stint.Decision, each []stint.Decision, err error) {
			t.Helper()
			fits := true
			for i := range r.Asks {
				fits = fits && model[name(&r.Asks[i])]+r.Asks[i].Units() <= r.Asks[i].Limit.Spec().Amount
			}
			if err != nil || d.Allowed != fits {
				t.Fatalf("step %d: %+v: %+v, %v, want allowed %v; %v", step, r.Asks, d, err, fits, model)
			}
			for i := range r.Asks {
				a := &r.Asks[i]
				used, amount := model[name(a)], a.Limit.Spec().Amount
				if fits {
					used += a.Units()
					model[name(a)] = used
				}
				one := fits || used+a.Units() <= amount
				if each[i].Remaining != max(0, amount-used) || each[i].Allowed != one || each[i].Key != a.Key || each[i].Limit != a.Limit {
					t.Fatalf("step %d: ask %d of %+v: %+v, %d used", step, i, r.Asks, each[i], used)
				}
			}
		}
		switch random.IntN(6) {
		case 0:
			a := ask()
			model[name(&a)] += a.Units()
			n, _ := envoyNames(a.Limit, a.Key)
			if after := old.take(t, n, a.Limit.Spec().Period, a.Units(), at); after != model[name(&a)] {
				t.Fatalf("step %d: the old instance finds %d, want %d", step, after, model[name(&a)])
			}
		case 1:
			a := ask()
			if a.Peek {
				break
			}
			if err := s.Refund(t.Context(), &stint.Request{At: at, Asks: []stint.Ask{a}}); err != nil {
				t.Fatal(err)
			}
			model[name(&a)] = max(0, model[name(&a)]-a.Units())
		case 2:
			rs := []stint.Request{request(), request(), request()}
			answers := make([]stint.Answer, len(rs))
			for i := range answers {
				answers[i].Each = make([]stint.Decision, len(rs[i].Asks))
			}
			limiter.TakeBatch(t.Context(), rs, answers)
			for i := range rs {
				want(&rs[i], answers[i].Decision, answers[i].Each, answers[i].Err)
			}
		default:
			r := request()
			each := make([]stint.Decision, len(r.Asks))
			d, err := limiter.Take(t.Context(), &r, each)
			want(&r, d, each, err)
		}
	}
	for key, n := range model {
		if got := old.count(t, key); got != n {
			t.Errorf("%s is %d, want %d", key, got, n)
		}
	}
}

// Both kinds of instances together never let more pass than the limit.
func TestEnvoyKeysTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, old := openEnvoy(t, "redis://"+server.Addr, redislimit.EnvoyKeys{}), newOldInstance(t, "", server.Addr)
	limiter, limit := stint.NewLimiter(s), stint.MustLimit("envoy: 500 per 24h fixed_window")
	var passed, byOld atomic.Int64
	var wg sync.WaitGroup
	at := time.Now()
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if d, err := limiter.Take(t.Context(), &stint.Request{At: at, Asks: []stint.Ask{{Key: "k", Limit: limit}}}, nil); err != nil {
					t.Error(err)
				} else if d.Allowed {
					passed.Add(1)
				}
			}
		})
		wg.Go(func() {
			for range 100 {
				if old.take(t, "domain_k_", 24*time.Hour, 1, at) <= 500 {
					passed.Add(1)
					byOld.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if passed.Load() != 500 || byOld.Load() == 0 || byOld.Load() == 500 {
		t.Errorf("%d passed, %d of them by the old instance; want 500", passed.Load(), byOld.Load())
	}
}
