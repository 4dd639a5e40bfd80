package quota_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/envoy/quota"
	"github.com/stintdev/stint/server/rules"
)

// scene is a Service and some proxies, without delays.
type scene struct {
	t       *testing.T
	decider *decider
	service *quota.Service // the first instance
	proxies []*proxy
	wires   []*wire
}

// play begins a scene in a bubble of its own, at the start of a minute, with n proxies that report each five
// seconds.
func play(t *testing.T, d *decider, settings quota.Settings, n int, script func(*scene)) {
	t.Helper()
	playOn(t, d, settings, 1, make([]int, n), script)
}

// playOn is play with several instances of the service. on are those that the proxies have streams to.
func playOn(t *testing.T, d *decider, settings quota.Settings, instances int, on []int, script func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{t: t, decider: d}
		settings.Instances = func() int { return instances }
		var instancesOf []*quota.Service
		for range instances {
			service, err := quota.New(d, settings)
			if err != nil {
				t.Fatal(err)
			}
			instancesOf = append(instancesOf, service)
		}
		s.service = instancesOf[0]
		for i, service := range on {
			p := &proxy{t: t, domain: "d", interval: 5 * time.Second}
			p.connect = func() func(*rlqs.RateLimitQuotaUsageReports) error {
				to := s.service
				if service > 0 {
					to = instancesOf[service]
				}
				s.wires[i] = dial(to, func() time.Duration { return 0 })
				return s.wires[i].send
			}
			s.proxies, s.wires = append(s.proxies, p), append(s.wires, nil)
		}
		defer func() {
			for _, w := range s.wires {
				if w != nil {
					w.cut()
				}
			}
		}()
		script(s)
	})
}

// settle lets everything on its way arrive.
func (s *scene) settle() {
	synctest.Wait()
	for i, p := range s.proxies {
		if w := s.wires[i]; w != nil {
			for _, r := range w.arrived() {
				p.apply(r.m, r.sent)
			}
			if w.ctx.Err() != nil {
				p.closed()
			}
		}
	}
	synctest.Wait()
}

// wait lets d pass, in steps.
func (s *scene) wait(d time.Duration) {
	for ; d > 0; d -= 10 * time.Millisecond {
		time.Sleep(10 * time.Millisecond)
		s.settle()
		for _, p := range s.proxies {
			p.tick()
		}
		s.settle()
	}
}

// request makes n requests of a proxy, for a bucket {"k": value}, and returns how many were allowed.
func (s *scene) request(proxy int, value string, n int) (allowed int) {
	for range n {
		if s.proxies[proxy].request(bucketID("k", value)) {
			allowed++
		}
	}
	s.settle()
	return allowed
}

// log is what a proxy was assigned since the last call.
func (s *scene) log(proxy int) string {
	text := strings.Join(s.proxies[proxy].log, " ")
	s.proxies[proxy].log = nil
	return text
}

func (s *scene) want(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestOneProxy(t *testing.T) {
	d := newDecider("100 per 1m fixed_window")
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		if s.request(0, "v", 1) != 1 { // no assignment yet
			t.Error("the first request was denied")
		}
		// The request is charged, and the proxy has half of what is left, before more is known.
		s.want("first", s.log(0), "DENY_ALL 50")
		if n := d.remaining("v"); n != 49 {
			t.Errorf("remaining %d", n)
		}
		if n := s.request(0, "v", 60); n != 50 {
			t.Errorf("%d allowed of an assignment of 50", n)
		}
		// At the report it gets all that is left, because nobody else is there.
		s.wait(5 * time.Second)
		s.want("after the report", s.log(0), "DENY_ALL 49")
		if n := s.request(0, "v", 60); n != 49 {
			t.Errorf("%d allowed of 49", n)
		}
		// Nothing is left. The next window brings units at once, without a report.
		s.wait(5 * time.Second)
		s.want("exhausted", s.log(0), "")
		s.wait(20 * time.Second)
		s.want("before it expires", s.log(0), "DENY_ALL")
		s.wait(29 * time.Second)
		if n := s.request(0, "v", 1); n != 0 {
			t.Error("a request was allowed above the limit")
		}
		s.log(0)
		s.wait(1100 * time.Millisecond)
		if log := s.log(0); !strings.HasPrefix(log, "DENY_ALL ") {
			t.Errorf("next window: %q", log)
		}
		if n := s.request(0, "v", 1); n != 1 {
			t.Error("nothing is allowed in the next window")
		}
	})
}

