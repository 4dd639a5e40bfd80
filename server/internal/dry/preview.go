package dry

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/decide"
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

// Preview compares set with the rules in force on recent requests. Changes made at run time apply
// to both. It returns nil if requests are not recorded.
func (s *Previewer) Preview(ctx context.Context, set *rules.Set) (*adminapi.Preview, error) {
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
	p := previewed{now: newTrial(s.Rules()), then: newTrial(set), alike: map[caseKind]int{}}
	sample := s.recent.Sample(s.Watch.Metrics.Now())
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
	}
	p.From = p.From.UTC()
	p.Now, p.Then = p.now.counts, p.then.counts
	p.Rules = refusedBy(p.now, p.then)
	return &p.Preview, nil
}

// previewed is a preview while it is made.
type previewed struct {
	adminapi.Preview
	now, then *trial
	alike     map[caseKind]int // the cases that are shown
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
		p.From = at
	}
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

// trial decides requests under a set. It is a book with counts of its own.
type trial struct {
	set     *decide.Set
	limiter *stint.Limiter
	matches rules.Plan
	counts  adminapi.PreviewCounts
	refused map[string]int64 // by rule
	err     error            // of what should have been charged or given back
}

// unwatched is a set whose decisions nobody learns of.
func unwatched(set *rules.Set) *decide.Set { return &decide.Set{Set: set, Watcher: decide.Unwatched{}} }

func newTrial(set *rules.Set) *trial {
	return &trial{
		set:     unwatched(set),
		limiter: stint.NewLimiter(&stint.Memory{MaxKeys: config.MaxPreviewKeys}),
		refused: map[string]int64{},
	}
}

// tried is the decision about a request. rule is the rule that refused, and shadows are the rules in shadow
// mode that would have refused.
type tried struct {
	allowed       bool
	outcome, rule string
	shadows       []string
}

// decide decides a request as decide.Decider does, without an instance's bounds and effects.
func (p *trial) decide(ctx context.Context, q *recent.Request, at time.Time, ambiguous rules.Ambiguity) (tried, error) {
	one := [1]decide.Request{{In: q.Input, MaxDelay: q.MaxDelay}}
	t := &one[0]
	t.Plan(ctx, p.set, &p.matches, at, ambiguous)
	if errors.Is(t.Err, stint.ErrRequest) {
		return tried{outcome: kind.Malformed.Answer()}, nil
	}
	if t.Err != nil {
		return tried{}, t.Err
	}
	if err := decide.DecideBy(ctx, p, one[:], at); err != nil || p.err != nil {
		return tried{}, errors.Join(err, p.err)
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

// Take is for decide.Book.
func (p *trial) Take(ctx context.Context, all []decide.Request, _ bool) {
	for i := range all {
		t := &all[i]
		for j := range t.Groups {
			g := &t.Groups[j]
			a := &g.Answer
			a.Decision, a.Err = p.limiter.Take(ctx, &g.Request, a.Each)
			if g.InShadow() && decide.Refused(a) {
				p.Hold(ctx, g.Request.At, t.Charges(g, nil))
			}
		}
	}
}

// Refund is for decide.Book.
func (p *trial) Refund(ctx context.Context, r *stint.Request, _ bool) error {
	return stint.Refund(ctx, p.limiter.Store, r)
}

// Hold is for decide.Book.
func (p *trial) Hold(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	stint.Holds(ctx, p.limiter.Store, at, calls)
}

// ReleaseShadows is for decide.Book. A trial holds nothing.
func (p *trial) ReleaseShadows(context.Context, *decide.Request, time.Time) {}

// Failed is for decide.Book.
func (p *trial) Failed(_ string, err error) {
	if !errors.Is(err, stint.ErrRequest) {
		p.err = err
	}
}

func (p *trial) count(t tried) {
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
func refusedBy(now, then *trial) []adminapi.PreviewRule {
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
