package server_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stintdev/stint"
)

// readsOnce is a Store that counts reads of each count and record. Each time that it was read, another
// client takes a unit of all.
type readsOnce struct {
	*stint.Memory
	reads map[string]int
}

func (s *readsOnce) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	for i := range r.Asks {
		if a := &r.Asks[i]; a.Limit != nil && a.Limit.Spec().Name != "stint dry run" {
			s.reads[fmt.Sprint(a.Key, " ", a.Limit.ID())]++
		}
	}
	d, err := s.Memory.Take(ctx, r, out)
	for _, a := range r.Asks {
		if a.Limit != nil && a.Limit.Spec().Name != "stint dry run" {
			_, _ = s.Memory.Take(ctx, &stint.Request{Asks: []stint.Ask{{Key: a.Key, Limit: a.Limit}}}, nil)
		}
	}
	return d, err
}

func (s *readsOnce) Record(ctx context.Context, key string, p *stint.Penalty) (stint.Record, error) {
	s.reads["record of "+key]++
	return s.Memory.Record(ctx, key, p)
}

// An explanation reads each count and each record once, so that its numbers and its conclusion agree
// although others take units meanwhile.
func TestExplainReadsOnce(t *testing.T) { synctest.Test(t, explainReadsOnce) }

func explainReadsOnce(t *testing.T) {
	store := &readsOnce{new(stint.Memory), map[string]int{}}
	s := newServer(t, `
rules:
  - {name: a, key: '"all"', limits: [2 per 1h fixed_window, 9 per 1d], penalty: {ban_after: 9, ban_for: 1h}}
  - {name: b, key: '"other"', limits: [3 per 1h fixed_window]}
  - {name: c, key: '"all"', limits: [1 per 1h fixed_window], mode: shadow}
`, over(store))
	for _, want := range []string{"allowed", "allowed", "limited", "limited"} {
		clear(store.reads)
		x, err := s.Explain(t.Context(), from("192.0.2.1"))
		if err != nil {
			t.Fatal(err)
		}
		refused := false
		for i := range x.Rules {
			for _, l := range x.Rules[i].Limits {
				refused = refused || !l.Allowed && x.Rules[i].Mode == "enforce"
			}
		}
		if refused != (x.Outcome != "allowed") || x.Outcome != want {
			t.Errorf("%s, want %s: %q", x.Outcome, want, x.Words)
		}
		if len(store.reads) != 5 {
			t.Errorf("%d counts and records are read, want 5", len(store.reads))
		}
		for what, n := range store.reads {
			if n != 1 {
				t.Errorf("%s is read %d times", what, n)
			}
		}
	}
}
