// Package alerts evaluates the alerts of the rules for a fleet, and sends them to webhooks.
//
// One instance evaluates at a time: the owner of the claim "alerts". It keeps the states of the alerts in the
// report "alerts", so that the next evaluator continues there. Each instance looks for keys that use much of
// a limit among its own decisions, and claims each key before it reports it.
package alerts

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/stintdev/stint/server/internal/live"
	"github.com/stintdev/stint/server/internal/reports"
	"github.com/stintdev/stint/server/rules"
)

const (
	// Every is how often alerts are evaluated.
	Every = 5 * time.Second
	// lead is how long a claim to evaluate lasts. It is extended at each evaluation.
	lead = 3 * Every
	// callTimeout bounds a call of Reports.
	callTimeout = 2 * time.Second
	// keepState is how long states are kept while nobody evaluates.
	keepState = 24 * time.Hour
	// saveSentEvery is how often the sent messages are reported, in addition to after each message.
	saveSentEvery = time.Minute
)

// The names of the claim and of reports.
const (
	evaluatorClaim = "alerts"
	stateReport    = "alerts"      // of the evaluator: statePart, and sentPart for each webhook
	keysReport     = "alerts-keys" // a part for each instance
	statePart      = "state"
	sentPart       = "sent-" // and the name of the webhook
)

// Options has the parts of a server that Alerts need. All must be given, except for Webhooks.
type Options struct {
	// ID names this instance; it is new with each start.
	ID      string
	Reports reports.Reports
	// Totals returns the counters of the fleet.
	Totals func() live.Totals
	// Rules returns the rules in force.
	Rules func() *rules.Set
	// Silences returns the silences in force, some of which may have ended.
	Silences func() []rules.Silence
	// Now is the time of the fleet.
	Now      func() time.Time
	Webhooks []*Webhook
	// ShownKey returns a key as it may be shown.
	ShownKey func(key string) string
	// Failed logs a failure, and may leave out repeated ones. The text never contains a secret.
	Failed func(what string, err error)
	// Delivered is called for each message to a webhook, with whether it was accepted.
	Delivered func(webhook string, ok bool)
	// Missed is called for each key that did not fit.
	Missed func()
}

// Alerts evaluates the alerts of the rules. It may be used from many goroutines at once.
type Alerts struct {
	o     Options
	usage usage

	evaluating sync.Mutex // guards what follows: one round at a time
	meter      meter
	tracked    *rules.Set // that meter tracks
	leading    bool
	reached    bool // Reports has answered before
	// read is the evaluator's report as last read, in case it is lost. nil: this instance evaluates.
	read map[string][]byte
	// heard is when this instance last learned that another one evaluates, or failed to ask, by the machine's
	// clock; zero: never.
	heard    time.Time
	states   map[string]*state
	webhooks []*delivery
	sending  sync.WaitGroup

	mu   sync.Mutex
	last fleetState // the evaluator's last report
	keys map[string][]reportedKey
}

// fleetState is the evaluator's report.
type fleetState struct {
	Evaluator string            `json:"evaluator"`
	At        time.Time         `json:"at"`
	Alerts    map[string]*state `json:"alerts"`
	// Failing says why webhooks cannot be reached, by their names.
	Failing map[string]string `json:"failing,omitempty"`
	// Sent has the alerts about whose last firing webhooks have accepted a message, and Webhooks is how many
	// webhooks there are.
	Sent     map[string]accepted `json:"sent,omitempty"`
	Webhooks int                 `json:"webhooks,omitempty"`
}

// accepted is how many webhooks accepted a message about an alert's last firing, and when the last of them
// did.
type accepted struct {
	By int       `json:"by"`
	At time.Time `json:"at"`
}

// New returns Alerts. Nothing happens until Run or Round is called.
func New(o Options) *Alerts {
	a := &Alerts{o: o}
	for _, w := range o.Webhooks {
		a.webhooks = append(a.webhooks, &delivery{to: w})
	}
	a.usage.init(&a.o)
	return a
}