// What is not used is given back, and goes to another proxy of the same window. What was taken in a window that
// is over is not.
func TestUnspentUnits(t *testing.T) {
	d := newDecider("100 per 1m fixed_window")
	play(t, d, quota.Settings{}, 2, func(s *scene) {
		s.request(0, "v", 1)
		s.want("first", s.log(0), "DENY_ALL 50")
		s.request(1, "v", 1) // 48 are left for two
		s.want("second", s.log(1), "DENY_ALL 12")
		s.wait(17 * time.Second) // assignments are replaced by smaller ones after 15 s
		s.wait(5 * time.Second)  // and reported
		if d.back < 45 || d.remaining("v") < 80 {
			t.Errorf("%d given back, %d remaining: nobody has used any", d.back, d.remaining("v"))
		}
		if n := s.request(1, "v", 100); n == 0 {
			t.Error("nothing allowed")
		}
		s.wait(5 * time.Second)
		if n := s.request(1, "v", 100); n < 60 {
			t.Errorf("%d allowed for the proxy that needs them", n)
		}
	})
	d = newDecider("100 per 10s fixed_window")
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		s.request(0, "v", 1) // 50 are taken
		s.wait(11 * time.Second)
		s.log(0)
		s.wait(5 * time.Second)
		if d.back != 0 {
			t.Errorf("%d units of a window that is over were given back", d.back)
		}
	})
	// A report just before the end of a window: what is given back may arrive after it.
	d = newDecider("100 per 20s fixed_window")
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		s.wait(800 * time.Millisecond)
		s.proxies[0].interval = 19 * time.Second
		s.request(0, "v", 1)
		s.wait(17 * time.Second)
		if log := s.log(0); strings.Count(log, "DENY_ALL") != 2 {
			t.Errorf("%q: want another assignment after 15 s", log)
		}
		s.wait(2100 * time.Millisecond)
		if d.back != 0 {
			t.Errorf("%d units were given back 200 ms before the end of the window", d.back)
		}
	})
	// The store was away when the window ended, so that the assignment expired.
	d = newDecider("100 per 10s fixed_window")
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		s.request(0, "v", 1)
		s.wait(9 * time.Second)
		d.fail(errAway)
		s.wait(5500 * time.Millisecond)
		d.fail(nil)
		s.wait(time.Second)
		if d.back != 0 {
			t.Errorf("%d units of a window that is over were given back", d.back)
		}
	})
}

// Streams that share a bucket get units by what they need, or equal shares.
func TestShares(t *testing.T) {
	through := func(shares quota.Shares, limit string, rates ...int) []int {
		d := newDecider(limit)
		got := make([]int, len(rates))
		play(t, d, quota.Settings{Shares: shares}, len(rates), func(s *scene) {
			s.wait(300 * time.Millisecond)
			for second := range 240 {
				for i, n := range rates {
					for k := range n {
						if k%10 == 0 {
							s.settle()
						}
						if allowed := s.request(i, "v", 1); second >= 60 {
							got[i] += allowed
						}
					}
				}
				s.wait(time.Second)
			}
		})
		for i := range got {
			got[i] /= 3 // minutes
		}
		return got
	}
	is := func(what string, got []int, atLeast, atMost []int) {
		t.Helper()
		for i := range got {
			if got[i] < atLeast[i] || got[i] > atMost[i] {
				t.Errorf("%s: %v a minute: want from %v to %v", what, got, atLeast, atMost)
				return
			}
		}
	}
	is("demand, below the limit", through(quota.ByDemand, "1000 per 1m fixed_window", 10, 2, 1), []int{580, 115, 57}, []int{600, 120, 60})
	is("demand, above the limit", through(quota.ByDemand, "600 per 1m fixed_window", 20, 5), []int{400, 60}, []int{540, 200})
	is("equal, above the limit", through(quota.Equally, "600 per 1m fixed_window", 20, 20), []int{270, 270}, []int{310, 310})
	is("equal, one needs less", through(quota.Equally, "600 per 1m fixed_window", 20, 1), []int{270, 57}, []int{310, 60})
	is("demand, bucket", through(quota.ByDemand, "600 per 1m", 20), []int{560}, []int{602})
	is("demand, a window of a second", through(quota.ByDemand, "10 per 1s fixed_window", 20), []int{570}, []int{600})
	is("demand, sliding log", through(quota.ByDemand, "600 per 1m sliding_log", 20), []int{460}, []int{600})
}

