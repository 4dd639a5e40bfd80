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
)

// The vectors of the contract, as rules files and recorded events: the simulator
// gives every number, in memory and in Redis. What is 0 or -1 in them means what
// it means there.
func TestSimulateVectors(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../limittest/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []vectorCase }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	onVectors(t, len(file.Cases), func(t *testing.T, i int, store stint.Store) {
		file.Cases[i].run(t, store)
	})
}

// onVectors runs a test of n vectors with a new Store each in memory, and with a namespace each of
// one Redis. The short form has each fourth: the kit has them all, over Memory and over Redis.
func onVectors(t *testing.T, n int, test func(t *testing.T, i int, store stint.Store)) {
	step := 1
	if testing.Short() {
		step = 4
	}
	t.Run("memory", func(t *testing.T) {
		for i := 0; i < n; i += step {
			test(t, i, new(stint.Memory))
		}
	})
	t.Run("redis", func(t *testing.T) {
		url := redistest.Start(t).URL()
		var closing sync.WaitGroup // each Close waits a second for the connection that listens
		defer closing.Wait()
		for i := step / 2; i < n; i += step { // others than in memory
			s := connectRedis(t, url, fmt.Sprint("vector-", i))
			test(t, i, s)
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

// The vectors of holds, as a rules file and recorded events: the simulator gives every number, in
// memory and in Redis, and for both forms of a limit.
func TestSimulateHoldVectors(t *testing.T) {
	t.Parallel()
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
	onVectors(t, len(file.Cases), func(t *testing.T, i int, store stint.Store) {
		c := &file.Cases[i]
		run(t, c.Name, store, flow, c.Limits, c.Events)
	})
	for _, c := range file.Cases {
		run(t, c.Name, new(stint.Memory), limitText, c.Limits, c.Events)
	}
	if len(file.Cases) < 40 {
		t.Fatal(len(file.Cases), "cases")
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
