package redislimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// Divided is a Store over two servers: limits with a period under a minute count on the second one.
// Such counts are used most and soon worthless, so that server needs neither a replica nor a disk.
// Violations, bans and all else are on the first. It may be used from many goroutines at once.
//
// A request under limits of both takes two or more round trips and is not atomic: the units that it
// took on the first are refunded if the second refuses. Each server may fail alone: see
// fleet.Partitioned.
type Divided struct {
	first, second *Store
	fallback      fallback
}

// NewDivided returns a Divided. Its Close closes both.
func NewDivided(first, second *Store) *Divided { return &Divided{first: first, second: second} }

// Unwrap returns the first Store, which does all that Divided does not.
func (d *Divided) Unwrap() stint.Store { return d.first }

// Close closes both Stores, and the Store that WithFallback returned.
func (d *Divided) Close() {
	d.fallback.close()
	d.first.Close()
	d.second.Close()
}

// WithFallback implements stint.Networked.
func (d *Divided) WithFallback() stint.Store { return d.fallback.of(d) }

// KeepsDeadline implements fleet.DeadlineKeeper.
func (d *Divided) KeepsDeadline() bool { return true }

// Take implements stint.Store.
func (d *Divided) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	decision, _, err := d.TakeCounted(ctx, r, out)
	return decision, err
}

// TakeCounted is Take, and Store.TakeCounted if r needs only one of the servers.
func (d *Divided) TakeCounted(ctx context.Context, r *stint.Request, out []stint.Decision) (decision stint.Decision, requests int, err error) {
	own, other := d.divide(r)
	switch {
	case other == nil:
		return d.first.TakeCounted(ctx, r, out)
	case own == nil:
		return d.second.TakeCounted(ctx, r, out)
	}
	if r.Deadline > 0 { // of all calls together
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Deadline)
		defer cancel()
	}
	decision, err = d.takeBoth(ctx, r, own, other, out)
	return decision, 0, err
}

// divide returns the parts of r for the first server and for the second; nil: none. Penalties of asks on
// the second are looked up on the first.
func (d *Divided) divide(r *stint.Request) (own, other *part) {
	for i := range r.Asks {
		if kit.UnderAMinute(r.Asks[i].Limit) {
			other = new(part)
			break
		}
	}
	if other == nil {
		return nil, nil
	}
	other.request = *r
	other.request.Asks = nil
	for i, a := range r.Asks {
		if kit.UnderAMinute(a.Limit) {
			other.request.Asks = append(other.request.Asks, a)
			other.places = append(other.places, i)
			if a.Penalty == nil {
				continue
			}
			a = stint.Ask{Key: a.Key, Penalty: a.Penalty}
		}
		if own == nil {
			own = &part{request: *r}
			own.request.Asks = nil
		}
		own.request.Asks = append(own.request.Asks, a)
		own.places = append(own.places, i)
	}
	return own, other
}

// side is the part of a request for one server.
type side struct {
	*part
	store *Store
	// bare means that the server has no penalties.
	bare bool
}

// takeBoth asks the first server, which has the bans, and then the second; but a server with a leaky bucket
// comes last, because a place in its queue is not refunded. If the last one refuses, it refunds the other.
// If both have a queue, it first peeks whether the last one refuses; a place is lost only if that changes
// meanwhile.
func (d *Divided) takeBoth(ctx context.Context, r *stint.Request, own, other *part, out []stint.Decision) (stint.Decision, error) {
	before, last := &side{own, d.first, false}, &side{other, d.second, true}
	takes := true
	switch {
	case own.hasQueue() && !other.hasQueue():
		if ban, err := d.ban(ctx, own, other); err != nil || ban.BanLeft > 0 {
			return ban, err
		}
		before, last = last, before
	case own.hasQueue():
		if last.ask(ctx, false); last.err != nil {
			return stint.Decision{}, last.err
		}
		takes = !last.refuses()
	}
	if before.ask(ctx, takes); before.err != nil {
		return stint.Decision{}, before.err
	}
	taken := takes && before.decision.Allowed
	if takes && !before.isBanned() {
		last.ask(ctx, taken)
	}
	if before.isBanned() || last.isBanned() {
		if taken {
			before.store.refundParts(ctx, []*part{before.part})
		}
		ban, err := d.ban(ctx, own, other)
		if err == nil && ban.BanLeft == 0 { // it has ended since
			ban = own.decision
		}
		return ban, err
	}
	refunded := true
	if taken && (last.err != nil || !last.decision.Allowed) {
		refunded = before.store.refundParts(ctx, []*part{before.part})
		if last.err == nil && refunded {
			before.ask(ctx, false) // for the Remaining after the refund
		}
	}
	err := errors.Join(last.err, before.err)
	if err == nil && other.refuses() {
		err = d.first.punish(ctx, other, own)
	}
	if err != nil {
		if taken && errors.Is(err, fleet.ErrNotCharged) {
			err = slotsError(ctx, []error{err}, refunded)
		}
		return stint.Decision{}, err
	}
	return join(r, []*part{own, other}, out), nil
}

