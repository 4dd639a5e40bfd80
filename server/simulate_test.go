package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
)

// simulated is what a simulation in a store writes, and how it ends.
func simulated(t testing.TB, rules string, events io.Reader, store stint.Store) (string, error) {
	t.Helper()
	var out bytes.Buffer
	patient := func(c *server.Config) { c.Settings.DecisionTimeout = time.Minute }
	err := newServer(t, rules, over(store), patient).Simulate(context.Background(), events, &out)
	return out.String(), err
}

// TestSimulate replays the events in testdata/simulate.txt.
func TestSimulate(t *testing.T) {
	golden.Run(t, "testdata/simulate.txt", func(t *testing.T, given string) string {
		file, events, _ := strings.Cut(given, "-- events\n")
		events = strings.NewReplacer("«CR»", "\r", "«no end»\n", "").Replace(events)
		out, err := simulated(t, file, strings.NewReader(events), new(stint.Memory))
		if err != nil {
			out += "error: " + err.Error() + "\n"
		}
		return out
	})
}

// Long lines are read up to 2 MiB, and what was simulated before an error is there.
func TestSimulateLongLines(t *testing.T) {
	const rules = `rules: []`
	line := func(n int) string {
		const frame = `{"t_us":0,"attrs":{"x":""}}` + "\n"
		return strings.Replace(frame, `""`, `"`+strings.Repeat("x", n-len(frame))+`"`, 1)
	}
	fits, tooLong := line(2<<20), line(2<<20+1)
	out, err := simulated(t, rules, strings.NewReader(fits+fits), new(stint.Memory))
	if err != nil || strings.Count(out, "\n") != 2 {
		t.Errorf("%d lines, %v", strings.Count(out, "\n"), err)
	}
	out, err = simulated(t, rules, strings.NewReader(fits+tooLong+fits), new(stint.Memory))
	if err == nil || err.Error() != "line 2: longer than 2 MiB" || strings.Count(out, "\n") != 1 {
		t.Errorf("%d lines, %v", strings.Count(out, "\n"), err)
	}
	failing := io.MultiReader(strings.NewReader("{\"t_us\":0}\n"), iotest.ErrReader(errors.New("disk on fire")))
	out, err = simulated(t, rules, failing, new(stint.Memory))
	if err == nil || err.Error() != "line 2: disk on fire" || strings.Count(out, "\n") != 1 {
		t.Errorf("%q, %v", out, err)
	}
}

// It ends when it is told to, also in memory.
func TestSimulateCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var out bytes.Buffer
	lines := 0
	endless := readerFunc(func(b []byte) (int, error) {
		if lines++; lines == 3 {
			cancel()
		}
		return copy(b, "{\"t_us\":0}\n"), nil
	})
	err := newServer(t, `rules: []`).Simulate(ctx, endless, &out)
	if !errors.Is(err, context.Canceled) || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// A store that fails ends the simulation.
func TestSimulateStoreFails(t *testing.T) {
	const held = `rules: [{name: client, key: client.ip, limits: [10 per 1m fixed_window hold]}]`
	for _, c := range []struct {
		about, rules string
		fails        int // the first call of the store that does; the line about it is the second
		lines        []string
	}{
		{"a request", generous, 1, []string{`{"t_us":0}`, `{"t_us":0,"client":"192.0.2.1"}`}},
		{"a settlement", held, 2, []string{`{"t_us":0,"client":"192.0.2.1","hold":"h"}`, `{"t_us":0,"settle":"h"}`}},
		{"a renewal", held, 2, []string{`{"t_us":0,"client":"192.0.2.1","hold":"h"}`, `{"t_us":0,"renew":"h"}`}},
		{"a charge", held, 1, []string{`{"t_us":0}`, `{"t_us":0,"client":"192.0.2.1","charge":true}`}},
	} {
		store := &limittest.Faulty{Store: new(stint.Memory), Fault: func(call int) (f limittest.Fault) {
			if call >= c.fails {
				f.Err = limittest.ErrFault
			}
			return f
		}}
		out, err := simulated(t, c.rules, strings.NewReader(strings.Join(c.lines, "\n")), store)
		if !errors.Is(err, limittest.ErrFault) || !strings.HasPrefix(err.Error(), "line 2: ") || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %q, %v", c.about, out, err)
		}
	}
}

