package quota_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/envoy/quota"
)

// world is some proxies and some instances of the service that share a store.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	limit   *stint.Limit
	decider *decider
	serve   quota.Settings
	nodes   []*quota.Service
	counted *prometheus.Registry // metrics of all that were nodes
	proxies []*proxy
	wires   []*wire // of the proxies; nil: none
	rates   []float64
	id      *rlqs.BucketId
	begun   time.Time

	generation int // of nodes

	used   []use
	erased uint64 // by abandoned buckets
	cuts   int

	heldAt map[int64]float64 // at the beginning of each tenth of the period of limit, by its number
}

// use is a unit that was let through by an assignment.
type use struct {
	at, granted time.Time
	held        float64 // of all proxies, and on the way, before it
}

func newWorld(t *testing.T, seed uint64, limit *stint.Limit, settings quota.Settings) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), limit: limit, id: bucketID("k", "v"), begun: time.Now(), serve: settings}
	w.counted, w.heldAt = prometheus.NewRegistry(), make(map[int64]float64)
	w.decider = newDecider("1 per 1s")
	w.decider.limit = func(string) *stint.Limit { return limit }
	w.decider.refused = w.rng.IntN(2) == 0
	if w.rng.IntN(2) == 0 {
		w.decider.delay = randomly(seed, 200*time.Millisecond)
	}
	w.nodes = make([]*quota.Service, 1+w.rng.IntN(3))
	instances := len(w.nodes)
	w.serve.Instances = func() int { return instances }
	for i := range w.nodes {
		w.restart(i)
	}
	slowest := time.Duration(w.rng.IntN(900)) * time.Millisecond
	for i := range 1 + w.rng.IntN(5) {
		p := &proxy{t: t, domain: "d", interval: time.Duration(100+w.rng.IntN(8000)) * time.Millisecond, literal: w.rng.IntN(2) == 0}
		p.noAssignment = blanket(typev3.RateLimitStrategy_DENY_ALL)
		p.connect = func() func(*rlqs.RateLimitQuotaUsageReports) error {
			if w.rng.IntN(4) == 0 {
				return nil
			}
			delay := randomly(w.rng.Uint64(), slowest)
			w.wires[i] = dial(w.nodes[w.rng.IntN(len(w.nodes))], delay)
			return w.wires[i].send
		}
		w.proxies, w.wires = append(w.proxies, p), append(w.wires, nil)
		w.rates = append(w.rates, 0)
	}
	return w
}

// randomly returns times up to most. Several goroutines may call it.
func randomly(seed uint64, most time.Duration) func() time.Duration {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 3))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(rng.Int64N(int64(most) + 1))
	}
}

func (w *world) restart(i int) {
	if w.nodes[i] != nil {
		w.nodes[i].Stop()
	}
	s, err := quota.New(w.decider, w.serve)
	if err != nil {
		w.t.Fatal(err)
	}
	w.nodes[i] = s
	w.generation++
	prometheus.WrapRegistererWith(prometheus.Labels{"generation": fmt.Sprint(w.generation)}, w.counted).MustRegister(s.Metrics())
}

func (w *world) close() {
	for _, one := range w.wires {
		if one != nil {
			one.cut()
		}
	}
}

// run lets some time pass.
func (w *world) run(for_ time.Duration) {
	const step = 10 * time.Millisecond
	capacity := float64(w.limit.Capacity())
	for range for_ / step {
		held := w.held()
		time.Sleep(step)
		synctest.Wait()
		tenth := time.Now().UnixNano() / int64(w.limit.Spec().Period/10)
		if _, ok := w.heldAt[tenth]; !ok { // it has begun in this step, in which some may be given back, too
			w.heldAt[tenth] = max(held, w.held())
		}
		switch w.rng.IntN(3000) {
		case 0:
			w.restart(w.rng.IntN(len(w.nodes)))
		case 1, 2:
			if one := w.wires[w.rng.IntN(len(w.wires))]; one != nil {
				w.cuts++
				one.cut()
			}
		case 3:
			w.decider.fail(errAway)
		case 4, 5, 6:
			w.decider.fail(nil)
		}
		for i, p := range w.proxies {
			if one := w.wires[i]; one != nil {
				for _, r := range one.arrived() {
					w.erased += p.apply(r.m, r.sent)
				}
				if one.ctx.Err() != nil {
					p.closed()
					w.wires[i] = nil
				}
			}
			p.tick()
			if w.rng.IntN(500) == 0 { // as many as the limit in a second, more, less, none
				w.rates[i] = []float64{0, 0.1, 1, 10, capacity / 2, 3 * capacity}[w.rng.IntN(6)]
			}
			for n := w.rates[i] * step.Seconds(); n > 0 && w.rng.Float64() < n; n-- {
				w.request(p)
			}
		}
		synctest.Wait()
	}
}

func (w *world) request(p *proxy) {
	b := p.buckets[idText(w.id)]
	byUnits := b != nil && b.tokens != nil
	u := use{at: time.Now(), held: w.held()}
	if p.request(w.id) && byUnits {
		u.granted = b.tokens.grantedAt
		w.used = append(w.used, u)
	}
}

// held is how many units proxies have and are on their way.
func (w *world) held() (n float64) {
	for i, p := range w.proxies {
		n += float64(int64(p.has(w.id)))
		if w.wires[i] != nil {
			n += w.wires[i].onTheWay()
		}
	}
	return n
}

func blanket(rule typev3.RateLimitStrategy_BlanketRule) *typev3.RateLimitStrategy {
	return &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: rule}}
}

