package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/internal/reports"
	"github.com/stintdev/stint/server/rules"
)

// fleet is what the instances of a test share.
type fleetOf struct {
	reports.Memory
	down     bool // Reports fail
	totals   live.Totals
	set      *rules.Set
	silences []rules.Silence
	hook     *receiver
}

func (f *fleetOf) Report(ctx context.Context, name, part string, text []byte, keep time.Duration) error {
	if f.down {
		return errors.New("the store is away")
	}
	return f.Memory.Report(ctx, name, part, text, keep)
}

func (f *fleetOf) Reported(ctx context.Context, name string) (map[string][]byte, error) {
	if f.down {
		return nil, errors.New("the store is away")
	}
	return f.Memory.Reported(ctx, name)
}

func (f *fleetOf) Claim(ctx context.Context, name, who string, keep time.Duration) (bool, error) {
	if f.down {
		return false, errors.New("the store is away")
	}
	return f.Memory.Claim(ctx, name, who, keep)
}

// receiver is a webhook of kind json that needs no network: it takes the place of a transport.
type receiver struct {
	mu     sync.Mutex
	got    []Message
	ids    []string
	status int // of answers; 0: 200
	calls  int
}

func (r *receiver) RoundTrip(q *http.Request) (*http.Response, error) {
	var m Message
	if err := json.NewDecoder(q.Body).Decode(&m); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	status := r.status
	if status == 0 {
		status = 200
		r.got, r.ids = append(r.got, m), append(r.ids, q.Header.Get("Stint-Message"))
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("")), Header: http.Header{}}, nil
}

// told is the messages as words, and forgets them.
func (r *receiver) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, m := range r.got {
		for _, i := range m.Items {
			text := i.State + " " + i.Name
			for _, k := range i.Keys {
				text += fmt.Sprintf(" %s=%.0f%%", keyText(k.Key), k.Usage*100)
			}
			if i.More > 0 {
				text += fmt.Sprintf(" +%d", i.More)
			}
			all = append(all, text)
		}
	}
	r.got = nil
	return all
}

func newFleet(t *testing.T, file string) *fleetOf {
	t.Helper()
	set, err := rules.Parse("r.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return &fleetOf{set: set, totals: live.Totals{Whole: true, Instances: 1, Counts: live.Counts{Rules: map[string]live.RuleCounts{}}}, hook: &receiver{}}
}

// instance returns an instance of the fleet.
func (f *fleetOf) instance(t *testing.T, id string) *Alerts {
	w := NewWebhook(config.Webhook{Name: "hook", Kind: config.JSON, URL: "http://192.0.2.1/", Timeout: time.Second}, f.hook, "test")
	return New(Options{
		ID: id, Reports: f, Rules: func() *rules.Set { return f.set },
		Totals: func() live.Totals {
			now := f.totals
			now.At = time.Now()
			return now
		},
		Silences: func() []rules.Silence { return f.silences }, Now: time.Now,
		Webhooks: []*Webhook{w}, ShownKey: func(key string) string { return key },
		Failed:    func(what string, err error) { t.Logf("%s: %v", what, err) },
		Delivered: func(string, bool) {}, Missed: func() {},
	})
}

// pass lets requests arrive at a rate for some time, with rounds of the instances.
func (f *fleetOf) pass(t *testing.T, d time.Duration, allowed, refused int64, all ...*Alerts) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(Every)
		f.totals.Outcomes[live.Allowed] += allowed
		f.totals.Outcomes[live.Limited] += refused
		r := f.totals.Rules["login"]
		r[live.Allowed] += allowed
		r[live.Limited] += refused
		f.totals.Rules["login"] = r
		for _, a := range all {
			a.Round(t.Context())
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
	}
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: told %q, want %q", what, got, want)
	}
}

const blocked = `
rules: [{name: login, limits: [10 per 1m]}]
alerts: [{name: blocked, when: block_rate("login") > 0.1, for: 1m, severity: critical, message: Too many.}]
`

func stateOf(t *testing.T, a *Alerts, name string) string {
	t.Helper()
	for _, alert := range a.List().Alerts {
		if alert.Name == name {
			return alert.State
		}
	}
	t.Fatalf("no alert %s", name)
	return ""
}

