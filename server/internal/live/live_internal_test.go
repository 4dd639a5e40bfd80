package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/internal/reports"
)

// instance is an instance whose counters a test sets.
type instance struct {
	*Live
	mu     sync.Mutex
	counts Counts // as Options.Count returns them: Outcomes without those of rules
	state  State
	stop   context.CancelFunc
	ended  chan struct{}
}

func start(id string, shared reports.Reports) *instance {
	i := &instance{ended: make(chan struct{})}
	i.counts.Rules = map[string]RuleCounts{"login": {}}
	i.state = State{Decides: "store", Instances: 1, Version: "v1"}
	i.Live = New(Options{ID: id, Host: "host-" + id, Program: "stint", Reports: shared,
		Count: func() *Counts { i.mu.Lock(); defer i.mu.Unlock(); return i.counts.clone() },
		InForce: func(rule string) bool {
			i.mu.Lock()
			defer i.mu.Unlock()
			return in(i.counts.Rules)(rule)
		},
		State: func() State { i.mu.Lock(); defer i.mu.Unlock(); return i.state },
	})
	ctx, stop := context.WithCancel(context.Background())
	i.stop = stop
	go func() { i.Run(ctx); close(i.ended) }()
	time.Sleep(tick / 11) // so that no two instances, and no test, read or count at one instant
	return i
}

func (i *instance) end() { i.stop(); <-i.ended }

// count counts n requests that a rule decided.
func (i *instance) count(rule string, outcome int, n int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.counts.Rules[rule]
	c[outcome] += n
	i.counts.Rules[rule] = c
}

func (i *instance) set(change func(*State)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(&i.state)
}

// An instance by itself shows the rates of the last second.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := start("a", nil)
		defer i.end()
		time.Sleep(time.Second)
		i.count("login", Allowed, 30)
		i.count("login", Limited, 10)
		i.mu.Lock()
		i.counts.Outcomes[Unmatched] += 5
		i.counts.Store[Timeouts] += 2
		i.counts.StoreTimes[9] += 4   // up to 1 ms
		i.counts.DecideTimes[0] += 45 // up to 1 µs
		i.mu.Unlock()
		time.Sleep(time.Second)
		now := i.Now("login")
		if want := map[string]float64{"allowed": 30, "limited": 10, "unmatched": 5}; !maps.Equal(now.Outcomes, want) {
			t.Errorf("%v, want %v", now.Outcomes, want)
		}
		if now.Calls != 4 || now.Failures != 2 || now.Store.P99 < 501 || now.Store.P99 > 1000 || now.Decide.P50 != 1 {
			t.Errorf("%+v", now)
		}
		if len(now.Rules) != 1 || now.Rules[0].Name != "login" || now.Rules[0].Decided != 40 || now.Rules[0].Refused != 10 {
			t.Errorf("%+v", now.Rules)
		}
		if r := now.Rule; r == nil || r.Name != "login" || !maps.Equal(r.Outcomes, map[string]float64{"allowed": 30, "limited": 10}) {
			t.Errorf("%+v", r)
		}
		if r := i.Now("other").Rule; r != nil {
			t.Errorf("a rule that there is not: %+v", r)
		}
		time.Sleep(time.Second)
		if now := i.Now(""); len(now.Outcomes) != 0 || len(now.Rules) != 0 {
			t.Errorf("a second later: %+v", now)
		}
		if total := i.Totals(); total.Outcomes[Allowed] != 30 || total.Outcomes[Unmatched] != 5 || total.Rules["login"][Limited] != 10 || !total.Whole {
			t.Errorf("%+v", total)
		}
	})
}

// A shadow rule decides nothing, a rule that is removed leaves no negative numbers, and one
// that comes back counts from 0.
func TestRulesComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := start("a", nil)
		defer i.end()
		i.count("trial", Shadow, 7)
		i.count("login", Allowed, 100)
		time.Sleep(time.Second)
		i.mu.Lock()
		delete(i.counts.Rules, "login")
		i.mu.Unlock()
		i.count("trial", Shadow, 3)
		time.Sleep(time.Second)
		now := i.Now("trial")
		if len(now.Rules) != 1 || now.Rules[0].Decided != 0 || now.Rules[0].Refused != 3 || now.Rule.Outcomes["shadow"] != 3 || len(now.Outcomes) != 0 {
			t.Errorf("%+v %+v", now, now.Rule)
		}
		i.count("login", Allowed, 4)
		time.Sleep(time.Second)
		if now := i.Now(""); now.Outcomes["allowed"] != 4 {
			t.Errorf("%+v", now)
		}
		i.mu.Lock()
		i.counts.Rules["login"] = RuleCounts{Allowed: 3} // removed and back between two reads
		i.mu.Unlock()
		time.Sleep(time.Second)
		if total := i.Totals(); total.Outcomes[Allowed] != 107 || total.Rules["login"][Allowed] != 7 {
			t.Errorf("%+v", total)
		}
	})
}

