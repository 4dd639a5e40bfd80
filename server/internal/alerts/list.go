package alerts

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

// mostKeysShown is how many keys of an alert List returns.
const mostKeysShown = 100

// List returns the alerts of the rules, as the evaluator last reported them.
func (a *Alerts) List() adminapi.Alerts {
	a.mu.Lock()
	last, keys := a.last, a.keys
	a.mu.Unlock()
	set, now := a.o.Rules(), a.o.Now()
	silenced := silencedBy(a.o.Silences(), now)
	all := adminapi.Alerts{Alerts: []adminapi.Alert{}}
	if now.Sub(last.At) <= lead {
		all.Evaluator = last.Evaluator
	}
	for i := range set.Alerts {
		alert := &set.Alerts[i]
		out := adminapi.Alert{Name: alert.Name, When: alert.When, Message: alert.Message, Severity: alert.Severity, Silence: silenced(alert.Name), State: isUnknown}
		if alert.For > 0 {
			out.For = limittext.Duration(alert.For)
		}
		s := last.Alerts[alert.Name]
		switch {
		case all.Evaluator == "":
		case alert.Usage != nil:
			out.State = isOK
			out.Keys = a.shownKeys(alert.Name, keys)
		case s != nil:
			since := s.Since
			out.State, out.Unknown, out.Value, out.Since = s.shown(), s.Unknown, s.Value, &since
			out.Measured = alert.Measured()
			out.Past = s.past()
			if n, ok := last.Sent[alert.Name]; ok {
				out.Delivered = &adminapi.Delivered{At: n.At, By: n.By, Of: last.Webhooks}
			}
		}
		if out.State == isFiring || len(out.Keys) > 0 {
			out.Error = failures(last.Failing)
		}
		all.Alerts = append(all.Alerts, out)
	}
	return all
}

// past returns the firings of s, the newest first. One that goes on has no end.
func (s *state) past() (all []adminapi.Firing) {
	if s.Is == isFiring {
		all = append(all, adminapi.Firing{Fired: s.Fired})
	}
	for _, f := range s.Past {
		all = append(all, adminapi.Firing{Fired: f.Fired, Resolved: &f.Resolved})
	}
	return all
}

// shownKeys are the keys that were reported for an alert, the newest first.
func (a *Alerts) shownKeys(alert string, keys map[string][]reportedKey) []adminapi.AlertKey {
	var shown []adminapi.AlertKey
	for _, of := range keys {
		for _, k := range of {
			if k.Alert == alert {
				shown = append(shown, adminapi.AlertKey{Rule: k.Rule, Key: rules.Key(a.o.ShownKey(k.Key)), At: k.At, Usage: k.Usage})
			}
		}
	}
	slices.SortFunc(shown, func(a, b adminapi.AlertKey) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Key, b.Key))
	})
	return shown[:min(len(shown), mostKeysShown)]
}

func failures(failing map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(failing)) {
		all = append(all, "webhook "+name+": "+failing[name])
	}
	return strings.Join(all, "; ")
}

// Firing returns how many alerts fire without being silenced.
func (a *Alerts) Firing() (n int64) {
	now := a.o.Now()
	silenced := silencedBy(a.o.Silences(), now)
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.last.At) > lead {
		return 0 // nobody evaluates
	}
	for name, s := range a.last.Alerts {
		if s.shown() == isFiring && silenced(name) == "" {
			n++
		}
	}
	return n
}

// Test sends a test message to all webhooks, and returns their answers.
func (a *Alerts) Test(ctx context.Context, who string) []adminapi.WebhookTest {
	now := a.o.Now()
	m := &Message{At: now, Items: []Item{{
		Name: "stint-test", Severity: "info", Text: "A test by " + plain(who, 100) + ": nothing is wrong.", Fired: now, Resolved: now.Add(time.Second),
	}}}
	out := make([]adminapi.WebhookTest, len(a.webhooks))
	var all sync.WaitGroup
	for i, d := range a.webhooks {
		out[i].Name = d.to.Name
		all.Go(func() {
			if _, err := d.to.Send(ctx, m); err != nil {
				out[i].Error = err.Error()
			}
		})
	}
	all.Wait()
	return out
}

// Check reads the files of the webhooks, and returns an error if one is wrong.
func (a *Alerts) Check() error {
	for _, d := range a.webhooks {
		if err := d.to.Check(); err != nil {
			return fmt.Errorf("webhook %q: %w", d.to.Name, err)
		}
	}
	return nil
}
