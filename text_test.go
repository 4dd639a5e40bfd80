package stint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// What is written as text is read back, and what no value has is refused.
func TestTexts(t *testing.T) {
	type all struct {
		Limit     *stint.Limit
		Algorithm stint.Algorithm
		Outcome   stint.Outcome
		By        stint.Source
		Hold      stint.HoldID
	}
	id := stint.NewHoldID()
	for _, v := range []all{
		{},
		{stint.MustLimit("login: 5 per 1m fixed_window hold 2s"), stint.SlidingWindow, stint.Banned, stint.ByLease, id},
		{stint.MustLimit("4 in_flight"), stint.InFlight, stint.Allowed, stint.ByInstance, id},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var back all
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if back.Limit.String() != v.Limit.String() || back.Limit.ID() != v.Limit.ID() || back.Algorithm != v.Algorithm || back.Outcome != v.Outcome || back.By != v.By || back.Hold != v.Hold {
			t.Errorf("%s became %+v", text, back)
		}
		if v.Limit != nil {
			if d, err := new(stint.Limiter).Allow(t.Context(), "k", back.Limit); err != nil || !d.Allowed {
				t.Errorf("%s: %+v, %v", v.Limit, d, err)
			}
		}
	}
	for _, bad := range []string{`{"Limit": "five"}`, `{"Algorithm": "bucket"}`, `{"Outcome": "denied"}`, `{"By": "redis"}`, `{"Hold": "12"}`} {
		if err := json.Unmarshal([]byte(bad), new(all)); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}

// A Decision may have no Limit, as that of a ban: its methods can be called all the same.
func TestNoLimit(t *testing.T) {
	var l *stint.Limit
	start, end := l.Window(time.Now())
	if l.String() != "no limit" || l.Terms() != "no limit" || l.Spec() != (stint.Spec{}) || l.Capacity() != 0 || l.ID() != "" || l.IsHeld() || !start.IsZero() || !end.IsZero() {
		t.Error("a nil Limit has numbers")
	}
}

func TestDecisionInALog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == "time" || a.Key == "level" || a.Key == "msg" {
			return slog.Attr{}
		}
		return a
	}}))
	penalty, err := stint.NewPenalty(stint.PenaltySpec{Name: "p", WarnAfter: 1})
	if err != nil {
		t.Fatal(err)
	}
	limit := stint.MustLimit("login: 5 per 1m")
	for want, d := range map[string]stint.Decision{
		"d.outcome=undecided": {},
		`d.outcome=allowed d.limit="login: 5 per 1m" d.key=k d.remaining=4 d.reset_after=12s d.by=local`:                  {Allowed: true, Outcome: stint.Allowed, Limit: limit, Key: "k", Remaining: 4, ResetAfter: 12 * time.Second, By: stint.ByLocal},
		`d.outcome=warned d.limit="login: 5 per 1m" d.key=k d.remaining=0 d.retry_after=never d.penalty=p d.violations=1`: {Outcome: stint.Warned, Limit: limit, Key: "k", RetryAfter: stint.Never, Penalty: penalty, Violations: 1},
		`d.outcome=banned d.key=k d.retry_after=1h0m0s d.penalty=p d.violations=0 d.ban_left=1h0m0s`:                      {Outcome: stint.Banned, Key: "k", RetryAfter: time.Hour, BanLeft: time.Hour, Penalty: penalty},
		`d.outcome=limited d.limit="login: 5 per 1m" d.key=k d.remaining=0 d.held=3 d.retry_after=1s`:                     {Outcome: stint.Limited, Limit: limit, Key: "k", Held: 3, RetryAfter: time.Second, Busy: true},
		`d.outcome=allowed d.limit="login: 5 per 1m" d.key=k d.remaining=1 d.delay=2s`:                                    {Allowed: true, Outcome: stint.Allowed, Limit: limit, Key: "k", Remaining: 1, Delay: 2 * time.Second},
	} {
		out.Reset()
		log.Info("", "d", d)
		if got := strings.TrimSpace(out.String()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Of a Limiter without a Store, what is done for several keys meets what its methods count.
func TestCounts(t *testing.T) {
	penalty, err := stint.NewPenalty(stint.PenaltySpec{Name: "p", BanAfter: 2, BanFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	l := new(stint.Limiter)
	if _, err := l.Violate(t.Context(), "a", penalty); err != nil {
		t.Fatal(err)
	}
	d, err := stint.Violate(t.Context(), l.Counts(), &stint.Request{Asks: []stint.Ask{{Key: "a", Penalty: penalty}, {Key: "b", Penalty: penalty}}})
	if err != nil || d.Outcome != stint.Banned || d.Key != "a" {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := stint.Violate(t.Context(), l.Store, &stint.Request{Asks: []stint.Ask{{Key: "a", Penalty: penalty}}}); !errors.Is(err, stint.ErrUnsupported) {
		t.Errorf("without a store: %v", err)
	}
	m := new(stint.Memory)
	if stint.NewLimiter(m).Counts() != stint.Store(m) {
		t.Error("the store is another")
	}
}