// Instances that hold no stream of a bucket leave its limit to those that do, and streams that begin
// get their part.
func TestSharesOfInstances(t *testing.T) {
	type stream struct{ on, rate, from int } // requests a second, from a second on
	for _, c := range []struct {
		what      string
		limit     string
		instances int
		streams   []stream
		atLeast   []int // a second, of the last two minutes
		all       int   // at least
	}{
		{"one of two", "100 per 1s fixed_window", 2, []stream{{0, 200, 0}}, []int{88}, 88},
		{"one of two, below the limit", "100 per 1s fixed_window", 2, []stream{{0, 60, 0}}, []int{59}, 59},
		{"one of three", "100 per 1s fixed_window", 3, []stream{{1, 200, 0}}, []int{88}, 88},
		{"one of twenty", "100 per 1s fixed_window", 20, []stream{{1, 200, 0}}, []int{85}, 85},
		{"two of two", "100 per 1s fixed_window", 2, []stream{{0, 200, 0}, {1, 200, 0}}, []int{33, 33}, 78},
		{"one comes later", "100 per 1s fixed_window", 2, []stream{{0, 200, 0}, {1, 200, 90}}, []int{33, 33}, 78},
		{"two of three, one with little", "100 per 1s fixed_window", 3, []stream{{0, 200, 0}, {1, 10, 0}}, []int{60, 7}, 78},
		{"one with little comes later", "100 per 1s fixed_window", 3, []stream{{0, 200, 0}, {1, 10, 90}}, []int{60, 7}, 78},
		{"two of three below the limit", "100 per 1s fixed_window", 3, []stream{{0, 60, 0}, {1, 20, 0}}, []int{50, 13}, 66},
		{"a minute", "6000 per 1m fixed_window", 2, []stream{{0, 200, 0}}, []int{90}, 90},
		{"a bucket", "6000 per 1m", 2, []stream{{0, 200, 0}}, []int{80}, 80},
		{"a bucket, two", "6000 per 1m", 2, []stream{{0, 200, 0}, {1, 200, 60}}, []int{28, 28}, 80},
		{"a log", "6000 per 1m sliding_log", 2, []stream{{0, 200, 0}}, []int{75}, 75},
	} {
		t.Run(c.what, func(t *testing.T) {
			const seconds, measured = 600, 480 // who is served first in a second is chance: many even it out
			got := make([]int, len(c.streams))
			on := make([]int, len(c.streams))
			for i, s := range c.streams {
				on[i] = s.on
			}
			playOn(t, newDecider(c.limit), quota.Settings{}, c.instances, on, func(s *scene) {
				for _, p := range s.proxies {
					p.interval = time.Second
				}
				s.wait(300 * time.Millisecond)
				for step := range seconds * 20 {
					for i, one := range c.streams {
						for range (step+1)*one.rate/20 - step*one.rate/20 {
							if step < one.from*20 {
								continue
							}
							if allowed := s.request(i, "v", 1); step >= (seconds-measured)*20 {
								got[i] += allowed
							}
						}
					}
					s.wait(50 * time.Millisecond)
				}
			})
			all := 0
			for i := range got {
				got[i] /= measured
				all += got[i]
			}
			for i := range got {
				if got[i] < c.atLeast[i] || all < c.all || all > 101 {
					t.Errorf("%v a second: want at least %v, %d in all", got, c.atLeast, c.all)
					break
				}
			}
			t.Log(got)
		})
	}
}

func TestWithoutLimits(t *testing.T) {
	d := newDecider("10 per 1m fixed_window")
	limit := d.limit
	d.limit = func(value string) *stint.Limit {
		if value == "free" {
			return nil
		}
		return limit(value)
	}
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		s.request(0, "free", 1)
		s.want("no rule", s.log(0), "ALLOW_ALL")
		for range 10 {
			s.request(0, "free", 10)
			s.wait(5 * time.Second)
		}
		s.want("it is renewed before it expires", s.log(0), "ALLOW_ALL ALLOW_ALL ALLOW_ALL")
		// The rules change.
		d.mu.Lock()
		d.limit, d.set = limit, new(rules.Set)
		d.mu.Unlock()
		s.wait(5 * time.Second)
		if log := s.log(0); !strings.HasPrefix(log, "DENY_ALL") {
			t.Errorf("now there is a limit: %q", log)
		}
		// A ban.
		d.mu.Lock()
		d.banned, d.set = time.Minute, new(rules.Set)
		d.mu.Unlock()
		s.wait(5 * time.Second)
		if n := s.request(0, "free", 1); n != 0 {
			t.Error("a banned bucket was allowed")
		}
		d.mu.Lock()
		d.banned, d.set = 0, new(rules.Set)
		d.mu.Unlock()
		s.wait(65 * time.Second)
		if n := s.request(0, "free", 1); n != 1 {
			t.Error("the ban is over")
		}
	})
}