// ban returns the running ban of own, with the longest wait for a limit of the request.
func (d *Divided) ban(ctx context.Context, own, other *part) (stint.Decision, error) {
	ban, err := d.first.findBan(ctx, []*part{own})
	if err != nil || ban.BanLeft == 0 {
		return ban, err
	}
	if err := d.first.addLimitWaits(ctx, []*part{own}, &ban); err != nil {
		return stint.Decision{}, err
	}
	waits := side{other, d.second, true}
	if waits.ask(ctx, false); waits.err != nil {
		return stint.Decision{}, waits.err
	}
	for i := range waits.each {
		ban.RetryAfter = max(ban.RetryAfter, waits.each[i].RetryAfter)
	}
	return ban, nil
}

// isBanned reports whether a running ban answered for all.
func (s *side) isBanned() bool {
	return s.err == nil && s.decision.Outcome == stint.Banned && s.decision.Limit == nil && s.decision.BanLeft > 0 && !s.bare
}

// ask asks the server. If takes is false, it takes nothing, and the answers are as if another limit
// refused.
func (s *side) ask(ctx context.Context, takes bool) {
	asking := s.request
	asking.Asks = make([]stint.Ask, len(s.request.Asks), len(s.request.Asks)+1)
	for i, a := range s.request.Asks {
		if s.bare {
			a.Penalty = nil
		}
		asking.Asks[i] = a
	}
	if !takes {
		asking.Asks = append(asking.Asks, stint.Ask{Key: asking.Asks[0].Key, Limit: impossible, Cost: 2})
	}
	each := make([]stint.Decision, len(asking.Asks))
	s.decision, _, s.err = s.store.TakeCounted(ctx, &asking, each)
	s.each = each[:len(s.request.Asks)]
}

// TakeBatch implements stint.BatchTaker. Requests that need both servers are sent alone, after those
// before them were answered.
func (d *Divided) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	var ofFirst, ofSecond []int
	flush := func() {
		var wg sync.WaitGroup
		wg.Go(func() { d.second.takeSome(ctx, rs, answers, ofSecond) })
		d.first.takeSome(ctx, rs, answers, ofFirst)
		wg.Wait()
		ofFirst, ofSecond = nil, nil
	}
	for i := range rs {
		switch own, other := d.divide(&rs[i]); {
		case other == nil:
			ofFirst = append(ofFirst, i)
		case own == nil:
			ofSecond = append(ofSecond, i)
		default:
			flush()
			answers[i].Decision, answers[i].Err = d.Take(ctx, &rs[i], answers[i].Each)
		}
	}
	flush()
}

// takeSome is TakeBatch of the requests at some places.
func (s *Store) takeSome(ctx context.Context, rs []stint.Request, answers []stint.Answer, places []int) {
	if len(places) == 0 {
		return
	}
	some, got := make([]stint.Request, len(places)), make([]stint.Answer, len(places))
	for j, i := range places {
		some[j], got[j] = rs[i], answers[i]
	}
	s.TakeBatch(ctx, some, got)
	for j, i := range places {
		answers[i] = got[j]
	}
}

// Refund implements stint.Refunder.
func (d *Divided) Refund(ctx context.Context, r *stint.Request) error {
	return d.each(r, func(s *Store, r *stint.Request) error { return s.Refund(ctx, r) })
}

// Reset implements stint.Resetter.
func (d *Divided) Reset(ctx context.Context, r *stint.Request) error {
	return d.each(r, func(s *Store, r *stint.Request) error { return s.Reset(ctx, r) })
}

