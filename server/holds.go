package server

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/usage"
	"github.com/stintdev/stint/server/rules"
)

// ending settles a request's holds when the request ends. The zero ending is ready for use, from many
// goroutines at once: calls for rules in shadow mode may still be under way at the end, and their holds are
// settled when they return.
type ending struct {
	holds bool // the request may hold something
	late  bool // holds of rules in shadow mode may be kept after the end
	// spared are the budgets that the request did not ask, but may be charged to when it ends.
	spared []rules.Spared

	mu     sync.Mutex
	kept   []kept
	ended  bool
	result *result // for late holds; nil: the request did not take place
}

// kept are a request's holds from one call of the store.
type kept struct {
	reservation *stint.Reservation
	asks        []stint.Ask
	rules       []*rules.Rule // of asks
	counters    ruleCounters
}

// result is how a request that took place ended.
type result struct {
	rules.Response
	failed func(error) // receives what goes wrong
	// unread is called once for a rule if no response reports the cost of its request.
	unread func(*rules.Rule)
	// announced keeps the charges for answers that are made later.
	announced stint.Store
	// unknown is called for a rule with tokens that does not know the endpoint's cost.
	unknown func(*rules.Rule)
}

// keep settles k when the request ends: now, if it has ended.
func (e *ending) keep(ctx context.Context, k kept) {
	if k.reservation == nil {
		return
	}
	k.each((*holdCounters).begun)
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
func (e *ending) end(ctx context.Context, how *result) error {
	all := e.close(how)
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := outliving(ctx)
	defer cancel()
	var err error
	for i := range all {
		err = errors.Join(err, all[i].settle(ctx, how))
	}
	return err
}

// refused releases the holds of rules in shadow mode for a request that others refuse. The request does not
// wait for the store.
func (e *ending) refused() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // so that the Limiter settles in the background
	for _, k := range e.close(nil) {
		_ = k.settle(ctx, nil) // a hold that is lost has run out
	}
}

// close returns the holds to settle by how; nil if that was done before.
func (e *ending) close(how *result) []kept {
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
func (k *kept) settle(ctx context.Context, how *result) error {
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
		k.counters.of(rule).holds.cost(a.Units(), costs[i])
	}
	err := k.reservation.Settle(ctx, costs...)
	if how != nil {
		err = errors.Join(err, k.announce(ctx, how, costs))
	}
	lost := errors.Is(err, stint.ErrHoldLost)
	k.each(func(c *holdCounters) { c.ended(how != nil, lost) })
	if err != nil {
		return &unchargedError{k.rules[0].Name, k.asks[0].Key, err}
	}
	return nil
}

// announce records the charges for an answer that is made later.
func (k *kept) announce(ctx context.Context, how *result, costs []int64) (err error) {
	for i := range k.asks {
		a, rule := &k.asks[i], k.rules[i]
		if !isBudget(a) || rule.After != "" {
			continue
		}
		if id := rule.Tokens.Announced(&how.Response); id != "" {
			later := laterAsk{Rule: rule, Key: a.Key, Limit: a.Limit}
			err = errors.Join(err, later.announce(ctx, how.announced, id, costs[i]))
		}
	}
	return err
}

// unchargedError says that a part of a request was not charged, because of err. Its text has no key, because
// the log may have to hide keys.
type unchargedError struct {
	rule, key string // of one of its asks
	err       error
}

func (e *unchargedError) Error() string { return e.err.Error() }
func (e *unchargedError) Unwrap() error { return e.err }

// logUncharged logs an error of ending.end.
func (s *Server) logUncharged(text string, err error) {
	args := []any{"error", err}
	if e := (*unchargedError)(nil); errors.As(err, &e) {
		args = []any{"rule", e.rule, "key", s.refusals.key(e.key), "error", err}
	}
	s.sampled.log(slog.LevelError, text, text, args...)
}

// lostLater logs and counts a settlement that waited in memory and was lost before the store answered.
func (s *Server) lostLater(l *stint.Limit, err error) {
	rule := ruleOf(l)
	if c := s.set.Load().holds[rule]; c != nil {
		c.lost.Inc()
	}
	const text = "a request was not charged what it did cost"
	s.sampled.log(slog.LevelError, text, text, "rule", rule, "error", err)
}

