package server_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// secondsAway is a store of two servers: that of limits of less than a minute is away.
type secondsAway struct{ stint.Store }

func (secondsAway) Partition(l *stint.Limit, _ string) string {
	if stint.Internal(friend.Of{}).UnderAMinute(l) {
		return "seconds"
	}
	return "first"
}

func (secondsAway) Partitions() []string { return []string{"first", "seconds"} }

func (s secondsAway) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	for _, a := range r.Asks {
		if s.Partition(a.Limit, a.Key) == "seconds" {
			return stint.Decision{}, errors.New("connection refused")
		}
	}
	return s.Store.Take(ctx, r, out)
}

// An outage of the server of limits of less than a minute is seen without requests, and also where no
// breaker opens. The rest of the store decides.
func TestSecondsAway(t *testing.T) {
	set, err := rules.Parse("rules.yaml", []byte(`rules: [{name: a, key: client.ip, limits: [5 per 1s]}]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, failures := range []int{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			c := server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.DiscardHandler), Limiter: stint.NewLimiter(secondsAway{new(stint.Memory)})}
			c.Settings.Breaker.Failures = failures
			s := server.New(c)
			defer s.Close()
			s.Follow(t.Context())
			time.Sleep(30 * time.Second)
			w := httptest.NewRecorder()
			s.Probes().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/metrics", nil))
			if !strings.Contains(w.Body.String(), "\nstint_store_down_seconds 30\n") {
				t.Errorf("with failures %d, stint_store_down_seconds is not 30", failures)
			}
			if err := s.StoreError(); err != nil {
				t.Errorf("the first server decides: %v", err)
			}
		})
	}
}