// each calls do with the part of r for each server.
func (d *Divided) each(r *stint.Request, do func(*Store, *stint.Request) error) error {
	own, other := d.divide(r)
	if other == nil {
		return do(d.first, r)
	}
	for i := range other.request.Asks {
		other.request.Asks[i].Penalty = nil
	}
	err := do(d.second, &other.request)
	if own != nil {
		err = errors.Join(do(d.first, &own.request), err)
	}
	return err
}

// Clear is Store.Clear on both servers.
func (d *Divided) Clear(ctx context.Context) error {
	return errors.Join(d.first.Clear(ctx), d.second.Clear(ctx))
}

// Holds implements stint.Holder.
func (d *Divided) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	limits := make([]*stint.Limit, len(calls))
	for i := range calls {
		limits[i] = calls[i].Limit
	}
	_ = d.byLimit(limits, func(s *Store, _ []*stint.Limit, places []int) error {
		some := make([]stint.HoldCall, len(places))
		for j, i := range places {
			some[j] = calls[i]
		}
		s.Holds(ctx, at, some)
		for j, i := range places {
			calls[i] = some[j]
		}
		return nil
	})
}

// Held implements stint.Holder.
func (d *Divided) Held(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Hold, error) {
	var all []stint.Hold
	err := d.byLimit(limits, func(s *Store, some []*stint.Limit, _ []int) error {
		holds, err := s.Held(ctx, key, some)
		all = append(all, holds...)
		return err
	})
	return all, err
}

// Inspect implements stint.Inspector.
func (d *Divided) Inspect(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Stored, error) {
	all := make([]stint.Stored, len(limits))
	err := d.byLimit(limits, func(s *Store, some []*stint.Limit, places []int) error {
		stored, err := s.Inspect(ctx, key, some)
		for j := range stored {
			all[places[j]] = stored[j]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Record implements stint.Inspector.
func (d *Divided) Record(ctx context.Context, key string, p *stint.Penalty) (stint.Record, error) {
	return d.first.Record(ctx, key, p)
}

// Banned implements stint.Inspector.
func (d *Divided) Banned(ctx context.Context, yield func(stint.Record) bool) error {
	return d.first.Banned(ctx, yield)
}

// byLimit calls do with the limits of each server, and their places.
func (d *Divided) byLimit(limits []*stint.Limit, do func(s *Store, some []*stint.Limit, places []int) error) error {
	var some [2][]*stint.Limit
	var places [2][]int
	for i, l := range limits {
		n := 0
		if kit.UnderAMinute(l) {
			n = 1
		}
		some[n], places[n] = append(some[n], l), append(places[n], i)
	}
	var errs []error
	for n, s := range [...]*Store{d.first, d.second} {
		if len(some[n]) > 0 {
			errs = append(errs, do(s, some[n], places[n]))
		}
	}
	return errors.Join(errs...)
}

// Notify implements fleet.Notifier. It is connected while both servers are.
func (d *Divided) Notify(ctx context.Context, l fleet.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // one goroutine at a time calls l
	var connected [2]bool
	both := false
	errs := make(chan error, 2)
	for n, s := range [...]*Store{d.first, d.second} {
		go func() {
			errs <- s.Notify(ctx, fleet.Listener{
				Connected: func(yes bool) {
					mu.Lock()
					defer mu.Unlock()
					connected[n] = yes
					if now := connected[0] && connected[1]; now != both {
						both = now
						l.Connected(both)
					}
				},
				Invalidated: func(key string) {
					mu.Lock()
					defer mu.Unlock()
					l.Invalidated(key)
				},
			})
		}()
	}
	err := <-errs
	cancel()
	<-errs
	return err
}

// The names of servers that are not Clusters, and the prefix of node names of the second.
const (
	firstServer  = "the first Redis"
	secondServer = "the second Redis"
)

// Partition implements fleet.Partitioned.
func (d *Divided) Partition(l *stint.Limit, key string) string {
	if !kit.UnderAMinute(l) {
		if node := d.first.Partition(l, key); node != "" {
			return node
		}
		return firstServer
	}
	if node := d.second.Partition(l, key); node != "" {
		return secondServer + " " + node
	}
	return secondServer
}

// Partitions implements fleet.Partitioned.
func (d *Divided) Partitions() []string {
	all := d.first.Partitions()
	if len(all) == 0 {
		all = append(all, firstServer)
	}
	all = all[:len(all):len(all)]
	others := d.second.Partitions()
	if len(others) == 0 {
		return append(all, secondServer)
	}
	for _, node := range others {
		all = append(all, secondServer+" "+node)
	}
	return all
}
