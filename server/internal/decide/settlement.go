package decide

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// Settlement settles a request's holds when the request ends. The zero Settlement is ready for use, from many
// goroutines at once: calls for rules in shadow mode may still be under way at the end, and their holds are
// settled when they return.
type Settlement struct {
	Holds bool // the request may hold something
	late  bool // holds of rules in shadow mode may be kept after the end
	// Spared are the budgets that the request did not ask, but may be charged to when it ends.
	Spared []rules.Spared
	// Next is where the request goes on if it is allowed. nil: that is not known here.
	Next Next

	mu     sync.Mutex
	kept   []heldGroup
	ended  bool
	result *Ended // for late holds; nil: the request did not take place
}

// Next is where a request goes on.
type Next interface {
	// Ready returns the Err of a request that is decided, or why it cannot go on: then it takes nothing.
	Ready(*Request) error
}

// heldGroup has a request's holds from one call of the store.
type heldGroup struct {
	reservation *stint.Reservation
	asks        []stint.Ask
	rules       []*rules.Rule // of asks
	watcher     Watcher
}

// Ended is how a request that took place ended.
type Ended struct {
	rules.Response
	// Failed receives what goes wrong. nil: nobody learns of it.
	Failed func(error)
	// Store keeps the charges for answers that are made later. It must be given.
	Store stint.Store
	// Unknown is called for a rule with tokens that does not know the endpoint's cost. nil: nobody learns of it.
	Unknown func(*rules.Rule)
}

// End settles everything by how the request ended; nil: it did not take place. It also charges an answer that
// is read now and was made for an earlier request.
func (e *Settlement) End(ctx context.Context, how *Ended) error {
	return errors.Join(e.end(ctx, how), e.readLater(ctx, how))
}

// keep settles k when the request ends: now, if it has ended.
func (e *Settlement) keep(ctx context.Context, k heldGroup) {
	if k.reservation == nil {
		return
	}
	k.each(k.watcher.Held)
	e.mu.Lock()
	ended := e.ended
	if !ended {
		e.kept = append(e.kept, k)
	}
	e.mu.Unlock()
	if ended {
		k.settle(ctx, e.result)
	}
}

// end settles everything by how the request ended. nil releases everything.
func (e *Settlement) end(ctx context.Context, how *Ended) error {
	all := e.close(how)
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := Outliving(ctx)
	defer cancel()
	var err error
	for i := range all {
		err = errors.Join(err, all[i].settle(ctx, how))
	}
	return err
}

// refused releases the holds of rules in shadow mode for a request that others refuse. The request does not
// wait for the store.
func (e *Settlement) refused() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // so that the Limiter settles in the background
	for _, k := range e.close(nil) {
		_ = k.settle(ctx, nil) // a hold that is lost has run out
	}
}

// close returns the holds to settle by how; nil if that was done before.
func (e *Settlement) close(how *Ended) []heldGroup {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return nil
	}
	all := e.kept
	e.ended, e.kept = true, nil
	if how != nil && e.late {
		own := *how
		own.Headers = maps.Clone(how.Headers) // net/http and other handlers go on to change them
		e.result = &own
	}
	return all
}

// settle settles k. An error means that something was not charged.
func (k *heldGroup) settle(ctx context.Context, how *Ended) error {
	costs := make([]int64, len(k.asks))
	var last *rules.Rule
	var cost int64
	var known bool
	for i := range k.asks {
		a, rule := &k.asks[i], k.rules[i]
		if how == nil || !isBudget(a) {
			continue
		}
		if rule != last || how.Endpoint.IsBatch() && rule.After == "" { // such a rule costs what each budget held
			last = rule
			cost, known = k.costAfter(rule, how, a.Units())
		}
		switch {
		case known:
			costs[i] = cost
		case !knowsCost(rule) || rule.Unsettled == rules.Keep:
			costs[i] = max(a.Units(), rule.LeastCost(&how.Response, a.Units()))
		default:
			costs[i] = rule.LeastCost(&how.Response, a.Units())
		}
		k.watcher.Cost(rule, a.Units(), costs[i])
	}
	err := k.reservation.Settle(ctx, costs...)
	if how != nil {
		err = errors.Join(err, k.announce(ctx, how, costs))
	}
	lost := errors.Is(err, stint.ErrHoldLost)
	k.each(func(rule *rules.Rule) { k.watcher.Released(rule, how != nil, lost) })
	if err != nil {
		return &UnchargedError{k.rules[0].Name, k.asks[0].Key, err}
	}
	return nil
}

// announce records the charges for an answer that is made later.
func (k *heldGroup) announce(ctx context.Context, how *Ended, costs []int64) (err error) {
	for i := range k.asks {
		a, rule := &k.asks[i], k.rules[i]
		if !isBudget(a) || rule.After != "" {
			continue
		}
		if id := rule.Tokens.Announced(&how.Response); id != "" {
			later := laterAsk{Rule: rule, Key: a.Key, Limit: a.Limit}
			err = errors.Join(err, later.announce(ctx, how.Store, id, costs[i]))
		}
	}
	return err
}

// UnchargedError says that a part of a request was not charged, because of err. Its text has no key, because
// the log may have to hide keys.
type UnchargedError struct {
	Rule, Key string // of one of its asks
	Err       error
}

func (e *UnchargedError) Error() string { return e.Err.Error() }
func (e *UnchargedError) Unwrap() error { return e.Err }

// costAfter returns the request's final cost under rule, if rule finds one. estimate is the cost as it was
// estimated.
func (k *heldGroup) costAfter(rule *rules.Rule, how *Ended, estimate int64) (cost int64, known bool) {
	if !knowsCost(rule) {
		return 0, false
	}
	cost, known, err := rule.CostAfter(&how.Response)
	if err != nil && how.Failed != nil {
		how.Failed(err)
	}
	if rule.After == "" && !how.Endpoint.IsKnown() && (how.Status/100 == 2 || how.Status == switchingProtocols) && how.Unknown != nil {
		how.Unknown(rule)
	}
	if how.Endpoint.IsBatch() && rule.After == "" && how.Status != 0 && how.Status < 400 {
		return estimate, true // no response to this request reports the usage of the parts
	}
	if estimate == 0 && rule.Cost == "" && rule.After == "" && !known && how.Events == 0 {
		return 0, true // a request without a body, such as for a list of models, costs no tokens
	}
	known = known && err == nil
	k.watcher.CostRead(rule, how.Status, known)
	if !known {
		return 0, false
	}
	return cost, true
}

// switchingProtocols is the status of an upgraded connection, such as a WebSocket.
const switchingProtocols = 101

// knowsCost reports whether rule finds the final cost of requests.
func knowsCost(rule *rules.Rule) bool { return rule.After != "" || rule.Tokens.API != rules.NoTokens }

// isBudget reports whether a holds units whose cost is known at the end.
func isBudget(a *stint.Ask) bool {
	return a.Limit != nil && rules.IsBudget(a.Limit)
}

// isHeld reports whether a request with a Hold holds units by a.
func isHeld(a *stint.Ask) bool { return a.Limit != nil && a.Limit.IsHeld() }

// each calls f with each rule by which something is held.
func (k *heldGroup) each(f func(*rules.Rule)) {
	var last *rules.Rule
	for i := range k.asks {
		if rule := k.rules[i]; rule != last && isHeld(&k.asks[i]) {
			last = rule
			f(rule)
		}
	}
}

// RuleOf is the name of a limit's rule. The limits of tiers are named RULE@TIER.
func RuleOf(l *stint.Limit) string {
	rule, _, _ := strings.Cut(l.Spec().Name, "@")
	return rule
}
