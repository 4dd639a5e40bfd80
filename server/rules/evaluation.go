package rules

import (
	"context"
	"net/netip"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/address"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// evaluation is one Input as the expressions of a Set see it.
type evaluation struct {
	set    *Set
	in     *Input
	client netip.Addr      // in.Addr as clients are compared and counted
	cost   int64           // that the caller says
	ctx    context.Context // ends when nobody waits for the result any more

	scope                   expr.Scope
	headers, query, cookies lookups
	found                   map[string]any // by Instance.Claims
	candidates              bitset         // memory for an index
	keys                    []knownKey     // that were evaluated

	// A bit for each tier: whether it was evaluated, and to true.
	tiersKnown, tiersTrue uint64
}

func (ev *evaluation) open(ctx context.Context, s *Set, in *Input) {
	ev.ctx, ev.set, ev.in, ev.client, ev.cost = ctx, s, in, s.Client(in), in.cost()
	v := &ev.scope.Variables
	v.Client, v.IPv6Prefix, v.Operation, v.Attrs, v.Claims, v.Cost = ev.client, s.IPv6Prefix, in.What(), in.Attrs, ev, ev.cost
	if in.Descriptors != nil && in.Attrs == nil {
		v.LateAttrs = ev
	}
	if i := s.instance; i != nil {
		if i.Secrets != nil {
			v.Secrets = i.Secrets.values
		}
		if i.Lists != nil {
			v.Lists = i.Lists.lists
		}
	}
	if r := in.Request; r != nil {
		v.HasRequest, v.Method, v.Path, v.Host, v.Route = true, r.Method, r.Path, r.Host, r.Route
		v.Headers, v.Query, v.Body = (*headerFields)(ev), (*queryFields)(ev), r.Body
		v.Cookies, v.Credential = (*cookieFields)(ev), ev
	}
}

// close drops the request's data, and keeps memory for the next.
func (ev *evaluation) close() {
	ev.scope.Close()
	ev.ctx, ev.set, ev.in, ev.client, ev.cost = nil, nil, nil, netip.Addr{}, 0
	ev.headers, ev.query, ev.cookies, ev.found = lookups{}, lookups{}, lookups{}, nil
	ev.tiersKnown, ev.tiersTrue = 0, 0
	clear(ev.keys)
	ev.keys = ev.keys[:0]
}

// knownKey is the result of a key's expression.
type knownKey struct {
	expression *expr.Expression
	key        string
	ok         bool
	err        error
}

// mostKeys is how many keys are kept; rules share few.
const mostKeys = 8

// keyOf evaluates the key of r: once for all rules that share it.
func (ev *evaluation) keyOf(r *Rule) (key string, ok bool, err error) {
	if r.sharesKey {
		for i := range ev.keys {
			if k := &ev.keys[i]; k.expression == r.key {
				return k.key, k.ok, k.err
			}
		}
	}
	key, ok, err = r.key.Key(&ev.scope, stint.MaxKey)
	if ok && err == nil {
		err = checkKey(key)
	}
	ok = ok && err == nil
	if r.sharesKey && len(ev.keys) < mostKeys {
		ev.keys = append(ev.keys, knownKey{r.key, key, ok, err})
	}
	return key, ok, err
}

// shareKeys finds the rules that share a key. Rules read an unreadable body in different ways, and so share
// none of it.
func shareKeys(all []*Rule) {
	rules := map[*expr.Expression]int{}
	for _, r := range all {
		rules[r.key]++
	}
	for _, r := range all {
		r.sharesKey = rules[r.key] > 1 && !r.key.Uses("body")
	}
}

func (ev *evaluation) knowsBody() bool { return ev.in.Request != nil && ev.in.Request.Body != nil }

// Attrs are the attributes of a call of Envoy's rate limit service.
func (ev *evaluation) Attrs() map[string]any { return ev.in.Descriptors.attrs() }

func (ev *evaluation) Claims() (map[string]any, error) {
	i, r := ev.set.instance, ev.in.Request
	if ev.in.Claims != nil || r == nil || i == nil || i.Claims == nil {
		return ev.in.Claims, nil
	}
	if i.TokenHeader != "" {
		if _, _, ambiguous := r.header(i.TokenHeader, &ev.set.repeatable); ambiguous != 0 {
			return nil, &AmbiguousError{Is: ambiguous, Name: strings.ToLower(i.TokenHeader)}
		}
	}
	ev.found = i.Claims(r)
	return ev.found, nil
}

// Credential is the credential of the request's client.
func (ev *evaluation) Credential() (string, error) {
	text, ambiguous, in := ev.in.Request.credential(ev.set.credentialHeaders, &ev.set.repeatable)
	if ambiguous != 0 {
		return "", &AmbiguousError{Is: ambiguous, Name: strings.ToLower(in)}
	}
	return text, nil
}

// isInTier evaluates the condition of the i-th tier of the file once for all rules.
func (ev *evaluation) isInTier(i int) (bool, error) {
	bit := uint64(1) << i // i is less than maxTiers
	if ev.tiersKnown&bit == 0 {
		ok, err := ev.set.tiers[i].True(&ev.scope)
		if err != nil {
			return false, malformed(err, "tier %q", ev.set.Tiers[i])
		}
		if ev.scope.LenientBody && ev.set.tiers[i].Uses("body") {
			return ok, nil // other rules may refuse an unreadable body
		}
		ev.tiersKnown |= bit
		if ok {
			ev.tiersTrue |= bit
		}
	}
	return ev.tiersTrue&bit != 0, nil
}

func (ev *evaluation) defaultKeyText() (key string, ok bool, err error) {
	what, who := ev.in.What(), address.Counted(ev.client, ev.set.IPv6Prefix)
	if what == "" && ev.in.Request != nil {
		what = ev.in.Request.Route
	}
	if what == "" && who == "" {
		return "", false, nil
	}
	joined, err := JoinKey(what, who)
	return string(joined), err == nil, err
}
