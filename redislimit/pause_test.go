package redislimit_test

import (
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// A pause by one instance is the answer to the PauseAsk of another one, grows, and is lifted, through all
// the layers of Open. The instance that paused knows it without the store.
func TestPause(t *testing.T) {
	server := redistest.Start(t)
	limiter := func() *stint.Limiter {
		s, err := redislimit.Open(t.Context(), server.URL()+unhurried)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return stint.NewLimiter(s)
	}
	one, two := limiter(), limiter()
	pause := func(d time.Duration) {
		t.Helper()
		// A server that takes longer than fleet.DefaultDeadline is away for a moment: that is an error.
		await.Until(t, "the store keeps a pause of "+d.String(), func() bool { return one.Pause(t.Context(), "k", d) == nil })
	}
	limit := stint.MustLimit("a: 100000 per 1h") // awaiting takes units, too
	left := func(l *stint.Limiter) time.Duration {
		t.Helper()
		d, err := l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}, stint.PauseAsk("k")}}, nil)
		if err != nil || !d.Allowed && (d.Outcome != stint.Limited || d.Limit != nil || d.Key != "k" || d.Penalty != nil) {
			t.Errorf("%+v, %v", d, err)
		}
		return d.RetryAfter
	}
	for _, step := range []struct{ pause, least, most time.Duration }{
		{time.Hour, 50 * time.Minute, time.Hour},
		{time.Minute, 50 * time.Minute, time.Hour},
		{5 * time.Hour, 4 * time.Hour, 5 * time.Hour},
		{0, 0, 0},
		{time.Hour, 50 * time.Minute, time.Hour},
	} {
		pause(step.pause)
		// What another instance remembers of a pause is invalidated soon after.
		await.Until(t, "the other one sees a pause of "+step.pause.String(), func() bool {
			got := left(two)
			return got >= step.least && got <= step.most
		})
	}
	if d, err := two.Allow(t.Context(), "k", limit); err != nil || !d.Allowed {
		t.Errorf("without a PauseAsk: %+v, %v", d, err)
	}
	server.Kill()
	_ = one.Pause(t.Context(), "gone", time.Hour)
	if d, err := one.Allow(t.Context(), "gone", limit); err != nil || d.Outcome != stint.Limited || !d.Remembered {
		t.Errorf("without the store: %+v, %v", d, err)
	}
}
