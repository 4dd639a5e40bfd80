package limittest

import (
	"slices"
	"testing"

	"github.com/stintdev/stint"
)

// checkNothingAndUnlimited calls a Limiter under limits of 0 and unlimited ones, alone and with one
// that counts.
func checkNothingAndUnlimited(t testing.TB, e *env) {
	free, alsoFree := stint.MustLimit("unlimited"), stint.MustLimit("unlimited")
	for _, text := range []string{"0 per 1m", "0 per 1h leaky_bucket", "0 per 1m sliding_log", "0 per month", "0 per 1m fixed_window hold", "0 in_flight"} {
		s := extremes{TB: t, store: e.open(), none: stint.MustLimit("}none: " + text), some: stint.MustLimit("}some: 3 per 1000h fixed_window")}
		s.limiter = stint.NewLimiter(s.store)
		none, some := stint.Ask{Key: "k", Limit: s.none}, stint.Ask{Key: "k", Limit: s.some}
		end, again := stint.Ask{Key: "k", Limit: free}, stint.Ask{Key: "k", Limit: alsoFree}

		s.want("nothing", []bool{false}, []int64{0}, none)
		s.want("nothing, a peek", []bool{s.none.Spec().Algorithm != stint.InFlight}, []int64{0}, stint.Ask{Key: "k", Limit: s.none, Peek: true})
		s.want("without end", []bool{true}, []int64{stint.Unlimited}, end)
		s.want("without end, at any cost", []bool{true}, []int64{stint.Unlimited}, stint.Ask{Key: "k", Limit: free, Cost: 1 << 60})
		s.want("beside nothing", []bool{true, false, true}, []int64{3, 0, stint.Unlimited}, some, none, end)
		s.want("beside without end", []bool{true, true, true}, []int64{stint.Unlimited, 2, stint.Unlimited}, end, some, again)
		punished := end
		punished.Penalty = strict
		s.want("without end, under a penalty", []bool{true}, []int64{stint.Unlimited}, punished)

		if _, ok := stint.As[stint.Violator](s.store); !ok {
			continue
		}
		none.Penalty = strict
		if d, err := s.limiter.Take(t.Context(), &stint.Request{Asks: []stint.Ask{some, none}}, nil); err != nil || d.Outcome != stint.Banned || d.Limit != s.none {
			t.Errorf("%s with a penalty: %s, %v; a refusal is a violation", s.none, show(&d), err)
		}
		if d, err := s.limiter.Take(t.Context(), &stint.Request{Asks: []stint.Ask{punished}}, nil); err != nil || d.Outcome != stint.Banned || d.Limit != nil {
			t.Errorf("without end, of one who is banned: %s, %v", show(&d), err)
		}
	}
}

// isExtreme reports whether l lets nothing or everything pass.
func isExtreme(l *stint.Limit) bool { return l.Capacity() == 0 || l.IsUnlimited() }

type extremes struct {
	testing.TB
	store      stint.Store
	limiter    *stint.Limiter
	none, some *stint.Limit
}

// want calls Take and TakeBatch, and refunds or cancels all allowed requests but the first.
func (s *extremes) want(what string, allowed []bool, remaining []int64, asks ...stint.Ask) {
	s.Helper()
	all := !slices.Contains(allowed, false)
	check := func(way string, d *stint.Decision, each []stint.Decision, err error) {
		s.Helper()
		if err != nil || d.Allowed != all || !all && (d.RetryAfter != stint.Never || d.Limit != s.none || d.Busy) {
			s.Fatalf("%s, %s, by %s: %s, %v", s.none, what, way, show(d), err)
		}
		for i := range each {
			x := &each[i]
			if x.Allowed != allowed[i] || x.Remaining != remaining[i] || x.Limit != asks[i].Limit || x.Limit != s.some && (x.ResetAfter != 0 || x.Held != 0) {
				s.Fatalf("%s, %s, by %s, ask %d: %s", s.none, what, way, i, show(x))
			}
		}
		if !all {
			return
		}
		for i := range each {
			if each[i].Limit == s.some {
				if err := s.limiter.Reset(s.Context(), "k", s.some); err != nil {
					s.Skipf("%T cannot reset: %v", s.store, err)
				}
			}
		}
	}
	each := make([]stint.Decision, len(asks))
	d, err := s.limiter.Take(s.Context(), &stint.Request{Asks: asks}, each)
	check("Take", &d, each, err)
	answers := []stint.Answer{{Each: make([]stint.Decision, len(asks))}}
	s.limiter.TakeBatch(s.Context(), []stint.Request{{Asks: asks}}, answers)
	check("TakeBatch", &answers[0].Decision, answers[0].Each, answers[0].Err)
	if _, ok := stint.As[stint.Holder](s.store); ok {
		held, d, err := s.limiter.Reserve(s.Context(), &stint.Request{Asks: asks})
		check("Reserve", &d, nil, err)
		if err := held.Settle(s.Context(), 5); err != nil {
			s.Fatalf("%s, %s: Settle: %v", s.none, what, err)
		}
		if all {
			_ = s.limiter.Reset(s.Context(), "k", s.some)
		}
		charged, err := s.limiter.Charge(s.Context(), "k", asks[0].Limit, 0)
		if err != nil && asks[0].Limit.Spec().Algorithm != stint.InFlight || charged != 0 {
			s.Fatalf("%s, %s: Charge: %d, %v", s.none, what, charged, err)
		}
	}
}
