// Package lookup reads the state of keys from the store or, if that does not answer, from
// the counts of this instance.
package lookup

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/adminapi"
)

// Lookup looks keys up. It must not be changed once it is in use, and may be used from many
// goroutines at once.
type Lookup struct {
	Limiter *stint.Limiter // over the store, without the layers of this instance
	// Fleet is over the same store, and decides by Local if that fails.
	Fleet *fleet.Store
	Local *stint.Memory
	// Down returns why the store is known not to decide, or nil; it does not wait. Probe calls
	// the store.
	Down  func() error
	Probe func(context.Context) error
}

// Timeout bounds how long a View waits for the store in total. It is longer than a decision's deadline,
// because a person would rather wait than see less, and still short enough not to be noticed.
const Timeout = 250 * time.Millisecond

// View looks keys up for one call. One goroutine may use it.
type View struct {
	*Lookup
	ctx   context.Context
	close context.CancelFunc
	err   error // why the store is not called (any more); nil: it is
	// records are those that were read. Each is read once.
	records map[record]stint.Record
}

type record struct {
	key     string
	penalty *stint.Penalty
}

// View is a View that calls the store, unless that is known not to decide. Close it.
func (l *Lookup) View(ctx context.Context) *View {
	v := &View{Lookup: l}
	v.ctx, v.close = context.WithTimeout(ctx, Timeout)
	if l.Fleet.IsLayered() {
		v.err = l.Down()
	}
	return v
}

// Close releases v.
func (v *View) Close() { v.close() }

// StoreError is why v shows this instance's counts; nil: it shows the store's.
func (v *View) StoreError() error { return v.err }

// turn reports whether this instance can answer after the store failed with err. If so, it answers from then
// on.
func (v *View) turn(err error) bool {
	if !v.Fleet.IsLayered() || errors.Is(err, stint.ErrRequest) || errors.Is(err, stint.ErrUnsupported) || errors.Is(err, fleet.ErrBroken) {
		return false
	}
	v.err, v.records = err, nil
	return true
}

// Look stores the answer to each ask of r, all of one key, separately in out. It takes nothing.
func (v *View) Look(r *stint.Request, out []stint.Decision) error {
	if v.err == nil {
		err := internal.DryRun(v.ctx, v.Limiter.Store, r, out)
		if err == nil || !v.turn(err) {
			return err
		}
	}
	return v.Fleet.Look(r, out)
}

// ErrDenied says that an ask denies while the store does not answer.
var ErrDenied = errors.New("the store does not answer, and a rule has on_store_error: deny")

// Try returns the answer that Take of the store would give now. It takes nothing and counts no violation. It
// stores how each ask stands in states, and how it is decided in out. If the store does not answer, asks are
// decided by their OnError; the error is ErrDenied if that denies. If StoreError changes meanwhile, what was
// read before does not fit the rest.
func (v *View) Try(r *stint.Request, states, out []stint.Decision) (stint.Decision, error) {
	if err := v.lookAll(r, states); err != nil {
		return stint.Decision{}, err
	}
	for i := range r.Asks {
		switch a := &r.Asks[i]; {
		case v.err == nil || a.OnError == stint.OnErrorLocal:
			out[i] = states[i]
			limitDelay(a, &out[i])
		case a.OnError == stint.OnErrorDeny:
			return stint.Decision{}, ErrDenied
		default:
			out[i] = stint.Internal(friend.Of{}).ByPolicy(a)
		}
	}
	answer, by, came, err := v.sentence(r, out)
	if err != nil || answer.Outcome == stint.Banned {
		for i := range out {
			answer.RetryAfter = max(answer.RetryAfter, out[i].RetryAfter)
		}
		return answer, err
	}
	if by == nil {
		return stint.Strictest(out), nil
	}
	answer = internal.Blamed(r.Asks, out, by)
	internal.Punish(&answer, by.Penalty, came)
	return answer, nil
}

// limitDelay makes of d, how a stands without its MaxDelay, the answer with it. The delay of a request is how
// long the queue before it takes to empty.
func limitDelay(a *stint.Ask, d *stint.Decision) {
	if a.MaxDelay == 0 || a.Peek || a.Limit == nil || a.Limit.Spec().Algorithm != stint.LeakyBucket || d.RetryAfter == stint.Never {
		return
	}
	if wait := d.ResetAfter - max(0, a.MaxDelay.Truncate(time.Microsecond)); wait > 0 { // the store counts in µs
		d.Allowed, d.Outcome, d.RetryAfter = false, stint.Limited, max(d.RetryAfter, wait)
	}
}

// lookAll is Look for the asks that have a limit, whatever delay they accept.
func (v *View) lookAll(r *stint.Request, out []stint.Decision) error {
	places := map[string][]int{} // by key, because Look must not ask several nodes of a Cluster
	for i := range r.Asks {
		a := &r.Asks[i]
		out[i] = stint.Decision{Allowed: true, Outcome: stint.Allowed, Key: a.Key}
		if a.Limit != nil {
			places[a.Key] = append(places[a.Key], i)
		}
	}
	for _, of := range places {
		looks, answers := stint.Request{At: r.At}, make([]stint.Decision, len(of))
		for _, i := range of {
			a := r.Asks[i]
			a.MaxDelay = 0
			looks.Asks = append(looks.Asks, a)
		}
		if err := v.Look(&looks, answers); err != nil {
			return err
		}
		for k, i := range of {
			out[i] = answers[k]
		}
	}
	return nil
}

