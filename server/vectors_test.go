package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// The vectors of the contract, as rules files and recorded events: the simulator
// gives every number, in memory and in Redis. What is 0 or -1 in them means what
// it means there.
func TestSimulateVectors(t *testing.T) {
	data, err := os.ReadFile("../limittest/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []vectorCase }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	t.Run("memory", func(t *testing.T) {
		for _, c := range file.Cases {
			c.run(t, new(stint.Memory))
		}
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t)
		var closing sync.WaitGroup // each Close waits a second for the connection that listens
		defer closing.Wait()
		for _, c := range file.Cases {
			s, err := redislimit.Connect(t.Context(), server.URL(), redislimit.Options{Namespace: c.Name})
			if err != nil {
				t.Fatal(err)
			}
			c.run(t, s)
			closing.Go(s.Close)
		}
	})
}

type vectorCase struct {
	Name    string
	Limits  []map[string]any
	Penalty map[string]any
	Events  []struct {
		At        int64 `json:"t_us"`
		Cost      int64
		Outcome   string
		Decisions []map[string]any
		BanLeft   int64 `json:"ban_left_us"`
	}
}

// flow is a mapping of YAML on one line, with durations for the fields in µs.
func flow(fields map[string]any) string {
	var parts []string
	for name, value := range fields {
		if n, ok := value.(float64); ok {
			value = int64(n)
		}
		if duration, ok := strings.CutSuffix(name, "_us"); ok {
			parts = append(parts, fmt.Sprintf("%s: %dus", duration, value))
		} else {
			parts = append(parts, fmt.Sprintf("%s: %v", name, value))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (c *vectorCase) run(t *testing.T, store stint.Store) {
	t.Helper()
	var limits []string
	for _, l := range c.Limits {
		limits = append(limits, flow(l))
	}
	rule := "name: r, key: attrs.key, limits: [" + strings.Join(limits, ", ") + "]"
	if c.Penalty != nil {
		rule += ", penalty: " + flow(c.Penalty)
	}
	var events, want strings.Builder
	for _, e := range c.Events {
		fmt.Fprintf(&events, `{"t_us":%d,"cost":%d,"attrs":{"key":"a"}}`+"\n", e.At, e.Cost)
		if e.Decisions == nil {
			e.Decisions = []map[string]any{}
		}
		for _, d := range e.Decisions {
			if d["delay_us"] == nil {
				d["delay_us"] = 0
			}
		}
		line, err := json.Marshal(map[string]any{"outcome": e.Outcome, "rule": "r", "decisions": e.Decisions, "ban_left_us": e.BanLeft})
		if err != nil {
			t.Fatal(err)
		}
		want.Write(append(line, '\n'))
	}
	var got strings.Builder
	s := newServer(t, "rules: [{"+rule+"}]", over(store))
	if err := s.Simulate(t.Context(), strings.NewReader(events.String()), &got); err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	wants, gots := strings.SplitAfter(want.String(), "\n"), strings.SplitAfter(got.String(), "\n")
	if len(gots) != len(wants) {
		t.Fatalf("%s: %d lines for %d events", c.Name, len(gots)-1, len(wants)-1)
	}
	for i := range wants[:len(wants)-1] {
		if canonical(t, gots[i]) != canonical(t, wants[i]) {
			t.Fatalf("%s, event %d: %s, want %s", c.Name, i, gots[i], wants[i])
		}
	}
}

// canonical is JSON with its members in order.
func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