// The states of an alert, and what is told of them, by one instance.
func TestAlertFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, blocked)
		a := f.instance(t, "a")
		f.pass(t, 20*time.Second, 100, 0, a)
		if s := stateOf(t, a, "blocked"); s != "unknown" {
			t.Fatalf("%s before half a minute has passed", s)
		}
		f.pass(t, time.Minute, 100, 0, a)
		if s := stateOf(t, a, "blocked"); s != "ok" || a.Firing() != 0 {
			t.Fatalf("%s, %d fire", s, a.Firing())
		}
		f.pass(t, 40*time.Second, 50, 50, a)
		if s := stateOf(t, a, "blocked"); s != "pending" {
			t.Fatal(s)
		}
		expect(t, "while it is pending", f.hook.told())
		f.pass(t, time.Minute, 50, 50, a)
		if s := stateOf(t, a, "blocked"); s != "firing" || a.Firing() != 1 {
			t.Fatalf("%s, %d fire", s, a.Firing())
		}
		expect(t, "when it fires", f.hook.told(), "firing blocked")
		f.silences = []rules.Silence{{Note: rules.Note{ID: "s1"}, Alert: "blocked"}}
		if s := stateOf(t, a, "blocked"); s != "firing" || a.Firing() != 0 {
			t.Fatalf("%s, %d fire under a silence", s, a.Firing())
		}
		f.silences = nil
		f.pass(t, 10*time.Minute, 50, 50, a)
		expect(t, "while it fires", f.hook.told())
		f.pass(t, 2*time.Minute, 100, 0, a)
		if s := stateOf(t, a, "blocked"); s != "ok" {
			t.Fatal(s)
		}
		expect(t, "when it is over", f.hook.told(), "resolved blocked")
		f.pass(t, 2*time.Minute, 100, 0, a)
		expect(t, "afterwards", f.hook.told())
		f.pass(t, 15*time.Second, 50, 50, a)
		if s := stateOf(t, a, "blocked"); s != "pending" {
			t.Fatal(s)
		}
		f.pass(t, 5*time.Minute, 100, 0, a) // it held for less than a minute
		expect(t, "after a short rise", f.hook.told())
	})
}

// Of two instances one evaluates. When it is gone, the other goes on: it neither repeats what
// was sent, nor forgets that the alert fires or how long it was pending.
func TestEvaluatorIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, blocked)
		a, b := f.instance(t, "a"), f.instance(t, "b")
		f.pass(t, 3*time.Minute, 50, 50, a, b)
		expect(t, "by both", f.hook.told(), "firing blocked")
		if got, other := a.List(), b.List(); got.Evaluator != "a" || other.Evaluator != "a" || stateOf(t, b, "blocked") != "firing" || b.Firing() != 1 {
			t.Fatalf("%+v and %+v", got, other)
		}
		f.pass(t, 3*time.Minute, 50, 50, b)
		if b.List().Evaluator != "b" {
			t.Fatal("b does not evaluate")
		}
		expect(t, "by the next one", f.hook.told())
		f.pass(t, 20*time.Second, 100, 0, b)
		c := f.instance(t, "c") // b is gone, while the alert fires
		f.pass(t, 3*time.Minute, 100, 0, c)
		expect(t, "by a third", f.hook.told(), "resolved blocked")
		if ids := slices.Compact(slices.Clone(f.hook.ids)); len(ids) != 2 {
			t.Errorf("IDs of messages: %q", f.hook.ids)
		}
	})
}

// A webhook that does not answer is told later, once, with what is true then; and what began
// and ended meanwhile is told as ended.
func TestWebhookIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, blocked)
		a := f.instance(t, "a")
		f.hook.status = 503
		f.pass(t, 4*time.Minute, 50, 50, a)
		if why := a.List().Alerts[0].Error; why != "webhook hook: it answered 503 Service Unavailable" {
			t.Errorf("error %q", why)
		}
		if f.hook.calls < 3 || f.hook.calls > 12 {
			t.Errorf("%d attempts in two minutes", f.hook.calls)
		}
		f.hook.status = 0
		f.pass(t, 6*time.Minute, 50, 50, a)
		expect(t, "when it is back", f.hook.told(), "firing blocked")
		f.hook.status = 500
		f.pass(t, 3*time.Minute, 100, 0, a)
		f.pass(t, 3*time.Minute, 50, 50, a)
		f.pass(t, 3*time.Minute, 100, 0, a)
		f.hook.status = 0
		f.pass(t, 6*time.Minute, 100, 0, a)
		expect(t, "after another episode", f.hook.told(), "resolved blocked")
	})
}

