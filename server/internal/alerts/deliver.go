package alerts

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint/server/internal/reports"
	"github.com/stintdev/stint/server/rules"
)

const (
	// mostItems is the most alerts in a message. Others are in the next one.
	mostItems = 50
	// mostItemKeys is the most keys of an alert in a message. Others are only counted.
	mostItemKeys = 100
	leastRetry   = Every
	mostRetry    = 5 * time.Minute
)

// delivery has what was sent to a webhook. Messages are made from the difference between the states and this,
// so that nothing piles up while the webhook does not answer.
type delivery struct {
	to *Webhook

	mu      sync.Mutex
	alerts  map[string]sent  // by name
	keys    map[string]int64 // the last one sent, by instance; see reportedKey.Seq
	busy    bool             // a message is on its way
	fails   int              // in a row
	retryAt time.Time        // by the machine's clock
	why     string           // of the last failure
	savedAt time.Time        // when this was last reported; zero: not yet
}

// sentState is delivery, as it is reported.
type sentState struct {
	Alerts map[string]sent  `json:"alerts"`
	Keys   map[string]int64 `json:"keys,omitempty"`
}

// takeOver reads what the former evaluator has sent. A new webhook does not get earlier events.
func (d *delivery) takeOver(text []byte, states map[string]*state, keys map[string]int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var was sentState
	if text == nil || json.Unmarshal(text, &was) != nil {
		was = sentState{Alerts: map[string]sent{}, Keys: keys}
		for name, s := range states {
			if !s.Resolved.IsZero() {
				was.Alerts[name] = sent{Fired: s.Fired, Resolved: true}
			}
		}
	}
	if d.alerts == nil {
		d.alerts, d.keys = map[string]sent{}, map[string]int64{}
	}
	d.savedAt = time.Time{}
	for name, s := range was.Alerts {
		if mine, ok := d.alerts[name]; !ok || mine.Fired.Before(s.Fired) {
			d.alerts[name] = s
		}
	}
	for id, seq := range was.Keys {
		d.keys[id] = max(d.keys[id], seq)
	}
}

// owes reports whether a webhook must still be told that an alert is over.
func (d *delivery) owes(name string, s *state, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.due(d.alerts[name], 0, now)
}

// accepted returns the webhooks' accepted messages about the last firings.
func (a *Alerts) accepted() map[string]accepted {
	all := map[string]accepted{}
	for _, d := range a.webhooks {
		d.mu.Lock()
		for name, s := range a.states {
			if last, ok := d.alerts[name]; ok && !s.Fired.IsZero() && last.Fired.Equal(s.Fired) && !last.At.IsZero() {
				n := all[name]
				n.By++
				if last.At.After(n.At) {
					n.At = last.At
				}
				all[name] = n
			}
		}
		d.mu.Unlock()
	}
	return all
}

// failing returns why the last message was not accepted; empty: it was.
func (d *delivery) failing() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.why
}

// deliver sends each webhook one message with everything not sent yet, if there is anything.
func (a *Alerts) deliver(ctx context.Context, set *rules.Set) {
	silenced := silencedBy(a.o.Silences(), a.o.Now())
	for _, d := range a.webhooks {
		m, after := a.message(d, set, silenced)
		if m == nil {
			continue
		}
		a.sending.Go(func() { a.send(ctx, d, m, after) })
	}
}

// silencedBy returns a function that returns the silence that mutes an alert; empty: none.
func silencedBy(all []rules.Silence, now time.Time) func(alert string) string {
	return func(alert string) string {
		for i := range all {
			s := &all[i]
			if (s.Alert == "" || s.Alert == alert) && (s.Until.IsZero() || now.Before(s.Until)) {
				return s.ID
			}
		}
		return ""
	}
}

