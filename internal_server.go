package stint

import (
	"context"
	"fmt"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/spelling"
)

// Check returns an error that wraps ErrRequest if r breaks a rule stated with Request and
// Ask.
func (internals) Check(r *Request) error { return r.check() }

// DryRun fills out with the answer that s would now give to each ask of r alone. It takes
// nothing and counts no violation. It ignores penalties: see Record. out must have a place
// for each ask. The errors are those of Limiter.Take.
func (internals) DryRun(ctx context.Context, s Store, r *Request, out []Decision) error {
	if err := r.check(); err != nil {
		return err
	}
	if len(out) != len(r.Asks) {
		return fmt.Errorf("stint: %w: room for %s on %s", ErrRequest, spelling.Several(len(out), "decision"), spelling.Several(len(r.Asks), "ask"))
	}
	dry := *r
	dry.Asks = make([]Ask, 0, len(r.Asks)+1)
	for _, a := range r.Asks {
		if a.Limit == nil {
			return fmt.Errorf("stint: %w: key %q has no limit: a dry run needs one", ErrRequest, limittext.Clip(a.Key))
		}
		a.Penalty = nil
		dry.Asks = append(dry.Asks, a)
	}
	// One that is always refused. It has the same key, so that a Cluster asks one node.
	dry.Asks = append(dry.Asks, Ask{Key: r.Asks[0].Key, Limit: refusing, Cost: refusing.Capacity() + 1})
	all := make([]Decision, len(dry.Asks))
	_, err := s.Take(ctx, &dry, all)
	copy(out, all)
	return err
}

// refusing is the limit of the ask that keeps a DryRun from taking anything.
var refusing = MustLimit("stint dry run: 1 per 1s")

// Probe asks s for a decision and returns why it made none; nil: it decides. It takes a unit
// of key under its own limit, because a server that is a replica, or full, still answers
// requests that take nothing. key and l, which may be nil, select the server.
func (internals) Probe(ctx context.Context, s Store, l *Limit, key string) error {
	limit := probing
	if (internals{}).UnderAMinute(l) {
		limit = probingSeconds
	}
	_, err := s.Take(ctx, &Request{Asks: []Ask{{Key: key, Limit: limit}}}, nil)
	return err
}

// The limits of probes, too large to be exhausted. Their name separates their counts from those of
// callers.
var (
	probing        = MustLimit("stint probe: 1000000 per 1m")
	probingSeconds = MustLimit("stint probe: 1000000 per 1s")
)

// UnderAMinute reports whether the period of l is less than a minute. Calendar limits, InFlight ones and
// nil have no period.
func (internals) UnderAMinute(l *Limit) bool {
	return l != nil && l.spec.Period > 0 && l.spec.Period < time.Minute
}

// Sentence is the consequence that one more violation would have for a key with this record
// under p.
func (internals) Sentence(p *Penalty, r *Record) algo.Punishment {
	plan := &p.counted.Plan
	const now = 1
	return plan.Punish(&algo.Record{Last: now, Violations: r.Violations, Until: now, Bans: r.Bans, Forget: plan.Forget}, now, 1)
}

// BanRan reports whether d is a refusal by a ban that ran already and did not begin with d.
func (internals) BanRan(d *Decision) bool {
	return d.Outcome == Banned && (d.Violations == 0 || d.Remembered)
}

// SetMaxOwed bounds the bytes of settlements that l keeps until its Store answers. Call it before l
// is used.
func (internals) SetMaxOwed(l *Limiter, bytes int64) { l.keeper.most = int(bytes) }

// OnLost makes l call f, instead of logging, when a settlement in the background was lost: with a
// limit of the request, and why. f may be called from many goroutines, and must return soon. Call
// OnLost before l is used.
func (internals) OnLost(l *Limiter, f func(*Limit, error)) { l.keeper.onLost = f }

// Owes reports whether l keeps settlements that its Store has not answered.
func (internals) Owes(l *Limiter) bool {
	k := &l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bytes > 0
}

// RoomOfHolds returns how many records of holds are in m, including expired ones that were not
// dropped yet, and how many there may be.
func (internals) RoomOfHolds(m *Memory) (made, most int64) { return m.open().Holds() }