// An assignment has 32 bits.
func TestLargeLimit(t *testing.T) {
	d := newDecider("100000000000 per 1h fixed_window")
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		s.request(0, "v", 1)
		s.want("first", s.log(0), "DENY_ALL 2147483648")
		s.proxies[0].buckets[idText(bucketID("k", "v"))].allowed = 1 << 31
		s.wait(5 * time.Second)
		s.want("second", s.log(0), "DENY_ALL 4294967295")
	})
}

// Before there are rules nothing is assigned, so that proxies do what they were configured to do.
func TestNotLoaded(t *testing.T) {
	d := newDecider("10 per 1m fixed_window")
	var loaded atomic.Bool
	play(t, d, quota.Settings{Loaded: loaded.Load}, 1, func(s *scene) {
		s.request(0, "v", 1)
		s.wait(5 * time.Second)
		s.want("not loaded", s.log(0), "")
		loaded.Store(true)
		s.wait(time.Second)
		s.want("loaded", s.log(0), "DENY_ALL 2") // it knows that the proxy needs little
	})
}

// In the shadow mode of the service, nothing is refused, and all is charged.
func TestShadow(t *testing.T) {
	d := newDecider("10 per 1m fixed_window debt 50")
	play(t, d, quota.Settings{Shadow: true}, 1, func(s *scene) {
		if n := s.request(0, "v", 30); n != 30 {
			t.Errorf("%d allowed", n)
		}
		s.wait(5 * time.Second)
		s.want("shadow", s.log(0), "ALLOW_ALL")
		if d.charged != 30 || d.taken != 0 {
			t.Errorf("%d charged, %d taken", d.charged, d.taken)
		}
	})
}

// What a proxy lets through without an assignment is charged, so that the others have less.
func TestUseWithoutAnAssignment(t *testing.T) {
	for _, refused := range []bool{true, false} {
		d := newDecider("10 per 1m fixed_window debt 50")
		d.refused = refused
		play(t, d, quota.Settings{}, 1, func(s *scene) {
			s.proxies[0].connect, s.decider = nil, d
			s.request(0, "v", 1)
			s.request(0, "v", 29)
			s.proxies[0].connect = func() func(*rlqs.RateLimitQuotaUsageReports) error {
				s.wires[0] = dial(s.service, func() time.Duration { return 0 })
				return s.wires[0].send
			}
			s.proxies[0].opened, s.proxies[0].next = 1, time.Now().Add(time.Second)
			s.wait(2 * time.Second)
			s.want("nothing is left", s.log(0), "DENY_ALL")
			if n := d.remaining("v"); n != 0 {
				t.Errorf("charged refused %t: %d remaining after 30 were used", refused, n)
			}
		})
	}
}

func TestIdleBucketsAreAbandoned(t *testing.T) {
	d := newDecider("100 per 1h fixed_window")
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		s.request(0, "v", 1)
		s.request(0, "busy", 1)
		for range 26 {
			s.wait(5 * time.Second)
			s.request(0, "busy", 1)
		}
		if !slices.Contains(s.proxies[0].log, "abandon") || s.proxies[0].buckets[idText(bucketID("k", "v"))] != nil {
			t.Errorf("not abandoned: %q", s.log(0))
		}
		if s.proxies[0].buckets[idText(bucketID("k", "busy"))] == nil {
			t.Error("a bucket in use was abandoned")
		}
		if n := d.remaining("v"); n != 99 {
			t.Errorf("remaining %d: one was used of 100", n)
		}
		if _, n := s.service.Size(); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		s.log(0)
		s.request(0, "v", 1) // it begins again
		s.want("again", s.log(0), "DENY_ALL 49")
	})
}