// A hold of a simulation is settled by what it held unless the event says more, and what is wrong with an
// event about holds is a line of its own.
func TestSimulateHolds(t *testing.T) {
	const file = `rules: [{name: tokens, key: client.ip, limits: [100 per 1h fixed_window hold, 5 per 1m fixed_window]}, {name: watch, key: client.ip, penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}]`
	var events strings.Builder
	all := []struct{ event, want string }{
		{`"hold":"a","cost":5,"client":"192.0.2.1"`, `"outcome":"allowed"`},
		{`"hold":"b","cost":40,"client":"192.0.2.2"`, `"outcome":"limited"`}, // which holds nothing
		{`"settle":"a"`, `"outcome":"settled","rule":"","decisions":[{"remaining":95,"reset_after_us":3600000000,"charged":5},{"remaining":0,`},
		{`"settle":"a"`, `"outcome":"unknown","rule":"","decisions":[{"remaining":95,"reset_after_us":3600000000,"charged":0},`},
		{`"settle":"b"`, `"outcome":"unknown","rule":"","decisions":[{"remaining":100,`},
		{`"settle":"c"`, `"outcome":"unknown","rule":"","detail":"no event before has the hold \"c\"","decisions":[]`},
		{`"settle":"a","cost":-1`, `"outcome":"malformed"`},
		{`"charge":true,"cost":-1,"client":"192.0.2.1"`, `"outcome":"malformed"`},
		{`"charge":true,"cost":7,"client":"192.0.2.1"`, `"outcome":"charged","rule":"","decisions":[{"remaining":88,"reset_after_us":3600000000,"charged":7},{"remaining":0,"reset_after_us":60000000,"charged":7}],`},
	}
	for _, c := range all {
		fmt.Fprintf(&events, "{\"t_us\":1800000000000000,%s}\n", c.event)
	}
	out, err := simulated(t, file, strings.NewReader(events.String()), new(stint.Memory))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(lines) != len(all) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, c := range all {
		if !strings.Contains(lines[i], c.want) {
			t.Errorf("%s: %s, want %s", c.event, lines[i], c.want)
		}
	}
}

const everyKind = `
blocklist: ['operation == "blocked"']
rules:
  - {name: bucket, match: attrs.which < 6, key: attrs.key, limits: [50 per 10s burst 7]}
  - {name: leaky, match: 'attrs.which in [1, 5, 8]', key: client.ip, limits: [20 per 1s leaky_bucket burst 5]}
  - name: fixed
    match: 'attrs.which in [2, 5, 6]'
    key: '[attrs.key, client.ip]'
    limits: [9 per 1s fixed_window, 300 per 24h sliding_window]
    penalty: {warn_after: 2, ban_after: 4, ban_for: 1s, growth: 2, forget_after: 20s, max_ban: 10s}
  - {name: log, match: 'attrs.which in [3, 6, 7]', key: attrs.key, limits: [30 per 5s sliding_log, 999983 per 24h burst 2999949]}
  - {name: window, match: 'attrs.which in [4, 7]', key: client.ip, limits: [40 per 2s sliding_window buckets 4], penalty: {ban_after: 2, ban_for: 500ms}}
  - {name: watched, match: 'attrs.which % 2 == 0', key: client.ip, limits: [3 per 1s fixed_window, 10 per 10s], mode: shadow, penalty: {warn_after: 3, ban_after: 9, ban_for: 2s}}
  - {name: watched-log, key: attrs.key, limits: [10 per 1s sliding_log], mode: shadow}
`