// costAfter returns the request's final cost under rule, if rule finds one. estimate is the cost as it was
// estimated.
func (k *kept) costAfter(rule *rules.Rule, how *result, estimate int64) (cost int64, known bool) {
	if !knowsCost(rule) {
		return 0, false
	}
	cost, known, err := rule.CostAfter(&how.Response)
	if err != nil && how.failed != nil {
		how.failed(err)
	}
	if rule.After == "" && !how.Endpoint.IsKnown() && (how.Status/100 == 2 || how.Status == http.StatusSwitchingProtocols) && how.unknown != nil {
		how.unknown(rule)
	}
	if how.Endpoint.IsBatch() && rule.After == "" && how.Status != 0 && how.Status < 400 {
		return estimate, true // no response to this request reports the usage of the parts
	}
	if estimate == 0 && rule.Cost == "" && rule.After == "" && !known && how.Events == 0 {
		return 0, true // a request without a body, such as for a list of models, costs no tokens
	}
	known = known && err == nil
	if k.counters.of(rule).holds.responseRead(how.Status, known) && how.unread != nil {
		how.unread(rule)
	}
	if !known {
		k.counters.of(rule).holds.costUnknown()
		return 0, false
	}
	return cost, true
}

// knowsCost reports whether rule finds the final cost of requests.
func knowsCost(rule *rules.Rule) bool { return rule.After != "" || rule.Tokens.API != rules.NoTokens }

// isBudget reports whether a holds units whose cost is known at the end.
func isBudget(a *stint.Ask) bool {
	return a.Limit != nil && rules.IsBudget(a.Limit)
}

// isHeld reports whether a request with a Hold holds units by a.
func isHeld(a *stint.Ask) bool { return a.Limit != nil && a.Limit.IsHeld() }

// each calls f with the counters of each rule by which something is held.
func (k *kept) each(f func(*holdCounters)) {
	var last *rules.Rule
	for i := range k.asks {
		if rule := k.rules[i]; rule != last && isHeld(&k.asks[i]) {
			last = rule
			if c := k.counters.of(rule).holds; c != nil {
				f(c)
			}
		}
	}
}

// settlesAtEnd settles r's holds when it ends, if v let it pass.
func (s *Server) settlesAtEnd(x *exchange, r *http.Request, v *Verdict, a *httplimit.Answer) {
	if x == nil || !v.Allowed || !x.ending.holds && len(x.ending.spared) == 0 {
		return
	}
	for _, rule := range v.Rules {
		addUsage(a, rule)
	}
	for i := range x.ending.spared {
		addUsage(a, x.ending.spared[i].Rule)
	}
	if len(a.Usage) > 0 {
		acceptReadable(r.Header)
	}
	a.OnEnd = func(ctx context.Context, resp *httplimit.Response) {
		how := s.resultOf(x, r, resp)
		err := errors.Join(x.ending.end(ctx, how), readLater(ctx, s.decider.Store, x.ending.spared, how))
		if err != nil {
			s.logUncharged("what a request did cost could not be charged", err)
		}
	}
}

// addUsage makes the response be read for the fields that rule needs.
func addUsage(a *httplimit.Answer, rule *rules.Rule) {
	if rule.Mode == rules.Off {
		return
	}
	for _, path := range rule.UsagePaths() {
		if !slices.ContainsFunc(a.Usage, func(known []string) bool { return slices.Equal(known, path) }) {
			a.Usage = append(a.Usage, path)
		}
	}
}

// resultOf returns how the request of x ended; nil: it did not reach the upstream.
func (s *Server) resultOf(x *exchange, r *http.Request, resp *httplimit.Response) *result {
	how := &result{
		Response:  rules.Response{Status: resp.Status, Headers: resp.Header, Bytes: resp.Bytes, Seconds: resp.Took.Seconds(), JSON: resp.JSON},
		failed:    func(err error) { s.sampled.failure("the cost of a request cannot be computed", err) },
		unread:    s.foundUnread,
		announced: s.decider.Store,
		unknown: func(rule *rules.Rule) {
			s.set.Load().noticed.endpoint(s.log, rule, x.endpoint, r.Method, x.target.RawPath)
		},
	}
	how.Unzipped, how.Events = resp.Passed()
	if how.Prompt = x.prompt; resp.Status != http.StatusSwitchingProtocols {
		how.Endpoint = x.endpoint
	}
	if x.wrapped {
		return how
	}
	if x.out == nil || x.unsent {
		return nil
	}
	if how.Status = x.status; how.Status == 0 { // the response is the gateway's own
		how.Headers, how.Bytes, how.Unzipped, how.Events, how.JSON = nil, 0, 0, 0, nil
		if !x.clientFailed { // else leaving before the answer would make the input free
			how.Prompt = rules.Prompt{}
		}
	}
	return how
}

// acceptReadable leaves in Accept-Encoding the encodings that can be read for usage. The response passes as
// the upstream encodes it.
func acceptReadable(h http.Header) {
	lines, ok := h["Accept-Encoding"]
	if !ok {
		return
	}
	var kept []string
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(part, ";")
			if usage.Decodes(strings.TrimSpace(name)) {
				kept = append(kept, strings.TrimSpace(part))
			}
		}
	}
	if kept == nil {
		kept = []string{"identity"}
	}
	h["Accept-Encoding"] = []string{strings.Join(kept, ", ")}
}
