package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// scripted is a store whose calls under a limit all go as it was told last, and whose probes go by
// a script: "." is answered, "x" fails. After the script, all probes fail.
type scripted struct {
	stint.Store
	limit  *stint.Limit
	mu     sync.Mutex
	fails  bool
	probes string
	probed int
}

func (s *scripted) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	s.mu.Lock()
	fails := s.fails
	if r.Asks[0].Limit != s.limit {
		fails = s.probed >= len(s.probes) || s.probes[s.probed] == 'x'
		s.probed++
	}
	s.mu.Unlock()
	if fails {
		return stint.Decision{}, errors.New("no")
	}
	return s.Store.Take(ctx, r, out)
}

// set has calls fail from now on, or not.
func (s *scripted) set(fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
}

// Calls, of which "." is answered and "x" fails, cause a probe at the last of them if they ought to,
// and not before.
func TestBreakerCounts(t *testing.T) {
	ms, slowly := time.Millisecond, time.Second
	for _, c := range []struct {
		what    string
		breaker fleet.Breaker
		apart   time.Duration
		calls   string
		opens   bool
	}{
		{"four failures", fleet.Breaker{}, slowly, "xxxx", false},
		{"five failures", fleet.Breaker{}, slowly, "xxxxx", true},
		{"an answer begins the count again", fleet.Breaker{}, slowly, "xxxx.xxxx.xxxx", false},
		{"five failures after an answer", fleet.Breaker{}, slowly, "xxxx.xxxxx", true},
		{"one failure", fleet.Breaker{Failures: 1}, slowly, "...x", true},
		{"three failures", fleet.Breaker{Failures: 3}, slowly, "xx.xxx", true},
		{"it never opens", fleet.Breaker{Failures: -1}, ms, strings.Repeat("x", 100), false},
		{"half of 19 calls in a second", fleet.Breaker{}, ms, "x" + strings.Repeat(".x", 9), false},
		{"half of 20 calls in a second", fleet.Breaker{}, ms, strings.Repeat(".x", 10), true},
		{"fewer than half", fleet.Breaker{}, ms, "." + strings.Repeat(".x", 40), false},
		{"half of 20 calls in two seconds", fleet.Breaker{}, 60 * ms, strings.Repeat(".x", 30), false},
		{"a tenth", fleet.Breaker{Percent: 10}, ms, strings.Repeat(".", 41) + "x.x.x.x.x", true},
		{"less than a tenth", fleet.Breaker{Percent: 10}, ms, strings.Repeat(".", 42) + "x.x.x.x.x", false},
		{"no share", fleet.Breaker{Percent: -1}, ms, strings.Repeat(".x", 100), false},
		{"a share that nothing reaches", fleet.Breaker{Percent: 101}, ms, strings.Repeat("xxxx.", 20), false},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{Store: new(stint.Memory), limit: stint.MustLimit("1000 per 1h")}
				f := &fleet.Fallback{Store: s, Instances: 1, Breaker: c.breaker}
				defer f.Close()
				l := stint.NewLimiter(f)
				for i, call := range c.calls {
					if f.State() != fleet.Closed {
						t.Fatalf("it opened after %q", c.calls[:i])
					}
					s.set(call == 'x')
					d, err := l.Allow(t.Context(), "k", s.limit)
					if want := map[rune]stint.Source{'.': stint.ByStore, 'x': stint.ByLocal}[call]; err != nil || d.By != want {
						t.Fatalf("call %d: %+v, %v", i, d, err)
					}
					synctest.Wait()
					if i < len(c.calls)-1 {
						time.Sleep(c.apart)
					}
				}
				if opened := f.State() == fleet.Open; opened != c.opens {
					t.Errorf("opened: %t", opened)
				}
			})
		})
	}
}

// An open breaker closes after so many probes in a row are answered; one that fails opens it again.
func TestBreakerProbes(t *testing.T) {
	for _, c := range []struct{ probes, told string }{
		{".", ""}, // the store was not away after all
		{"x...", "open, half-open, closed"},
		{"xxx...", "open, half-open, closed"},
		{"x..x...", "open, half-open, open, half-open, closed"},
		{"x.x.x..", "open, half-open, open, half-open, open, half-open, open"},
	} {
		t.Run(c.probes, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{Store: new(stint.Memory), limit: stint.MustLimit("1000 per 1h"), probes: c.probes}
				var told []string
				f := &fleet.Fallback{Store: s, Instances: 1, Breaker: fleet.Breaker{Changed: func(to fleet.BreakerState, why error) {
					if told = append(told, to.String()); (why != nil) != (to == fleet.Open) {
						t.Errorf("%s, because of %v", to, why)
					}
				}}}
				defer f.Close()
				l := stint.NewLimiter(f)
				s.set(true)
				for range 5 {
					if _, err := l.Allow(t.Context(), "k", s.limit); err != nil {
						t.Fatal(err)
					}
				}
				s.set(false)
				time.Sleep(time.Minute)
				synctest.Wait()
				same(t, strings.Join(told, ", "), c.told)
				closed := c.told == "" || strings.HasSuffix(c.told, "closed")
				d, err := l.Allow(t.Context(), "k", s.limit)
				same(t, fmt.Sprint(d.By == stint.ByStore, err), fmt.Sprint(closed, nil))
			})
		})
	}
}