// fleet is some instances that share reports.
func startFleet(shared reports.Reports, n int) []*instance {
	var all []*instance
	for k := range n {
		i := start(fmt.Sprint("i", k), shared)
		i.set(func(s *State) { s.Instances = int64(n) })
		all = append(all, i)
	}
	return all
}

// The totals of each instance are, a few seconds later, exactly what all have counted since
// they knew of each other.
func TestFleetTotals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(reports.Memory)
		all := startFleet(shared, 5)
		time.Sleep(10 * time.Second)
		var before []Totals
		for _, i := range all {
			before = append(before, i.Totals())
		}
		r := rand.New(rand.NewPCG(1, 1))
		want := map[string]int64{}
		for range 60 {
			for _, i := range all {
				rule := fmt.Sprint("rule", r.IntN(20))
				n := int64(r.IntN(50))
				want[rule] += n
				i.count(rule, r.IntN(4), n)
			}
			time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		for k, i := range all {
			got := i.Totals()
			if got.Instances != 5 || !got.Whole {
				t.Errorf("instance %d counts %d instances, all: %t", k, got.Instances, got.Whole)
			}
			var sum, of int64
			for rule, n := range want {
				c, was := got.Rules[rule], before[k].Rules[rule]
				if c.Decided()-was.Decided() != n {
					t.Errorf("instance %d: %s has %d, want %d", k, rule, c.Decided()-was.Decided(), n)
				}
				sum += n
			}
			for o := Allowed; o <= Banned; o++ {
				of += got.Outcomes[o] - before[k].Outcomes[o]
			}
			if of != sum {
				t.Errorf("instance %d: %d requests, want %d", k, of, sum)
			}
		}
		for _, i := range all {
			i.end()
		}
		parts, _ := shared.Reported(context.Background(), partsName)
		for id, text := range parts {
			if len(text) > 0 {
				t.Errorf("instance %s has stopped and is still reported", id)
			}
		}
	})
}

// Rules of a fleet that come and go take nothing with them: the sums over all rules are what instances
// have counted.
func TestFleetRulesComeAndGo(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 3))
			all := startFleet(&reports.Memory{}, 3)
			time.Sleep(15 * time.Second)
			want := int64(0)
			for range 100 {
				i, rule := all[random.IntN(len(all))], [...]string{"login", "search"}[random.IntN(2)]
				n := random.Int64N(5)
				want += n
				i.count(rule, Limited, n)
				time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				if random.IntN(3) == 0 { // its counts have been read
					time.Sleep(tick + tick/10)
					i.mu.Lock()
					delete(i.counts.Rules, rule)
					i.mu.Unlock()
					time.Sleep(tick + tick/10) // that it is gone has been read
				}
			}
			time.Sleep(15 * time.Second)
			for _, i := range all {
				if total := i.Totals(); total.All[Limited] != want || total.Outcomes[Limited] != want {
					t.Errorf("seed %d: instance %s has counted %d by rules and %d in all, want %d", seed, i.ID, total.All[Limited], total.Outcomes[Limited], want)
				}
			}
			for _, i := range all {
				i.end()
			}
		})
	}
}

// While an instance restarts, dies or joins, totals never fall, and never jump by what was
// counted before.
func TestFleetChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(reports.Memory)
		all := startFleet(shared, 4)
		counted := int64(0)
		every := func(seconds int) {
			for range seconds {
				for _, i := range all {
					if i != nil {
						i.count("login", Allowed, 100)
						counted += 100
					}
				}
				time.Sleep(time.Second)
			}
		}
		every(20)
		last := make([]Totals, len(all))
		check := func(what string) {
			t.Helper()
			for k, i := range all {
				if i == nil {
					last[k] = Totals{}
					continue
				}
				now := i.Totals()
				if n, was := now.Rules["login"][Allowed], last[k].Rules["login"][Allowed]; n < was || n > counted {
					t.Errorf("%s: instance %d has a total of %d, had %d; %d were counted", what, k, n, was, counted)
				}
				last[k] = now
			}
		}
		check("all")
		for k := range all { // one of them is the one that adds up
			all[k].end()
			all[k] = nil
			for range 15 {
				every(1)
				check(fmt.Sprintf("without %d", k))
			}
			all[k] = start(fmt.Sprint("again", k), shared)
			all[k].set(func(s *State) { s.Instances = 4 })
			for range 10 {
				every(1)
				check(fmt.Sprintf("with %d again", k))
			}
		}
		// The rates are right again, too.
		every(10)
		for k, i := range all {
			if got := i.Now("").Outcomes["allowed"]; math.Abs(got-400) > 60 {
				t.Errorf("instance %d: %v requests a second, want 400", k, got)
			}
			i.end()
		}
	})
}

