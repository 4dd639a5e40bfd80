package dry

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/internal/recent"
	"github.com/stintdev/stint/server/internal/watch"
	"github.com/stintdev/stint/server/rules"
)

const (
	// PreviewWindow is how long a request is kept for previews.
	PreviewWindow = 5 * time.Minute
	// previewTimeout bounds the time of a preview. Its result is about the requests tried by then.
	previewTimeout = 3 * time.Second
	// maxPreviewCases is how many requests a preview shows, maxCasesAlike how many of one client and rule.
	maxPreviewCases, maxCasesAlike = 20, 3
)

// Previewer compares rules on recent requests. It may be used from many goroutines at once; one preview is made
// at a time.
type Previewer struct {
	*door.Door
	recent   *recent.Recorder
	controls func() rules.Controls
	busy     chan struct{} // a preview is being made
}

// NewPreviewer returns a Previewer. recorder has the recent requests; nil: requests are not recorded. controls
// returns the changes made at run time that are in force.
func NewPreviewer(d *door.Door, recorder *recent.Recorder, controls func() rules.Controls) *Previewer {
	return &Previewer{d, recorder, controls, make(chan struct{}, 1)}
}

// Preview compares set, the rules of text, with the rules in force on recent requests. Changes made at run time
// apply to both. It returns nil if requests are not recorded.
func (s *Previewer) Preview(ctx context.Context, set *rules.Set, text string) (*adminapi.Preview, error) {
	if s.recent == nil {
		return nil, nil
	}
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, previewTimeout)
	defer cancel()
	controls := s.controls()
	set, _ = set.With(&controls)
	p := previewed{now: newTally(s.Rules()), then: newTally(set), peaks: newPeaks(peakBytes), alike: map[caseKind]int{}}
	began := s.Watch.Metrics.Now()
	p.origin = s.Watch.Metrics.Epoch.Add(began - PreviewWindow).UnixMicro()
	sample := s.recent.Sample(began)
	p.peaks.secret = secretKeys(p.now.set.Set, set)
	p.Share = sample.Share
	p.Missing = append([]string{}, sample.Lacks(watch.ReadsOf(set))...)
	if set.ReadsBody() { // bodies are never recorded
		p.Missing = append(p.Missing, "body")
	}
	if set.Holds() || p.now.set.Holds() { // a trial holds nothing, because it does not know when requests end
		p.Missing = append(p.Missing, "holds")
	}
	p.Sample = []adminapi.PreviewCase{}
	for q := range sample.All() {
		if p.Requests%64 == 0 {
			runtime.Gosched() // requests of clients need not wait for this
		}
		at := s.Watch.Metrics.Epoch.Add(q.At)
		if ctx.Err() != nil || !p.try(ctx, s, q, at) {
			p.Partial = true
			break
		}
	}
	if p.Requests == 0 {
		p.From = time.Now()
	} else if !p.Partial {
		p.last = max(p.last, began)
	}
	p.From = p.From.UTC()
	p.Now, p.Then = p.now.counts, p.then.counts
	p.Rules = refusedBy(p.now, p.then)
	span := p.last - p.first
	p.Span, p.MorePeaks, p.Peaks = span.Microseconds(), p.peaks.more, p.peaks.result(set, span, s.Watch.Privacy.ShownKey)
	locate(p.Peaks, text)
	return &p.Preview, nil
}

// secretKeys reports which rules of set have keys that must not be shown. Callers choose set, so its keys may be
// credentials that the rules in force only read or hash. Not secret is what a preview shows anyway, and the keys
// that are in the store and in logs, because a rule in force has the same expression.
func secretKeys(inForce, set *rules.Set) func(*rules.Rule) bool {
	shown := rules.Known{Client: true, Method: true, Path: true, Operation: true}
	known := map[string]bool{}
	for _, r := range inForce.Rules {
		known[r.Key] = known[r.Key] || r.Mode != rules.Off && r.Descriptor == nil
	}
	return func(r *rules.Rule) bool { return !known[r.Key] && len(shown.LackedByKey(set, r)) > 0 }
}

// previewed is a preview while it is made.
type previewed struct {
	adminapi.Preview
	now, then   *tally
	peaks       *peaks
	origin      int64            // of the instants of peaks, in µs since 1970
	first, last time.Duration    // when the first and the last request arrived
	alike       map[caseKind]int // the cases that are shown
}

