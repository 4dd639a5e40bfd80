package decide

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// Request is a request while it is decided, with its Verdict. It has room for most requests' data, so that one
// allocation is enough.
type Request struct {
	In       *rules.Input  // nil: it could not be read, and Err is the reason
	MaxDelay time.Duration // the longest delay by rules that shape; 0: requests are not delayed here
	// Hold and HoldFor are those of its calls of the store. Settlement settles their holds; it is nil if Hold
	// was given, or if the request's end will not be known. If it is not nil, Hold is made when something is
	// held.
	Hold       stint.HoldID
	HoldFor    time.Duration
	Settlement *Settlement
	Opaque     bool  // the caller gets what it holds as a text: see Options.FitsHold
	decides    int32 // the index of the ask behind the decision, when it is concluded; -1: none
	Verdict
	Err    error          // if not nil, the Verdict is zero, but for Kind
	Claims map[string]any // of the token, if the rules have read it

	Set      *Set        // that decides
	Asks     []stint.Ask // as Rules and Each
	Groups   []Group     // calls of the store; empty: there is nothing to ask
	Watching []Watching  // the rules that wait for the response
	back     []stint.Ask // the refunds of a call of Envoy's service
	shadows  *shadows    // the call that may hold units for rules in shadow mode, if no Settlement settles them
	room     struct {
		asks   [2]stint.Ask
		rules  [2]*rules.Rule
		each   [2]stint.Decision
		groups [1]Group
	}
}

var plans = sync.Pool{New: func() any { return new(rules.Plan) }}

// Plan finds the rules that apply and what to ask the store, at that instant (zero: now). m is scratch space.
// allowed are permitted ambiguities. t must not be Opaque: its holds would not be bounded.
func (t *Request) Plan(ctx context.Context, set *Set, m *rules.Plan, at time.Time, allowed rules.Ambiguity) {
	t.plan(ctx, set, m, at, allowed, nil)
}

func (t *Request) plan(ctx context.Context, set *Set, m *rules.Plan, at time.Time, allowed rules.Ambiguity, fitsHold func([]stint.Ask) error) {
	t.Set = set
	if len(set.NAT64) > 0 {
		t.seeThrough(set)
	}
	m.Asks, m.Rules = t.room.asks[:0], t.room.rules[:0]
	m.Descriptors, m.GiveBack = nil, nil // those of the request before are its own
	if a := set.Ambiguous(t.In) &^ allowed; a != 0 {
		t.Err = Ambiguous(a)
		return
	}
	if t.Err = set.AsksContext(ctx, t.In, m); t.Err != nil {
		return
	}
	t.Claims, t.back = m.Claims, m.GiveBack
	if t.Settlement != nil {
		t.Settlement.Spared = m.Spared
	}
	if t.Opaque {
		if t.Err = fitsHold(m.Asks); t.Err != nil {
			return
		}
	}
	set.Watcher.Skipped(m.Unread...)
	for i, rule := range m.Rules {
		if rule.Shape && rule.Mode == rules.Enforce {
			m.Asks[i].MaxDelay = t.MaxDelay
		}
	}
	t.Asks, t.Verdict = m.Asks, Verdict{List: m.List, Entry: m.Entry, Rules: m.Rules, Descriptors: m.Descriptors}
	switch v := &t.Verdict; {
	case m.List == rules.Blocked:
	case m.Ban != nil:
		v.Rule, v.ByHand = m.BanRule, m.Ban
		v.Decision = stint.Decision{Outcome: stint.Banned, Key: string(m.Ban.Key), RetryAfter: m.BanLeft, BanLeft: m.BanLeft}
	default:
		v.Decision = stint.Decision{Allowed: true, Outcome: stint.Allowed}
		if len(m.Asks) > 0 {
			t.divide(at)
		}
	}
}

// seeThrough replaces a NAT64 address of the client, as set knows them, by its IPv4 address, for logs and
// lists.
func (t *Request) seeThrough(set *Set) {
	if client := set.Client(t.In); client != t.In.Addr() {
		in := *t.In // the caller's stays
		in.Client, t.In = client, &in
	}
}

// TargetError is why the target or the method of a request is refused. It wraps
// stint.ErrRequest.
type TargetError struct {
	Text string // a sentence for the client, without anything that it sent
}

func (e *TargetError) Error() string { return e.Text }
func (e *TargetError) Unwrap() error { return stint.ErrRequest }

// Detail is for httplimit.Middleware.
func (e *TargetError) Detail() string { return e.Text }

// Ambiguous is the error of a request that is refused because of a.
func Ambiguous(a rules.Ambiguity) error {
	return &TargetError{(&rules.AmbiguousError{Is: a}).Detail()}
}

// Wanted returns how many units the ask behind the decision wanted, and its limit. For a descriptor's limit
// that allows nothing, the ask has a cost that never fits.
func (t *Request) Wanted() (cost int64, limit string) {
	limit = t.Limit.Terms()
	for i := range t.Asks {
		a := &t.Asks[i]
		if a.Limit != t.Limit || a.Key != t.Key {
			continue
		}
		cost = a.Units()
		for k := range t.Descriptors {
			if m := &t.Descriptors[k]; m.Ask == i && m.Limit != nil && m.Limit.Amount == 0 && cost > a.Limit.Capacity() {
				cost -= a.Limit.Capacity()
				_, period, _ := strings.Cut(a.Limit.Terms(), " ")
				limit = "0 " + period
			}
		}
		return cost, limit
	}
	return 1, limit // of the limit of a Limiter
}

// Ask is the ask with that index in Asks as the store got it.
func (t *Request) Ask(i int) *stint.Ask {
	for g := range t.Groups {
		r := &t.Groups[g]
		if r.Places == nil {
			return &r.Request.Asks[i]
		}
		if at := slices.Index(r.Places, i); at >= 0 {
			return &r.Request.Asks[at]
		}
	}
	return nil
}