// An instance of a fleet is the whole as soon as it has counted itself, also if the settings say
// that there are more.
func TestWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := start("a", new(reports.Memory))
		defer i.end()
		i.set(func(s *State) { s.Instances = 5 })
		time.Sleep(5 * time.Second)
		if got := i.Totals(); !got.Whole || got.Instances != 1 {
			t.Errorf("%+v", got)
		}
		failing := new(failing)
		failing.set(context.DeadlineExceeded)
		apart := start("b", failing)
		defer apart.end()
		time.Sleep(5 * time.Second)
		if got := apart.Totals(); got.Whole {
			t.Errorf("without the store from the start: %+v", got)
		}
	})
}

// failing are reports that fail while away is set.
type failing struct {
	reports.Memory
	mu   sync.Mutex
	away error
}

func (f *failing) set(err error) { f.mu.Lock(); defer f.mu.Unlock(); f.away = err }
func (f *failing) get() error    { f.mu.Lock(); defer f.mu.Unlock(); return f.away }

func (f *failing) Report(ctx context.Context, name, part string, text []byte, keep time.Duration) error {
	if err := f.get(); err != nil {
		return err
	}
	return f.Memory.Report(ctx, name, part, text, keep)
}

func (f *failing) Reported(ctx context.Context, name string) (map[string][]byte, error) {
	if err := f.get(); err != nil {
		return nil, err
	}
	return f.Memory.Reported(ctx, name)
}

// While the store is away, an instance shows its own numbers, and says that they are not the
// whole. Afterwards it shows the fleet's again.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(failing)
		all := startFleet(shared, 3)
		counted := int64(0)
		run := func(seconds int) {
			for range seconds {
				for _, i := range all {
					i.count("login", Limited, 10)
					counted += 10
				}
				time.Sleep(time.Second)
			}
		}
		rates := func(what string, want float64, whole bool) {
			t.Helper()
			for k, i := range all {
				if got := i.Now("").Outcomes["limited"]; math.Abs(got-want) > want/5 {
					t.Errorf("%s: instance %d shows %v a second, want %v", what, k, got, want)
				}
				got := i.Totals()
				if got.Whole != whole {
					t.Errorf("%s: whole: %t", what, got.Whole)
				}
				if n := got.Outcomes[Limited]; n > counted {
					t.Errorf("%s: instance %d has a total of %d; %d were counted", what, k, n, counted)
				}
				if got := len(i.Instances(t.Context())); got != 3 && whole || got != 1 && !whole {
					t.Errorf("%s: %d instances", what, got)
				}
			}
		}
		run(20)
		rates("at first", 30, true)
		shared.set(context.DeadlineExceeded)
		run(20)
		rates("away", 10, false)
		shared.set(nil)
		run(20)
		rates("back", 30, true)
		for _, i := range all {
			i.end()
		}
	})
}

// Reports that are no reports harm nobody.
func TestForeignReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(reports.Memory)
		for part, text := range map[string]string{
			"x": "", "y": "{", "z": `{"counters":{"outcomes":[-1]}}`, "w": `{"counters":{"rules":{"login":[9223372036854775807,0,0,0,0,0,0,0]}}}`,
			"v": `{"counters":{"outcomes":[1e400]}}`, "u": "[]", "s": `{"counters":{"decide_times":[1]}}`,
		} {
			if err := shared.Report(t.Context(), partsName, part, []byte(text), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		all := startFleet(shared, 2)
		time.Sleep(10 * time.Second)
		all[0].count("login", Banned, 5)
		time.Sleep(10 * time.Second)
		for _, i := range all {
			if got := i.Totals(); got.Instances != 2 || got.Rules["login"][Banned] != 5 {
				t.Errorf("%+v", got)
			}
			i.end()
		}
	})
}

// Versions of the program may have other numbers of counters of a rule, and read each other's.
func TestReportsOfOtherVersions(t *testing.T) {
	for n := range ruleKinds + 3 {
		counts := make([]int64, n)
		for i := range counts {
			counts[i] = int64(i + 1)
		}
		var want RuleCounts
		copy(want[:], counts)
		text := encode(map[string]any{"counters": map[string]any{"rules": map[string][]int64{"login": counts}, "all": counts}})
		r, err1 := readReport(text)
		s, err2 := readSum(text)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatalf("%d counters: %v", n, err)
		}
		for _, c := range []*Counts{&r.Counters, &s.Counters} {
			if c.Rules["login"] != want || c.All != want {
				t.Errorf("%d counters are read as %v, %v", n, c.Rules["login"], c.All)
			}
		}
	}
}