// message makes the next message to a webhook, and the state of delivery after its acceptance; nil: there is
// none, or it is too early. The webhook is busy until send has returned.
func (a *Alerts) message(d *delivery, set *rules.Set, silenced func(string) string) (*Message, sentState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.alerts == nil {
		d.alerts, d.keys = map[string]sent{}, map[string]int64{}
	}
	if d.busy || time.Now().Before(d.retryAt) {
		return nil, sentState{}
	}
	now := a.o.Now()
	m := &Message{At: now}
	after := sentState{maps.Clone(d.alerts), maps.Clone(d.keys)}
	maps.DeleteFunc(after.Alerts, func(name string, _ sent) bool { return a.states[name] == nil })
	for _, name := range slices.Sorted(maps.Keys(a.states)) {
		s := a.states[name]
		if !s.due(d.alerts[name], d.to.again(), now) {
			continue
		}
		if silenced(name) != "" {
			if !s.Resolved.IsZero() && !d.alerts[name].Fired.Equal(s.Fired) { // it was never sent
				d.alerts[name] = sent{s.Fired, true, now}
				after.Alerts[name] = d.alerts[name]
			}
			continue
		}
		if len(m.Items) == mostItems {
			break
		}
		m.Items = append(m.Items, itemOf(name, s, alertOf(set, name)))
		after.Alerts[name] = sent{s.Fired, !s.Resolved.IsZero(), now}
	}
	a.addKeys(m, d, &after, set, silenced)
	if len(m.Items) == 0 {
		d.keys = after.Keys // of silenced alerts
		return nil, sentState{}
	}
	d.busy = true
	return m, after
}

// alertOf returns the alert of a name; nil: the rules no longer have it.
func alertOf(set *rules.Set, name string) *rules.Alert {
	i := slices.IndexFunc(set.Alerts, func(a rules.Alert) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &set.Alerts[i]
}

func itemOf(name string, s *state, a *rules.Alert) Item {
	i := Item{Name: name, Severity: s.Severity, Labels: s.Labels, Value: s.Value, Fired: s.Fired, Resolved: s.Resolved}
	if a != nil {
		i.When, i.Text = a.When, a.Message
	}
	return i
}

// addKeys adds the keys that were reported since the last message, an item for each alert.
func (a *Alerts) addKeys(m *Message, d *delivery, after *sentState, set *rules.Set, silenced func(string) string) {
	a.mu.Lock()
	keys := a.keys
	a.mu.Unlock()
	// An instance whose report the store lost may report the same keys again.
	if len(after.Keys) > reports.MaxParts {
		maps.DeleteFunc(after.Keys, func(id string, _ int64) bool { return keys[id] == nil })
	}
	items := map[string]*Item{}
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		of := keys[id]
		last := d.keys[id]
		after.Keys[id] = of[len(of)-1].Seq
		for i := range of {
			k := &of[i]
			alert := alertOf(set, k.Alert)
			if k.Seq <= last || alert == nil || silenced(k.Alert) != "" {
				continue
			}
			item := items[k.Alert]
			if item == nil {
				item = &Item{Name: alert.Name, Severity: alert.Severity, Labels: alert.Labels, When: alert.When, Text: alert.Message, Fired: k.At}
				items[k.Alert] = item
			}
			if len(item.Keys) == mostItemKeys {
				item.More++
				continue
			}
			item.Keys = append(item.Keys, ItemKey{Rule: k.Rule, Limit: k.Limit, Key: rules.Key(a.o.ShownKey(k.Key)), Usage: k.Usage, At: k.At, Until: k.Until})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(items)) {
		m.Items = append(m.Items, *items[name])
	}
}

// send sends a message, and reports the new state of delivery.
func (a *Alerts) send(ctx context.Context, d *delivery, m *Message, after sentState) {
	retry, err := d.to.Send(ctx, m)
	a.o.Delivered(d.to.Name, err == nil)
	if !d.answered(after, retry, err) {
		a.o.Failed("alerts: webhook "+d.to.Name+" did not accept a message", err)
		return
	}
	a.saveSent(context.WithoutCancel(ctx), d)
}

// answered processes the result of a message, and reports whether it was accepted.
func (d *delivery) answered(after sentState, retry time.Duration, err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = false
	if err != nil {
		d.why = err.Error()
		d.retryAt = time.Now().Add(max(min(retry, mostRetry), backoff(d.fails)))
		d.fails++
		return false
	}
	d.alerts, d.keys, d.why, d.fails, d.savedAt = after.Alerts, after.Keys, "", 0, time.Time{}
	return true
}

// backoff is how long to wait after a number of failures in a row: twice as long each time, and partly
// random.
func backoff(fails int) time.Duration {
	d := min(leastRetry<<min(fails, 10), mostRetry)
	return d/2 + rand.N(d/2)
}
