package server_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// For debugging, the log has each decision with the state of each limit, and keys as privacy allows.
func TestDecisionsInTheLog(t *testing.T) {
	for level, want := range map[slog.Level]bool{slog.LevelInfo: false, slog.LevelDebug: true} {
		var log bytes.Buffer
		s := newServer(t, `rules: [{name: both, key: '"ann"', cost: 2, limits: [3 per 1h fixed_window, 10 per 1h]}]`, func(c *server.Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
		})
		for range 2 {
			if _, err := s.Decide(t.Context(), &rules.Input{}, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		text := log.String()
		if strings.Contains(text, "msg=decided") != want {
			t.Errorf("%s: %s", level, text)
		}
		for _, part := range []string{"outcome=allowed by=store", `both.0.limit="3 per 1h fixed_window"`, "both.0.key=ann", "both.0.remaining=1", "both.0.used=2", "both.1.remaining=8",
			"outcome=limited", "both.0.allowed=false", "both.0.retry_after="} {
			if strings.Contains(text, part) != (want || part == "outcome=limited") {
				t.Errorf("%s: %s: %s", level, part, text)
			}
		}
	}
}

// A descriptor that allows nothing is logged as its file has it.
func TestNothingAllowedInTheLog(t *testing.T) {
	const file = "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: hour, requests_per_unit: 0}}\n"
	set, err := rules.ParseFiles([]rules.File{{Name: "d.yaml", Data: []byte(file), Envoy: true}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := server.New(server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer s.Close()
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	for _, cost := range []int64{1, 3} {
		log.Reset()
		in := rules.Input{Descriptors: &rules.Descriptors{Domain: "d", List: []rules.Descriptor{{Cost: cost, Entries: []rules.Entry{{Key: "k", Value: "v"}}}}}}
		v, err := s.Decide(t.Context(), &in, time.Time{})
		if err != nil || v.Allowed {
			t.Fatal(v, err)
		}
		if text := log.String(); !strings.Contains(text, "cost="+string(rune('0'+cost))+` limit="0 per 1h`) {
			t.Errorf("cost %d: %s", cost, text)
		}
	}
}