// sentence returns the longest running ban; or else the ask under whose penalty one more violation would have
// the gravest consequence, and that consequence. nil: none of out is a violation.
func (v *View) sentence(r *stint.Request, out []stint.Decision) (running stint.Decision, by *stint.Ask, came algo.Punishment, err error) {
	seen := map[record]bool{}
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty == nil || out[i].By == stint.ByPolicy || seen[record{a.Key, a.Penalty}] {
			continue
		}
		seen[record{a.Key, a.Penalty}] = true
		known, err := v.Record(a.Key, a.Penalty)
		if err != nil {
			return running, nil, came, err
		}
		if known.BanLeft > running.BanLeft {
			running = internal.Banned(a, known.BanLeft.Microseconds())
		}
		if internal.Blamed(r.Asks, out, a).Limit == nil { // no refusal counts for it
			continue
		}
		if next := internal.Sentence(a.Penalty, &known); by == nil || next.Graver(&came) {
			by, came = a, next
		}
	}
	return running, by, came, nil
}

var internal = stint.Internal(friend.Of{})

// Record is the state of a key under a penalty.
func (v *View) Record(key string, p *stint.Penalty) (stint.Record, error) {
	of := record{key, p}
	if known, ok := v.records[of]; ok {
		return known, nil
	}
	found, err := v.readRecord(key, p)
	if err == nil {
		if v.records == nil {
			v.records = map[record]stint.Record{}
		}
		v.records[of] = found
	}
	return found, err
}

func (v *View) readRecord(key string, p *stint.Penalty) (stint.Record, error) {
	if v.err == nil {
		r, err := v.Limiter.Record(v.ctx, key, p)
		if err == nil || !v.turn(err) {
			return r, err
		}
	}
	return v.Local.Record(v.ctx, key, p)
}

// Stored is the store's record of a key under limits; nil: unknown.
func (v *View) Stored(key string, limits []*stint.Limit) []stint.Stored {
	if v.err != nil {
		return nil
	}
	inspector, ok := stint.As[stint.Inspector](v.Limiter.Store)
	if !ok {
		return nil
	}
	all, err := inspector.Inspect(v.ctx, key, limits)
	if err != nil {
		return nil
	}
	return all
}

// Holds are the holds of key under limits in the store; nil: none, or unknown.
func (v *View) Holds(key string, limits []*stint.Limit) []stint.Hold {
	if v.err != nil {
		return nil
	}
	all, err := Holds(v.ctx, v.Limiter.Store, key, limits)
	if err != nil {
		return nil
	}
	return all
}

// Holds are the holds of key under the held ones of limits, the oldest first.
func Holds(ctx context.Context, s stint.Store, key string, limits []*stint.Limit) ([]stint.Hold, error) {
	limits = slices.DeleteFunc(slices.Clone(limits), func(l *stint.Limit) bool { return !l.IsHeld() })
	holder, ok := stint.As[stint.Holder](s)
	if !ok || len(limits) == 0 {
		return nil, nil
	}
	all, err := holder.Held(ctx, key, limits)
	slices.SortFunc(all, func(a, b stint.Hold) int { return bytes.Compare(a.ID[:], b.ID[:]) }) // IDs begin with their time
	return all, err
}

// Banned calls yield for each ban by penalty, until it returns false. If the store fails meanwhile, it calls
// again, and starts over with the bans that this instance knows. ctx bounds it instead of Timeout, because it
// reads all of the store.
func (v *View) Banned(ctx context.Context, again func(), yield func(stint.Record) bool) error {
	if v.err == nil && v.Fleet.IsLayered() { // reading all of it would hang until ctx ends
		if err := v.Probe(v.ctx); err != nil {
			v.turn(err)
		}
	}
	if v.err == nil {
		err := each(v.Limiter.Banned(ctx), yield)
		if err == nil || !v.turn(err) {
			return err
		}
		again()
	}
	return v.Local.Banned(ctx, yield)
}

// each calls yield for the elements before an error.
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

// Limit is the state of the key under the limit of a decision of Look; if this instance answers, under its
// share of the limit.
func (v *View) Limit(d *stint.Decision) adminapi.LimitState {
	capacity := d.Limit.Capacity()
	if v.err != nil {
		capacity = max(min(1, capacity), capacity/v.Fleet.Live())
	}
	used := max(0, capacity-d.Remaining-d.Held)
	return adminapi.LimitState{Limit: d.Limit.Terms(), Capacity: capacity, Used: used, Held: d.Held, Remaining: d.Remaining, ResetAfter: d.ResetAfter.Microseconds(), Windows: windowsAround(d.Limit, time.Now())}
}

// windowsAround returns adminapi.LimitState.Windows at now.
func windowsAround(l *stint.Limit, now time.Time) []time.Time {
	if l.Spec().Calendar.Unit == 0 {
		return nil
	}
	start, end := l.Window(now)
	_, after := l.Window(end)
	return []time.Time{start, end, after}
}

// CountedBy says whose counts an answer has.
func (v *View) CountedBy() adminapi.CountedBy {
	if v.err == nil {
		return adminapi.CountedBy{}
	}
	return adminapi.CountedBy{By: stint.ByLocal.String(), StoreError: v.err.Error()}
}