// The list has what an alert is about, when it fired, and what of that was told; another instance
// that takes over has it, too.
func TestPastFirings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, blocked)
		a := f.instance(t, "a")
		for range 7 {
			f.pass(t, 3*time.Minute, 50, 50, a)
			f.pass(t, 3*time.Minute, 100, 0, a)
		}
		f.pass(t, 3*time.Minute, 50, 50, a)
		b := f.instance(t, "b")
		f.pass(t, 2*time.Minute, 50, 50, b)
		f.pass(t, 20*time.Second, 50, 50, b, a)
		for _, one := range []*Alerts{a, b} {
			got := one.List().Alerts[0]
			if got.Message != "Too many." || got.Measured != `block_rate("login")` || got.Value == nil || *got.Value < 0.49 {
				t.Errorf("%q, %s, %v", got.Message, got.Measured, got.Value)
			}
			if len(got.Past) != 6 || got.Past[0].Resolved != nil {
				t.Fatalf("past %+v", got.Past)
			}
			for i, p := range got.Past[1:] {
				if lasted := p.Resolved.Sub(p.Fired); lasted < time.Minute || lasted > 4*time.Minute || !p.Resolved.Before(got.Past[i].Fired) {
					t.Errorf("firing %d lasted %s, from %s", i+1, lasted, p.Fired)
				}
			}
			if d := got.Delivered; d == nil || d.By != 1 || d.Of != 1 || d.At.Before(got.Past[0].Fired) {
				t.Errorf("delivered %+v", d)
			}
		}
	})
}

// A silence mutes; when it ends, what still fires is told, and what is over is not.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, blocked)
		a := f.instance(t, "a")
		silence := func(alert string, d time.Duration) {
			f.silences = []rules.Silence{{Note: rules.Note{ID: "s1", Until: time.Now().Add(d)}, Alert: alert}}
		}
		silence("other", time.Hour)
		f.pass(t, 3*time.Minute, 50, 50, a)
		expect(t, "silence of another", f.hook.told(), "firing blocked")
		silence("", 10*time.Minute)
		if got := a.List().Alerts[0].Silence; got != "s1" {
			t.Errorf("silence %q", got)
		}
		f.pass(t, 3*time.Minute, 100, 0, a)
		expect(t, "silence of all", f.hook.told())
		f.pass(t, 8*time.Minute, 100, 0, a)
		expect(t, "after it", f.hook.told(), "resolved blocked")
		silence("blocked", 10*time.Minute)
		f.pass(t, 3*time.Minute, 50, 50, a)
		f.pass(t, 10*time.Minute, 100, 0, a)
		expect(t, "an episode within a silence", f.hook.told())
		silence("blocked", 5*time.Minute)
		f.pass(t, 8*time.Minute, 50, 50, a)
		expect(t, "it still fires after the silence", f.hook.told(), "firing blocked")
	})
}

// While Reports do not answer, the last evaluator goes on, and one that never reached them does,
// too; others do not.
func TestReportsAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, blocked)
		a, b := f.instance(t, "a"), f.instance(t, "b")
		f.pass(t, time.Minute, 100, 0, a, b)
		f.down = true
		f.pass(t, 3*time.Minute, 50, 50, a, b)
		expect(t, "without reports", f.hook.told(), "firing blocked")
		f.down = false
		f.pass(t, 3*time.Minute, 50, 50, a, b)
		expect(t, "with them", f.hook.told())
		f.down = true
		c := f.instance(t, "c")
		f.pass(t, 3*time.Minute, 50, 50, c)
		expect(t, "an instance that never reached them", f.hook.told(), "firing blocked")
		f.down = false
		f.pass(t, 3*time.Minute, 100, 0, c)
		expect(t, "when it reaches them", f.hook.told(), "resolved blocked")
	})
}

// An alert that is removed from the rules while it fires is told as resolved, and forgotten.
func TestAlertIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, blocked)
		a := f.instance(t, "a")
		f.pass(t, 3*time.Minute, 50, 50, a)
		expect(t, "first", f.hook.told(), "firing blocked")
		f.set = newFleet(t, "rules: [{name: login, limits: [10 per 1m]}]").set
		f.pass(t, time.Minute, 50, 50, a)
		expect(t, "without the alert", f.hook.told(), "resolved blocked")
		if len(a.states) != 0 {
			t.Errorf("states %v", a.states)
		}
	})
}