// randomEvents are many, of all kinds, from some instant on, on a clock that steps
// back now and then.
func randomEvents(n int, seed uint64, at int64) string {
	r := rand.New(rand.NewPCG(seed, 7))
	var b strings.Builder
	for range n {
		if r.IntN(4) > 0 {
			at += r.Int64N(40_000) - 4_000
		}
		if r.IntN(200) == 0 {
			at -= r.Int64N(5_000_000)
		}
		event := map[string]any{
			"t_us":   at,
			"attrs":  map[string]any{"which": r.IntN(10), "key": fmt.Sprint("k", r.IntN(5))},
			"client": fmt.Sprintf("192.0.2.%d", r.IntN(4)),
		}
		switch r.IntN(20) {
		case 0, 1:
			event["cost"] = r.IntN(4)
		case 2:
			event["cost"] = r.IntN(400)
		case 3:
			event["operation"] = "blocked"
		case 4:
			delete(event, "client")
		}
		line, err := json.Marshal(event)
		if err != nil {
			panic(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// A simulation in Redis says the same as one in memory, to the last byte.
func TestSimulationsAreEqual(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	n := 5000
	if testing.Short() {
		n = 1000
	}
	for seed, at := range []int64{1770000000000000, 1 << 26, 3 << 50} {
		store := openRedis(t, redis.URL(), fmt.Sprint("test-", seed))
		events := randomEvents(n, uint64(seed), at)
		inMemory, err := simulated(t, everyKind, strings.NewReader(events), new(stint.Memory))
		if err != nil {
			t.Fatal(err)
		}
		inRedis, err := simulated(t, everyKind, strings.NewReader(events), store)
		if err != nil {
			t.Fatal(err)
		}
		if inRedis != inMemory {
			a, b, e := strings.Split(inMemory, "\n"), strings.Split(inRedis, "\n"), strings.Split(events, "\n")
			for i := range a {
				if a[i] != b[i] {
					t.Fatalf("seed %d, line %d: %s\nmemory %s\nredis  %s", seed, i+1, e[i], a[i], b[i])
				}
			}
		}
		for _, outcome := range []string{"allowed", "limited", "warned", "banned", "blocked"} {
			if n := strings.Count(inMemory, `{"outcome":"`+outcome); n < 3 {
				t.Errorf("only %d %s", n, outcome)
			}
		}
	}
}

// Each line has the fields that are documented, of the types that are, and no more.
func TestSimulationShape(t *testing.T) {
	out, err := simulated(t, everyKind, strings.NewReader(randomEvents(2000, 9, 1770000000000000)), new(stint.Memory))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var got struct {
			Outcome   *string
			Rule      *string
			Decisions []struct {
				Allowed      *bool
				Limit        *int64
				Remaining    *int64
				RetryAfterUS *int64 `json:"retry_after_us"`
				ResetAfterUS *int64 `json:"reset_after_us"`
				DelayUS      *int64 `json:"delay_us"`
			}
			BanLeftUS *int64 `json:"ban_left_us"`
		}
		if err := d.Decode(&got); err != nil || got.Outcome == nil || got.Rule == nil || got.BanLeftUS == nil || got.Decisions == nil {
			t.Fatalf("%s: %v", line, err)
		}
		if banned := *got.Outcome == "banned"; banned != (*got.BanLeftUS > 0) {
			t.Errorf("ban: %s", line)
		}
		for _, d := range got.Decisions {
			if d.Allowed == nil || d.Limit == nil || d.Remaining == nil || d.RetryAfterUS == nil || d.ResetAfterUS == nil || d.DelayUS == nil {
				t.Fatal(line)
			}
			if *d.RetryAfterUS < -1 || *d.Allowed != (*d.RetryAfterUS == 0) || *d.Remaining < 0 {
				t.Errorf("decision: %s", line)
			}
		}
	}
}

func BenchmarkSimulate(b *testing.B) {
	const n = 10_000
	events := randomEvents(n, 1, 1770000000000000)
	s := newServer(b, everyKind, func(c *server.Config) { c.Settings.MaxKeys = 1 << 20 })
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Simulate(context.Background(), strings.NewReader(events), io.Discard); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*b.N), "ns/event")
}