// Run evaluates until ctx is done, and then waits for messages that are being sent.
func (a *Alerts) Run(ctx context.Context) {
	defer a.sending.Wait()
	ticker := time.NewTicker(Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.Round(ctx)
		}
	}
}

// Round reports keys, and evaluates all alerts if this instance is the evaluator.
func (a *Alerts) Round(ctx context.Context) {
	a.evaluating.Lock()
	defer a.evaluating.Unlock()
	set := a.o.Rules()
	a.usage.report(ctx)
	if len(set.Alerts) == 0 && len(a.states) == 0 {
		a.leading = false
		a.remember(fleetState{}, nil)
		return
	}
	was := a.leading
	if a.leading = (was || a.isOverdue()) && a.claim(ctx); !a.leading {
		a.states = nil
		a.follow(ctx)
		return
	}
	if !was || !a.reached {
		a.leading = a.takeOver(ctx)
	}
	if !a.leading {
		return
	}
	a.evaluate(set)
	a.readKeys(ctx, set)
	a.save(ctx)
	a.deliver(ctx, set)
}

// isOverdue reports whether the evaluator seems to be gone. Until then this instance does not claim: after a
// flush or an outage of the store, the evaluator knows more than it had reported, and should go on.
func (a *Alerts) isOverdue() bool { return a.heard.IsZero() || time.Since(a.heard) >= lead }

// claim reports whether this instance evaluates. If Reports do not answer, the last evaluator
// goes on, and so does an instance that has never reached them: alerts are about failures of the
// store, and two messages are better than none.
func (a *Alerts) claim(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	mine, err := a.o.Reports.Claim(ctx, evaluatorClaim, a.o.ID, lead)
	if err != nil {
		a.o.Failed("alerts: it is not known which instance evaluates them", err)
		return a.leading || !a.reached
	}
	return mine
}

// takeOver reads the former evaluator's report, and keeps what this instance already knows.
func (a *Alerts) takeOver(ctx context.Context) bool {
	before, err := a.readState(ctx)
	if err != nil {
		a.o.Failed("alerts: their states cannot be read", err)
		return !a.reached
	}
	keys, err := a.reported(ctx, keysReport)
	if err != nil {
		a.o.Failed("alerts: keys cannot be read", err)
		return !a.reached
	}
	if a.states == nil {
		a.states = map[string]*state{}
	}
	for name, s := range before.Alerts {
		if mine := a.states[name]; s != nil && (mine == nil || mine.Fired.IsZero()) {
			a.states[name] = s
		}
	}
	last := map[string]int64{}
	if before.Evaluator != "" { // otherwise nobody has evaluated yet, and the keys are new
		last = lastReported(decodeKeys(keys))
	}
	for _, w := range a.webhooks {
		w.takeOver(a.read[sentPart+w.to.Name], a.states, last)
	}
	a.reached, a.read = true, nil
	return true
}

func (a *Alerts) reported(ctx context.Context, name string) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return a.o.Reports.Reported(ctx, name)
}

// readState reads the evaluator's report. Parts that the store has lost since the last reading, as after a
// flush, stay. The state is zero if there is none.
func (a *Alerts) readState(ctx context.Context) (f fleetState, err error) {
	parts, err := a.reported(ctx, stateReport)
	if err != nil {
		return f, err
	}
	for name, text := range a.read {
		if parts[name] == nil {
			parts[name] = text
		}
	}
	a.read = parts
	if text := parts[statePart]; text != nil && json.Unmarshal(text, &f) != nil {
		return fleetState{}, nil // of another version: start again
	}
	return f, nil
}

// follow reads the evaluator's report, to show it.
func (a *Alerts) follow(ctx context.Context) {
	f, err := a.readState(ctx)
	if err != nil {
		a.heard = time.Now()
		a.o.Failed("alerts: their states cannot be read", err)
		return
	}
	a.reached = true
	if !f.At.Equal(a.last.At) { // only rounds write last
		a.heard = time.Now()
	}
	keys, err := a.reported(ctx, keysReport)
	if err != nil {
		a.o.Failed("alerts: keys cannot be read", err)
		return
	}
	a.remember(f, decodeKeys(keys))
}

