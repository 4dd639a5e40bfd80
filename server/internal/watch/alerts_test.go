package watch

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/alerts"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// usageCases are what a request may meet: no alert about keys, one whose line its key is below,
// and one whose line it is above and which was told.
func usageCases(t testing.TB) map[string]func() {
	t.Helper()
	cases := map[string]func(){}
	for name, alert := range map[string]string{"none": "", "below": "alerts: [{name: near, when: usage > 80% of login}]", "above": "alerts: [{name: near, when: usage > 40% of login}]"} {
		set, err := rules.Parse("r.yaml", []byte("rules: [{name: login, limits: [10 per 1h]}]\n"+alert))
		if err != nil {
			t.Fatal(err)
		}
		w := New(Options{Log: slog.New(slog.DiscardHandler)})
		w.Install(set)
		rule := set.Rules[0]
		of := usageWatcher{alerts: alerts.New(alerts.Options{Rules: func() *rules.Set { return set }, Now: time.Now})}
		e := event{Event: decide.Event{Request: &decide.Request{Verdict: decide.Verdict{Rules: []*rules.Rule{rule}, Each: []stint.Decision{{Limit: rule.Limits[0], Key: "192.0.2.1", Remaining: 5}}}}}, set: w.Current()}
		cases[name] = func() { of.decided(t.Context(), e) }
		cases[name]()
	}
	return cases
}

// Alerts about keys cost a request no allocation.
func TestAllocsOfUsage(t *testing.T) {
	for name, f := range usageCases(t) {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkWatchUsage(b *testing.B) {
	for name, f := range usageCases(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f()
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					f()
				}
			})
		})
	}
}