// A quantile lies in the bucket of the exact one.
func TestQuantile(t *testing.T) {
	if got := new(Histogram).Quantile(0.5); got != 0 {
		t.Errorf("of none: %v", got)
	}
	r := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		var h Histogram
		var all []float64
		for range 1 + r.IntN(300) {
			d := math.Pow(10, -6.5+7*r.Float64())
			all = append(all, d)
			h[bucket(d)]++
		}
		for _, q := range []float64{0.5, 0.9, 0.99, 1} {
			exact := nth(all, int(math.Ceil(q*float64(len(all))))-1)
			got := h.Quantile(q)
			if want := bucket(exact); want == len(Bounds) && got != 1 || want < len(Bounds) && bucket(got) != want {
				t.Fatalf("quantile %v of %d: %v, exactly %v", q, len(all), got, exact)
			}
		}
	}
}

func bucket(d float64) int {
	for i, b := range Bounds {
		if d <= b*(1+1e-12) {
			return i
		}
	}
	return len(Bounds)
}

func nth(all []float64, n int) float64 {
	for _, v := range all {
		below, same := 0, 0
		for _, o := range all {
			if o < v {
				below++
			} else if o == v {
				same++
			}
		}
		if below <= n && n < below+same {
			return v
		}
	}
	return 0
}

// away are Reports that fail while there is no Memory.
type away struct{ atomic.Pointer[reports.Memory] }

func (a *away) Report(ctx context.Context, name, part string, text []byte, keep time.Duration) error {
	if m := a.Load(); m != nil {
		return m.Report(ctx, name, part, text, keep)
	}
	return errors.New("away")
}

func (a *away) Reported(ctx context.Context, name string) (map[string][]byte, error) {
	if m := a.Load(); m != nil {
		return m.Reported(ctx, name)
	}
	return nil, errors.New("away")
}

func (a *away) Claim(ctx context.Context, name, who string, keep time.Duration) (bool, error) {
	if m := a.Load(); m != nil {
		return m.Claim(ctx, name, who, keep)
	}
	return false, errors.New("away")
}

// Whichever instance adds up after the store was away and restarted empty, nothing is counted
// twice.
func TestRestartedEmpty(t *testing.T) {
	for late := time.Duration(0); late < exchangeEvery; late += 50 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			shared := &away{}
			shared.Store(new(reports.Memory))
			all := []*instance{start("a", shared), start("b", shared), start("c", shared)}
			sent := int64(0)
			pass := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					for _, i := range all {
						i.count("login", Allowed, 10)
						sent += 10
						if got := i.Totals(); got.Whole && got.Instances != 3 && sent > 10_000 {
							t.Errorf("%s, %s late: %d instances", i.ID, late, got.Instances)
						}
					}
				}
			}
			pass(time.Minute + late)
			shared.Store(nil)
			pass(6 * time.Second)
			shared.Store(new(reports.Memory))
			pass(20 * time.Second)
			for _, i := range all {
				if got := i.Totals(); got.Outcomes[Allowed] > sent || got.Outcomes[Allowed] < sent*3/4 {
					t.Errorf("%s, %s late: %d counted of %d", i.ID, late, got.Outcomes[Allowed], sent)
				}
				if got := i.Now("").Outcomes["allowed"]; got < 560 || got > 640 {
					t.Errorf("%s, %s late: %v a second, not 600", i.ID, late, got)
				}
				defer i.end()
			}
		})
	}
}

// After a flush of the store, idle instances are still counted, though they report every few
// seconds only. One that has left is not.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &away{}
		shared.Store(new(reports.Memory))
		all := []*instance{start("a", shared), start("b", shared), start("c", shared)}
		all[0].set(func(s *State) { s.Bans = 2 })
		all[2].set(func(s *State) { s.Bans = 3 })
		time.Sleep(20 * time.Second)
		for range 7 {
			shared.Store(new(reports.Memory))
			for range 17 {
				time.Sleep(time.Second)
				for _, i := range all {
					if got := i.Totals(); got.Instances != 3 || got.Bans != 5 || !got.Whole {
						t.Errorf("%s: %d instances, %d bans, whole: %t", i.ID, got.Instances, got.Bans, got.Whole)
					}
				}
			}
		}
		all[2].end()
		time.Sleep(5 * time.Second)
		if got := all[0].Totals(); got.Instances != 2 || got.Bans != 2 {
			t.Errorf("when one has left: %d instances, %d bans", got.Instances, got.Bans)
		}
		all[0].end()
		all[1].end()
	})
}
