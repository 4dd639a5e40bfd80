package limittest

import (
	"context"
	"time"

	"github.com/stintdev/stint"
)

// recounting counts what is found while a ban runs.
type recounting struct{ *Model }

func (s recounting) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	d, err := s.Model.Violate(ctx, r)
	for i := range r.Asks {
		if a := &r.Asks[i]; d.Outcome == stint.Banned && a.Key != d.Key {
			s.mu.Lock()
			s.violate(recordOf(a), a.Penalty.Spec(), instant(r))
			s.mu.Unlock()
		}
	}
	return d, err
}

// unforgetting remembers violations for ever.
type unforgetting struct{ *Model }

func (s unforgetting) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	forever := *r
	forever.Asks = nil
	for _, a := range r.Asks {
		spec := a.Penalty.Spec()
		spec.ForgetAfter = mostBan
		a.Penalty = mustPenalty(spec)
		forever.Asks = append(forever.Asks, a)
	}
	d, err := s.Model.Violate(ctx, &forever)
	for i := range r.Asks {
		if d.Penalty != nil && d.Key == r.Asks[i].Key && d.Penalty.ID() == r.Asks[i].Penalty.ID() {
			d.Penalty = r.Asks[i].Penalty
		}
	}
	return d, err
}

func (s unforgetting) Record(ctx context.Context, key string, p *stint.Penalty) (stint.Record, error) {
	spec := p.Spec()
	spec.ForgetAfter = mostBan
	return s.Model.Record(ctx, key, mustPenalty(spec))
}

// losing reads, waits and writes.
type losing struct{ *Model }

func (s losing) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	s.mu.Lock()
	before := s.records[recordOf(&r.Asks[0])]
	s.mu.Unlock()
	time.Sleep(time.Millisecond) // so that others come between
	s.mu.Lock()
	if s.records != nil {
		s.records[recordOf(&r.Asks[0])] = before[:len(before):len(before)]
	}
	s.mu.Unlock()
	return s.Model.Violate(ctx, r)
}

// miscounting shows records that are not so.
type miscounting struct {
	*Model
	violations, bans int64
	left             time.Duration
}

func (s miscounting) Record(ctx context.Context, key string, p *stint.Penalty) (stint.Record, error) {
	r, err := s.Model.Record(ctx, key, p)
	if r.Violations > 0 {
		r.Violations += s.violations
	}
	if r.Bans > 0 {
		r.Bans += s.bans
	}
	if r.BanLeft > 0 {
		r.BanLeft += s.left
	}
	return r, err
}

// telling tells each ban so many times.
type telling struct {
	*Model
	times int
}

func (s telling) Banned(ctx context.Context, yield func(stint.Record) bool) error {
	return s.Model.Banned(ctx, func(r stint.Record) bool {
		for range s.times {
			if !yield(r) {
				return false
			}
		}
		return true
	})
}

// misinspecting shows counts that are not so.
type misinspecting struct {
	*Model
	flaw func(*stint.Stored)
}

func (s misinspecting) Inspect(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Stored, error) {
	all, err := s.Model.Inspect(ctx, key, limits)
	for i := range all {
		s.flaw(&all[i])
	}
	return all, err
}
