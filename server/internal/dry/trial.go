package dry

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// Trial decides requests of the past under a set, each at its own instant. It is a book with counts of its own,
// in memory. Nobody learns of its decisions, and it holds nothing. It must not be used from several goroutines
// at once.
type Trial struct {
	set     *decide.Set
	limiter *stint.Limiter
	plan    rules.Plan
	one     [1]decide.Request
	at      time.Time // of the last request
	err     error     // of what should have been charged or given back
}

// Try is a request to decide, at the instant At. MaxDelay is the longest delay by rules that shape, and
// AllowAmbiguous are permitted ambiguities.
type Try struct {
	In             *rules.Input
	At             time.Time
	MaxDelay       time.Duration
	AllowAmbiguous rules.Ambiguity
}

// unwatched is a set whose decisions nobody learns of.
func unwatched(set *rules.Set) *decide.Set { return &decide.Set{Set: set, Watcher: decide.Unwatched{}} }

// NewTrial returns a Trial that counts at most maxKeys keys at once.
func NewTrial(set *rules.Set, maxKeys int) *Trial {
	return &Trial{set: unwatched(set), limiter: stint.NewLimiter(&stint.Memory{MaxKeys: maxKeys})}
}

// Decide decides a request as decide.Decider does, without an instance's bounds and effects. The Request is valid
// until the next call. An error wraps stint.ErrRequest if the request is malformed.
func (p *Trial) Decide(ctx context.Context, q *Try) (*decide.Request, error) {
	t := &p.one[0]
	p.at = q.At
	*t = decide.Request{In: q.In, MaxDelay: q.MaxDelay}
	t.Plan(ctx, p.set, &p.plan, q.At, q.AllowAmbiguous)
	if t.Err != nil {
		return nil, t.Err
	}
	if err := decide.DecideBy(ctx, p, p.one[:], q.At); err != nil || p.err != nil {
		return nil, errors.Join(err, p.err)
	}
	return t, nil
}

// Respond counts the response to the last request as a violation, if a rule says so, and returns the rules that
// ban the key for it. It does nothing if that request was refused.
func (p *Trial) Respond(ctx context.Context, status int) (bans []*rules.Rule, err error) {
	t := &p.one[0]
	if !t.Allowed || t.Err != nil {
		return nil, nil
	}
	for i := range t.Watching {
		w := &t.Watching[i]
		if !slices.Contains(w.Rule.OnStatus, status) {
			continue
		}
		violation := stint.Request{At: p.at, Asks: []stint.Ask{{Key: w.Ask.Key, Penalty: w.Ask.Penalty}}}
		d, err := stint.Violate(ctx, p.limiter.Store, &violation)
		if err != nil {
			return bans, err
		}
		if d.Outcome == stint.Banned {
			bans = append(bans, w.Rule)
		}
	}
	return bans, nil
}

// Take is for decide.Book.
func (p *Trial) Take(ctx context.Context, all []decide.Request, _ bool) {
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
func (p *Trial) Refund(ctx context.Context, r *stint.Request, _ bool) error {
	return stint.Refund(ctx, p.limiter.Store, r)
}

// Hold is for decide.Book.
func (p *Trial) Hold(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	stint.Holds(ctx, p.limiter.Store, at, calls)
}

// ReleaseShadows is for decide.Book. A trial holds nothing.
func (p *Trial) ReleaseShadows(context.Context, *decide.Request, time.Time) {}

// Failed is for decide.Book.
func (p *Trial) Failed(_ string, err error) {
	if !errors.Is(err, stint.ErrRequest) {
		p.err = err
	}
}