// An alert whose condition is not known neither fires nor resolves.
func TestUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, `
rules: [{name: login, limits: [10 per 1m]}]
alerts:
  - {name: few, when: instances() < 2}
  - {name: quiet, when: rate() < 1}
  - {name: share, when: block_rate() > 0.1}
`)
		a := f.instance(t, "a")
		f.totals.Whole = false
		f.pass(t, 2*time.Minute, 50, 50, a)
		expect(t, "a part of the fleet", f.hook.told(), "firing share")
		if few, quiet := stateOf(t, a, "few"), stateOf(t, a, "quiet"); few != "unknown" || quiet != "unknown" {
			t.Errorf("%s, %s", few, quiet)
		}
		f.totals.Whole = true
		f.pass(t, 2*time.Minute, 0, 0, a)
		expect(t, "all of it", f.hook.told(), "firing few", "firing quiet", "resolved share")
		f.totals.Whole = false
		f.pass(t, 2*time.Minute, 500, 0, a)
		expect(t, "a part again", f.hook.told())
		few := a.List().Alerts[0]
		if few.State != "firing" || !few.Unknown || few.Value != nil || a.Firing() != 2 {
			t.Errorf("it fires, and nobody knows whether it should: %+v, %d fire", few, a.Firing())
		}
	})
}

// The longest outage of the window counts, also when it lies between two points that are kept.
func TestPeaks(t *testing.T) {
	for _, window := range [...]time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, time.Hour} {
		var m meter
		m.track([]rules.Alert{{Window: window, Condition: &rules.Condition{Op: "measure", Measure: storeDown}}})
		start := time.Now()
		down := func(at time.Duration) time.Duration { // 20 seconds of each half hour
			return max(0, at%(30*time.Minute)-(30*time.Minute-20*time.Second))
		}
		for at := time.Duration(0); at < 3*time.Hour; at += Every {
			m.add(&live.Totals{Down: down(at)}, start.Add(at))
			want := time.Duration(0)
			for back := max(0, at-window+Every); back <= at; back += Every {
				want = max(want, down(back))
			}
			got, known := m.value(storeDown, window)
			over := window < 20*time.Minute && at%(30*time.Minute) == 25*time.Minute // for longer than any window
			if !known || got < want.Seconds() || got > 20 || over && got > 0 {
				t.Fatalf("at %s, window %s: %v, want %s", at, window, got, want)
			}
		}
	}
}

const usageOf = `
rules: [{name: login, limits: [10 per 1h]}]
alerts: [{name: near, when: usage > 80% of login}]
`

func decision(t *testing.T, f *fleetOf, key string, left int64) *stint.Decision {
	t.Helper()
	return &stint.Decision{Limit: f.set.Rules[0].Limits[0], Key: key, Remaining: left}
}

// A key is told once in a period, whichever instances notice it and however often.
func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, usageOf)
		a, b := f.instance(t, "a"), f.instance(t, "b")
		alert := &f.set.Alerts[0]
		use := func(key string, left int64) {
			for range 3 {
				a.Decided(alert, decision(t, f, key, left))
				b.Decided(alert, decision(t, f, key, left))
			}
		}
		f.pass(t, time.Minute, 0, 0, a, b)
		use("ann", 2)
		use("ann", 1)
		use("bob\x00x\x00", 0)
		f.pass(t, time.Minute, 0, 0, a, b)
		expect(t, "two keys", f.hook.told(), "firing near ann=90% bob, x=100%")
		use("ann", 0)
		f.pass(t, 50*time.Minute, 0, 0, a, b)
		expect(t, "in the same period", f.hook.told())
		if keys := b.List().Alerts[0].Keys; len(keys) != 2 || keys[0].Usage < 0.9 {
			t.Errorf("%+v", keys)
		}
		f.pass(t, 10*time.Minute, 0, 0, a, b)
		use("ann", 0)
		f.pass(t, time.Minute, 0, 0, a, b)
		expect(t, "in the next period", f.hook.told(), "firing near ann=100%")
		c := f.instance(t, "c") // the others are gone
		c.Decided(alert, decision(t, f, "ann", 0))
		f.pass(t, time.Minute, 0, 0, c)
		expect(t, "by another evaluator", f.hook.told())
	})
}