type caseKind struct{ client, rule string }

// try tries a request, and reports whether it could be decided.
func (p *previewed) try(ctx context.Context, s *Previewer, q *recent.Request, at time.Time) bool {
	allowed := s.Settings.AllowAmbiguous
	now, err := p.now.decide(ctx, q, at, allowed)
	if err != nil {
		return false
	}
	then, err := p.then.decide(ctx, q, at, allowed)
	if err != nil {
		return false
	}
	p.now.count(now)
	p.then.count(then)
	if p.Requests++; p.Requests == 1 {
		p.From, p.first = at, q.At
	}
	p.last = max(p.last, q.At)
	p.peaks.observe(&p.then.plan, at.UnixMicro()-p.origin)
	if now.allowed == then.allowed {
		return true
	}
	c := adminapi.PreviewCase{At: at.UTC(), Now: now.outcome, Then: then.outcome}
	if now.allowed {
		c.Rule = then.rule
	} else {
		c.Rule = now.rule
	}
	if client := q.Addr(); client.IsValid() {
		c.Client = s.Watch.Privacy.ShownKey(client.String())
	}
	if q.Request != nil {
		c.Method, c.Path = q.Request.Method, q.Request.Path
	}
	kind := caseKind{c.Client, c.Rule}
	if len(p.Sample) < maxPreviewCases && p.alike[kind] < maxCasesAlike {
		p.alike[kind]++
		p.Sample = append(p.Sample, c)
	}
	return true
}

// tally is the outcomes of a trial.
type tally struct {
	*Trial
	counts  adminapi.PreviewCounts
	refused map[string]int64 // by rule
}

func newTally(set *rules.Set) *tally {
	return &tally{Trial: NewTrial(set, config.MaxPreviewKeys), refused: map[string]int64{}}
}

// tried is the decision about a request. rule is the rule that refused, and shadows are the rules in shadow
// mode that would have refused.
type tried struct {
	allowed       bool
	outcome, rule string
	shadows       []string
}

// decide decides a recorded request.
func (p *tally) decide(ctx context.Context, q *recent.Request, at time.Time, ambiguous rules.Ambiguity) (tried, error) {
	t, err := p.Decide(ctx, &Try{In: q.Input, At: at, MaxDelay: q.MaxDelay, AllowAmbiguous: ambiguous})
	if errors.Is(err, stint.ErrRequest) {
		return tried{outcome: kind.Malformed.Answer()}, nil
	}
	if err != nil {
		return tried{}, err
	}
	result := tried{allowed: t.Allowed, outcome: t.Kind.Answer()}
	if !t.Allowed && t.Rule != nil {
		result.rule = t.Rule.Name
	}
	for i := range t.Groups {
		if g := &t.Groups[i]; g.InShadow() && !g.Answer.Allowed {
			result.shadows = append(result.shadows, g.Rules[0].Name)
		}
	}
	return result, nil
}

func (p *tally) count(t tried) {
	if t.allowed {
		p.counts.Allowed++
	} else {
		p.counts.Refused++
	}
	if t.rule != "" {
		p.refused[t.rule]++
	}
	for _, name := range t.shadows {
		p.refused[name]++
	}
}

// refusedBy are the rules that refused a request in either trial, in the order of the new rules,
// and then the others.
func refusedBy(now, then *tally) []adminapi.PreviewRule {
	all := []adminapi.PreviewRule{}
	listed := map[string]bool{}
	shadowNow, shadowThen := shadowRules(now.set.Set), shadowRules(then.set.Set)
	for _, set := range []*rules.Set{then.set.Set, now.set.Set} {
		for _, r := range set.Rules {
			if (now.refused[r.Name] > 0 || then.refused[r.Name] > 0) && !listed[r.Name] {
				listed[r.Name] = true
				all = append(all, adminapi.PreviewRule{Name: r.Name, Now: now.refused[r.Name], Then: then.refused[r.Name],
					ShadowNow: shadowNow[r.Name], ShadowThen: shadowThen[r.Name]})
			}
		}
	}
	return all
}

// shadowRules are the names of the rules in shadow mode.
func shadowRules(set *rules.Set) map[string]bool {
	names := map[string]bool{}
	for _, r := range set.Rules {
		if r.Mode == rules.Shadow {
			names[r.Name] = true
		}
	}
	return names
}
