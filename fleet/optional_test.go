package fleet_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// strangers is a wrapper that knows nothing of what its Store can do beside Take.
type strangers struct{ inner stint.Store }

func (s strangers) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	return s.inner.Take(ctx, r, out)
}

func (s strangers) Unwrap() stint.Store { return s.inner }

// all is a Store that can do everything, on two servers that three instances share.
type all struct{ *notifier }

func (all) Heartbeat(context.Context) (int, error)      { return 3, nil }
func (all) Partition(_ *stint.Limit, key string) string { return key[:1] }
func (all) Partitions() []string                        { return []string{"a", "b"} }

// What a wrapper cannot do does not hide what its Store can: around each layer and inside of
// it, whatever a stranger puts between.
func TestWrappersHideNothing(t *testing.T) {
	for name, wrap := range map[string]func(stint.Store) (stint.Store, func()){
		"Fallback": func(s stint.Store) (stint.Store, func()) {
			f := &fleet.Fallback{Store: s, Instances: 1}
			return f, f.Close
		},
		"Denials": func(s stint.Store) (stint.Store, func()) {
			d := &fleet.Denials{Store: s}
			return d, d.Close
		},
		"Leases": func(s stint.Store) (stint.Store, func()) {
			l := &fleet.Leases{Store: s, Live: func() int64 { return 1 }}
			return l, l.Close
		},
		"Store": func(s stint.Store) (stint.Store, func()) {
			f := fleet.New(s, fleet.Options{})
			return f, f.Close
		},
	} {
		t.Run(name, func(t *testing.T) {
			inner, end := wrap(strangers{all{newNotifier()}})
			defer end()
			s := strangers{strangers{inner}}
			ctx, limit, p := t.Context(), stint.MustLimit("2 per 1h"), penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour})
			l := stint.NewLimiter(s)
			for range 2 {
				if d, err := l.Allow(ctx, "a", limit); !d.Allowed || err != nil {
					t.Fatal(d, err)
				}
			}
			r := &stint.Request{Asks: []stint.Ask{{Key: "a", Limit: limit, Penalty: p}}}
			if err := stint.Refund(ctx, s, r); err != nil {
				t.Error(err)
			}
			if d, err := l.Peek(ctx, "a", limit); d.Remaining != 1 || err != nil {
				t.Error(d, err)
			}
			if i, ok := stint.As[stint.Inspector](s); !ok {
				t.Error("no Inspector")
			} else if all, err := i.Inspect(ctx, "a", []*stint.Limit{limit}); err != nil || len(all) != 1 || !all[0].Held {
				t.Error(all, err)
			}
			if d, err := stint.Violate(ctx, s, r); d.Outcome != stint.Banned || err != nil {
				t.Error(d, err)
			}
			if record, err := l.Record(ctx, "a", p); record.Bans != 1 || err != nil {
				t.Error(record, err)
			}
			for record, err := range l.Banned(ctx) {
				if record.Key != "a" || err != nil {
					t.Error(record, err)
				}
			}
			if err := stint.Reset(ctx, s, r); err != nil {
				t.Error(err)
			}
			if d, err := l.Peek(ctx, "a", limit); d.Remaining != 2 || err != nil {
				t.Error(d, err)
			}
			held, id := stint.MustLimit("2 in_flight"), stint.NewHoldID()
			if d, err := l.Take(ctx, &stint.Request{Hold: id, Asks: []stint.Ask{{Key: "a", Limit: held}}}, nil); d.Held != 1 || err != nil {
				t.Error(d, err)
			}
			if h, ok := stint.As[stint.Holder](s); !ok {
				t.Error("no Holder")
			} else if all, err := h.Held(ctx, "a", []*stint.Limit{held}); err != nil || len(all) != 1 || all[0].ID != id {
				t.Error(all, err)
			}
			calls := []stint.HoldCall{{Key: "a", Limit: held, Hold: id, Units: 1}}
			if stint.Holds(ctx, s, time.Time{}, calls); !calls[0].Found || calls[0].Held != 0 || calls[0].Err != nil {
				t.Errorf("%+v", calls[0])
			}
			if m, ok := stint.As[fleet.Membership](s); !ok {
				t.Error("it counts no instances")
			} else if n, err := m.Heartbeat(ctx); n != 3 || err != nil {
				t.Error(n, err)
			}
			if p, ok := stint.As[fleet.Partitioned](s); !ok || p.Partition(nil, "b1") != "b" {
				t.Error("it has no partitions")
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			connected := false
			if n, ok := stint.As[fleet.Notifier](s); !ok || n.Notify(ended, fleet.Listener{Connected: func(bool) { connected = true }}) != nil || !connected {
				t.Error("it does not notify")
			}
		})
	}
}

// What the innermost Store cannot do is ErrUnsupported through all wrappers.
func TestWrappersAddNothing(t *testing.T) {
	bare := struct{ stint.Store }{new(stint.Memory)}
	s := fleet.New(strangers{bare}, fleet.Options{})
	defer s.Close()
	r := &stint.Request{Asks: []stint.Ask{{Key: "a", Limit: stint.MustLimit("2 per 1h")}}}
	for name, err := range map[string]error{
		"Refund": stint.Refund(t.Context(), s, r),
		"Reset":  stint.Reset(t.Context(), s, r),
		"Violate": func() error {
			_, err := stint.Violate(t.Context(), s, r)
			return err
		}(),
		"Record": func() error {
			_, err := stint.NewLimiter(s).Record(t.Context(), "a", penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour}))
			return err
		}(),
		"Holds": func() error {
			calls := []stint.HoldCall{{Key: "a", Limit: stint.MustLimit("2 in_flight"), Hold: stint.NewHoldID(), Units: 1}}
			stint.Holds(t.Context(), s, time.Time{}, calls)
			return calls[0].Err
		}(),
		"Take with a Hold": func() error {
			_, err := s.Take(t.Context(), &stint.Request{Hold: stint.NewHoldID(), Asks: []stint.Ask{{Key: "a", Limit: stint.MustLimit("2 in_flight")}}}, nil)
			return err
		}(),
	} {
		if !errors.Is(err, stint.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Requests in one go pass through the Take of a wrapper that knows only that.
func TestBatchesDoNotBypassWrappers(t *testing.T) {
	s := &onlyTake{strangers: strangers{new(stint.Memory)}}
	rs := make([]stint.Request, 3)
	for i := range rs {
		rs[i].Asks = []stint.Ask{{Key: "a", Limit: stint.MustLimit("2 per 1h")}}
	}
	answers := make([]stint.Answer, len(rs))
	stint.NewLimiter(s).TakeBatch(t.Context(), rs, answers)
	if s.calls != 3 || !answers[1].Allowed || answers[2].Allowed {
		t.Errorf("%d calls of its Take, %+v", s.calls, answers)
	}
}

type onlyTake struct {
	strangers
	calls int
}

func (s *onlyTake) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	s.calls++
	return s.strangers.Take(ctx, r, out)
}