// remember stores the data for List.
func (a *Alerts) remember(f fleetState, keys map[string][]reportedKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last, a.keys = f, keys
}

// evaluate measures the fleet and updates the states of all alerts.
func (a *Alerts) evaluate(set *rules.Set) {
	if a.tracked != set {
		a.meter.track(set.Alerts)
		a.tracked = set
	}
	totals := a.o.Totals()
	a.meter.add(&totals, totals.At)
	now := a.o.Now()
	if a.states == nil {
		a.states = map[string]*state{}
	}
	have := make(map[string]bool, len(set.Alerts))
	for i := range set.Alerts {
		alert := &set.Alerts[i]
		if alert.Condition == nil {
			continue
		}
		have[alert.Name] = true
		s := a.states[alert.Name]
		if s == nil {
			s = &state{}
			a.states[alert.Name] = s
		}
		of := func(m rules.Measure) (float64, bool) { return a.meter.value(m, alert.Window) }
		holds, known := alert.Condition.Holds(of)
		s.Value = nil
		if v, ok := alert.Condition.Left(of); ok {
			s.Value = &v
		}
		s.step(alert, holds, known, now)
	}
	a.forget(have, now)
}

// forget ends alerts that the rules no longer have, and drops their states when every webhook has been
// notified.
func (a *Alerts) forget(have map[string]bool, now time.Time) {
	for name, s := range a.states {
		if have[name] {
			continue
		}
		if s.Is != isOK {
			s.end(now)
		}
		s.Unknown = false
		open := false
		for _, w := range a.webhooks {
			open = open || w.owes(name, s, now)
		}
		if !open || now.Sub(s.Since) > time.Hour {
			delete(a.states, name)
		}
	}
}

// save reports the states.
func (a *Alerts) save(ctx context.Context) {
	f := fleetState{Evaluator: a.o.ID, At: a.o.Now(), Alerts: a.states, Failing: map[string]string{}}
	for _, w := range a.webhooks {
		if why := w.failing(); why != "" {
			f.Failing[w.to.Name] = why
		}
	}
	f.Sent, f.Webhooks = a.accepted(), len(a.webhooks)
	text, err := json.Marshal(f)
	if err == nil {
		a.mu.Lock()
		keys := a.keys
		a.mu.Unlock()
		var copied fleetState // states go on changing
		if err = json.Unmarshal(text, &copied); err == nil {
			a.remember(copied, keys)
		}
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err = a.o.Reports.Report(ctx, stateReport, statePart, text, keepState)
	}
	if err != nil {
		a.o.Failed("alerts: their states cannot be reported", err)
	}
	for _, w := range a.webhooks {
		a.saveSent(ctx, w)
	}
}

// saveSent reports the messages sent to a webhook, unless it did so recently: the report must survive days
// without messages, and a flush.
func (a *Alerts) saveSent(ctx context.Context, d *delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.savedAt.IsZero() && time.Since(d.savedAt) < saveSentEvery {
		return
	}
	text, err := json.Marshal(sentState{d.alerts, d.keys})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err = a.o.Reports.Report(ctx, stateReport, sentPart+d.to.Name, text, keepState)
	}
	if err != nil {
		a.o.Failed("alerts: what was sent cannot be reported", err)
		return
	}
	d.savedAt = time.Now()
}

// readKeys reads the keys that instances have reported, if an alert is about keys.
func (a *Alerts) readKeys(ctx context.Context, set *rules.Set) {
	about := false
	for i := range set.Alerts {
		about = about || set.Alerts[i].Usage != nil
	}
	if !about {
		return
	}
	parts, err := a.reported(ctx, keysReport)
	if err != nil {
		a.o.Failed("alerts: keys cannot be read", err)
		return
	}
	keys := decodeKeys(parts)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys = keys
}