// A flood of keys is bounded in memory, in claims, and in the message.
func TestUsageFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, usageOf)
		a := f.instance(t, "a")
		missed := 0
		a.usage.o.Missed = func() { missed++ }
		f.pass(t, time.Minute, 0, 0, a)
		for i := range 50_000 {
			a.Decided(&f.set.Alerts[0], decision(t, f, fmt.Sprint("k", i), 0))
		}
		if missed != 50_000-mostCrossings || len(a.usage.told) > mostTold {
			t.Errorf("%d missed, %d remembered", missed, len(a.usage.told))
		}
		f.pass(t, 5*time.Minute, 0, 0, a)
		keys := 0
		for _, m := range f.hook.got {
			for _, i := range m.Items {
				keys += len(i.Keys) + i.More
			}
		}
		if keys != mostCrossings {
			t.Errorf("%d keys told, want %d", keys, mostCrossings)
		}
		a.Decided(&f.set.Alerts[0], decision(t, f, "k40000", 0)) // it was missed, and comes again
		f.hook.told()
		f.pass(t, time.Minute, 0, 0, a)
		expect(t, "a missed key", f.hook.told(), "firing near k40000=100%")
	})
}

// A key that was claimed while the answer was lost is told, and once.
func TestUsageWithoutReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, usageOf)
		a := f.instance(t, "a")
		f.pass(t, time.Minute, 0, 0, a)
		f.down = true
		a.Decided(&f.set.Alerts[0], decision(t, f, "ann", 0))
		f.pass(t, time.Minute, 0, 0, a)
		expect(t, "while the store is away", f.hook.told())
		f.down = false
		f.pass(t, time.Minute, 0, 0, a)
		expect(t, "when it is back", f.hook.told(), "firing near ann=100%")
	})
}

// Without alerts nothing is called.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, "rules: [{name: login, limits: [10 per 1m]}]")
		a := f.instance(t, "a")
		calls := testing.AllocsPerRun(100, func() { a.Round(t.Context()) })
		if calls > 2 {
			t.Errorf("%v allocations", calls)
		}
		if ok, _ := f.Claim(t.Context(), evaluatorClaim, "x", time.Second); !ok {
			t.Error("it claims")
		}
	})
}

// What alerts take is no more than the bounds of an instance say (docs/bounds.md).
func TestBytesOfAlerts(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes memory")
	}
	var file strings.Builder
	file.WriteString("rules: [{name: login, limits: [10 per 1h]}]\nalerts:\n  - {name: near, when: usage > 80% of login}\n")
	for i := range 199 {
		fmt.Fprintf(&file, "  - {name: %s%d, when: latency(0.%03d) > 0, window: 1h, labels: {text: %s}, message: %s}\n",
			strings.Repeat("n", 60), i, i+1, strings.Repeat("x", 490), strings.Repeat("m", 500))
	}
	f := newFleet(t, file.String())
	f.totals.DecideTimes[3] = 1
	a := f.instance(t, "a")
	at := time.Now()
	a.o.Totals = func() live.Totals { f.totals.At = at; return f.totals }
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 720 { // an hour
		at = at.Add(Every)
		f.totals.DecideTimes[3]++
		if i%100 == 99 || i > 710 {
			a.Round(t.Context())
			a.sending.Wait()
		} else {
			a.meter.track(f.set.Alerts)
			a.meter.add(&f.totals, at)
		}
	}
	key := strings.Repeat("k", stint.MaxKey-8)
	for i := range mostTold + mostCrossings {
		if i < mostTold {
			a.usage.first("near", "x", fmt.Sprint(i), time.Hour)
		}
		a.Decided(&f.set.Alerts[0], decision(t, f, fmt.Sprint(key, i), 0))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := int64(after.HeapAlloc) - int64(before.HeapAlloc); took > config.AlertBytes || a.Firing() != 199 {
		t.Errorf("%d bytes, want up to %d; %d fire", took, config.AlertBytes, a.Firing())
	} else {
		t.Logf("%d KiB", took>>10)
	}
	runtime.KeepAlive(a)
}