// However many streams and instances, and whatever is lost or late or cut: of the units taken in a
// fixed window no more are let through than the limit, and none is let through later than two
// seconds, and the time that it is on its way, after that window.
func TestFixedWindowIsNeverExceeded(t *testing.T) {
	for seed := range uint64(seeds()) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 2))
				period := []time.Duration{time.Second, 7 * time.Second, 30 * time.Second, time.Minute}[rng.IntN(4)]
				limit := stint.MustLimit(fmt.Sprintf("%d per %s fixed_window", 1+rng.IntN(200), period))
				w := newWorld(t, seed, limit, someSettings(rng))
				w.run(4 * time.Minute)
				w.close()
				through := make(map[int64]int64)
				for _, u := range w.used {
					start, end := limit.Window(u.granted)
					through[start.UnixNano()]++
					if after := u.at.Sub(end); after > 2*time.Second+900*time.Millisecond {
						t.Fatalf("a unit of the window until %s was used %s after it", end, after)
					}
				}
				for start, n := range through {
					if n > limit.Capacity()+int64(w.erased) {
						t.Errorf("%d units taken in the window from %s were let through: limit %d, %d erased", n, time.Unix(0, start).UTC(), limit.Capacity(), w.erased)
					}
				}
				w.report()
			})
		})
	}
}

// A bucket and a sliding log are exceeded in no span of time by more than what proxies had, or was on
// the way to them, when it began.
func TestOtherLimitsAreExceededByWhatIsAhead(t *testing.T) {
	for seed := range uint64(seeds()) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 4))
				amount, period := 1+rng.IntN(200), []time.Duration{time.Second, 10 * time.Second, time.Minute}[rng.IntN(3)]
				algorithm := []string{"token_bucket", "leaky_bucket", "sliding_log"}[rng.IntN(3)]
				limit := stint.MustLimit(fmt.Sprintf("%d per %s %s", amount, period, algorithm))
				w := newWorld(t, seed, limit, someSettings(rng))
				w.run(2 * time.Minute)
				w.close()
				for i, first := range w.used {
					for j, last := range w.used[i:] {
						span := last.at.Sub(first.at)
						if limit.Spec().Algorithm == stint.SlidingLog && span >= period {
							break
						}
						most := float64(limit.Capacity()) + first.held + float64(w.erased)
						if limit.Spec().Algorithm != stint.SlidingLog {
							most += float64(amount) * span.Seconds() / period.Seconds()
						}
						if float64(j+1) > most+1e-6 {
							t.Fatalf("%s: %d units let through in %s, and %v were ahead: at most %v", limit, j+1, span, first.held, most)
						}
					}
				}
				w.report()
			})
		})
	}
}

func seeds() int {
	if testing.Short() {
		return 4
	}
	return 16
}

func someSettings(rng *rand.Rand) quota.Settings {
	return quota.Settings{Shares: quota.Shares(rng.IntN(2)), TTL: time.Duration(4+rng.IntN(30)) * time.Second, Idle: 45 * time.Second}
}

// A sliding window counts its ten newest tenths of the period, and the one before in proportion. By
// these weights, no more is let through than the limit, and what proxies had, or was on the way to them,
// when the oldest of these tenths began.
func TestSlidingWindowIsExceededByWhatIsAhead(t *testing.T) {
	for seed := range uint64(seeds()) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 5))
				amount, period := 1+rng.IntN(200), []time.Duration{time.Second, 10 * time.Second, time.Minute}[rng.IntN(3)]
				limit := stint.MustLimit(fmt.Sprintf("%d per %s sliding_window", amount, period))
				w := newWorld(t, seed, limit, someSettings(rng))
				w.run(3 * time.Minute)
				w.close()
				through := make(map[int64]float64)
				for _, u := range w.used {
					tenth := int64(period / 10)
					k := u.at.UnixNano() / tenth
					through[k]++
					rest := 1 - float64(u.at.UnixNano()%tenth)/float64(tenth)
					got := rest * through[k-10]
					for i := k - 9; i <= k; i++ {
						got += through[i]
					}
					most := float64(amount) + rest*w.heldAt[k-10] + (1-rest)*w.heldAt[k-9] + float64(w.erased)
					if got > most+1+1e-6 {
						t.Fatalf("%s: %v let through at %s: at most %v", limit, got, u.at, most)
					}
				}
				w.report()
			})
		})
	}
}

// balance checks that each unit that was taken became something, after all streams have ended.
func (w *world) balance() {
	w.t.Helper()
	synctest.Wait()
	families, err := w.counted.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	sums := make(map[string]int64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() != "generation" {
					name += " " + l.GetValue()
				}
			}
			sums[name] += int64(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
	}
	const units = "stint_quota_units_total "
	taken, returned := sums[units+"taken"], sums[units+"returned"]
	without := w.decider.taken - taken // charged after use without an assignment, as far as they fit
	if without < 0 || without > sums[units+"uncovered"] || returned != w.decider.back || taken != sums[units+"used"]+returned+sums[units+"lost"] {
		w.t.Errorf("%d were taken and %d given back: %v", w.decider.taken, w.decider.back, sums)
	}
	for _, name := range []string{"stint_quota_units_ahead", "stint_quota_streams", "stint_quota_buckets"} {
		if sums[name] != 0 {
			w.t.Errorf("%s is %d", name, sums[name])
		}
	}
}

func (w *world) report() {
	w.balance()
	if len(w.used) == 0 {
		w.t.Error("nothing was let through")
	}
	w.t.Logf("%s: %d instances, %d proxies, %d let through, %d cut, %d taken, %d given back, %d charged", w.limit, len(w.nodes), len(w.proxies), len(w.used), w.cuts, w.decider.taken, w.decider.back, w.decider.charged)
}
