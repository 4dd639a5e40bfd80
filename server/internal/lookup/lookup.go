package server

import (
	"context"
	"errors"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/adminapi"
)

// view is how keys stand: by the store or, where that does not answer, by what this
// instance has counted and heard itself. It is for one call of one goroutine.
type view struct {
	*Server
	ctx   context.Context
	close context.CancelFunc
	alone error // why the store is not asked, or not any more; nil: it is
}

// viewTimeout bounds how long a look at keys waits for the store in all. It is longer
// than the deadline of a decision, for a person would rather wait than be told less,
// and shorter than anybody notices.
const viewTimeout = 250 * time.Millisecond

// view is one that asks the store, unless it is known not to decide.
func (s *Server) view(ctx context.Context) *view {
	v := &view{Server: s}
	v.ctx, v.close = context.WithTimeout(ctx, viewTimeout)
	if s.fleet.IsLayered() {
		v.alone = s.storeError()
	}
	return v
}

// goesOn tells whether this instance can answer where the store failed with err; then
// it does so from now on.
func (v *view) goesOn(err error) bool {
	if !v.fleet.IsLayered() || errors.Is(err, stint.ErrRequest) || errors.Is(err, stint.ErrUnsupported) || errors.Is(err, stint.ErrBroken) {
		return false
	}
	v.alone = err
	return true
}

// look is how the asks of r would be answered, each by itself; nothing is taken.
func (v *view) look(r *stint.Request, out []stint.Decision) error {
	if v.alone == nil {
		err := v.limiter.DryRun(v.ctx, r, out)
		if err == nil || !v.goesOn(err) {
			return err
		}
	}
	return v.fleet.Look(r, out)
}

// record is how a key stands under a penalty.
func (v *view) record(key string, p *stint.Penalty) (stint.Record, error) {
	if v.alone == nil {
		r, err := v.limiter.Record(v.ctx, key, p)
		if err == nil || !v.goesOn(err) {
			return r, err
		}
	}
	return v.local.Record(v.ctx, key, p)
}

// kept is what the store keeps of a key under limits; nil: it does not tell, for want
// of the power, of a permission or of an answer.
func (v *view) kept(key string, limits []*stint.Limit) []stint.Stored {
	if v.alone != nil {
		return nil
	}
	all, err := v.limiter.Inspect(v.ctx, key, limits...)
	if err != nil {
		return nil
	}
	return all
}

// banned calls yield for each ban by penalty, as stint.Inspector does. again means
// that those so far do not count: the store has failed, and they come anew. ctx bounds
// it, for it goes through all that the store holds.
func (v *view) banned(ctx context.Context, again func(), yield func(stint.Record) bool) error {
	if v.alone == nil && v.fleet.IsLayered() { // a look through all would hang for as long as ctx lives
		if err := v.limiter.Probe(v.ctx, probeKey); err != nil {
			v.goesOn(err)
		}
	}
	if v.alone == nil {
		err := each(v.limiter.Banned(ctx), yield)
		if err == nil || !v.goesOn(err) {
			return err
		}
		again()
	}
	return v.local.Banned(ctx, yield)
}

// each calls yield for what comes before an error.
func each(all func(func(stint.Record, error) bool), yield func(stint.Record) bool) (failed error) {
	for r, err := range all {
		if err != nil {
			return err
		}
		if !yield(r) {
			break
		}
	}
	return nil
}

// limitOf is how a key stands under the limit of a decision: where this instance tells,
// under its share of it.
func (v *view) limitOf(d *stint.Decision) adminapi.LimitState {
	capacity, used := d.Limit.Capacity(), d.Used()
	if v.alone != nil {
		capacity = max(1, capacity/v.fleet.Live())
		used = max(0, capacity-d.Remaining)
	}
	return adminapi.LimitState{Limit: d.Limit.Terms(), Capacity: capacity, Used: used, Remaining: d.Remaining, ResetAfter: d.ResetAfter.Microseconds()}
}

// countedBy says in an answer whose counts it shows.
func (v *view) countedBy() adminapi.CountedBy {
	if v.alone == nil {
		return adminapi.CountedBy{}
	}
	return adminapi.CountedBy{By: stint.ByLocal.String(), StoreError: v.alone.Error()}
}
