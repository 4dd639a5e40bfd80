package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// The vectors of holds, as a rules file and recorded events: the simulator gives every number, in
// memory and in Redis, and for both forms of a limit.
func TestSimulateHoldVectors(t *testing.T) {
	data, err := os.ReadFile("../limittest/testdata/holds-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Name   string
			Limits []map[string]any
			Events []map[string]any
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, name string, store stint.Store, text func(map[string]any) string, limits, events []map[string]any) {
		t.Helper()
		var texts []string
		for _, l := range limits {
			texts = append(texts, text(l))
		}
		var in strings.Builder
		for _, e := range events {
			e = maps.Clone(e)
			delete(e, "outcome")
			delete(e, "decisions")
			for _, us := range []string{"t_us", "cost"} {
				if n, ok := e[us].(float64); ok {
					e[us] = int64(n)
				}
			}
			if e["settle"] == nil && e["renew"] == nil {
				e["attrs"] = map[string]any{"key": "a"}
			}
			line, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			in.Write(append(line, '\n'))
		}
		var out strings.Builder
		s := newServer(t, "rules: [{name: r, key: attrs.key, limits: ["+strings.Join(texts, ", ")+"]}]", over(store))
		if err := s.Simulate(t.Context(), strings.NewReader(in.String()), &out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		lines := strings.SplitAfter(out.String(), "\n")
		if len(lines) != len(events)+1 {
			t.Fatalf("%s: %d lines for %d events", name, len(lines)-1, len(events))
		}
		for i, e := range events {
			var got struct {
				Outcome   string           `json:"outcome"`
				Decisions []map[string]any `json:"decisions"`
			}
			if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
				t.Fatal(err)
			}
			for _, d := range got.Decisions {
				delete(d, "delay_us") // the vectors leave it out
			}
			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			want, err := json.Marshal(map[string]any{"outcome": e["outcome"], "decisions": e["decisions"]})
			if err != nil {
				t.Fatal(err)
			}
			if canonical(t, string(text)) != canonical(t, string(want)) {
				t.Fatalf("%s, event %d: %s, want %s; limits %v", name, i, text, want, texts)
			}
		}
	}
	t.Run("memory", func(t *testing.T) {
		for _, c := range file.Cases {
			run(t, c.Name, new(stint.Memory), limitText, c.Limits, c.Events)
			run(t, c.Name, new(stint.Memory), flow, c.Limits, c.Events)
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
			run(t, c.Name, s, flow, c.Limits, c.Events)
			closing.Go(s.Close)
		}
	})
	if len(file.Cases) < 40 {
		t.Fatal(fmt.Sprint(len(file.Cases), " cases"))
	}
}

// limitText is a limit on one line.
func limitText(l map[string]any) string {
	n := func(name string) int64 { f, _ := l[name].(float64); return int64(f) }
	text := fmt.Sprintf("%d per %dus %s", n("amount"), n("period_us"), l["algorithm"])
	if l["algorithm"] == "in_flight" {
		text = fmt.Sprintf("%d in_flight", n("amount"))
	}
	for _, name := range []string{"burst", "buckets", "hold_us", "retry_us", "debt"} {
		if l[name] != nil {
			word, us := strings.CutSuffix(name, "_us")
			text += fmt.Sprintf(" %s %d", word, n(name))
			if us {
				text += "us"
			}
		}
	}
	return text
}
