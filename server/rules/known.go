package rules

import (
	"net/http"
	"slices"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// Known says which parts of requests are known where rules are tried on requests of the past, such as those of
// an access log. Parts that it does not mention, such as bodies and claims, are not known.
type Known struct {
	// Each of these says whether that field of Input, or of its Request, is known.
	Client, Method, Path, Query, Host, Route, Operation, Cost bool
	// Status is that of the response.
	Status bool
	// Header reports whether the header with this canonical name is known; nil: none is. A request need not
	// have it.
	Header func(name string) bool
	// Attrs are names of attributes.
	Attrs []string
	// Share is the share of all requests that is known, if each was chosen at random. 0: all are. Rules that
	// refuse or ban after few requests cannot be tried then, nor those whose requests differ in cost.
	Share float64
}

// fewestSeen is how many requests of a key must be known when a limit refuses it: of ten that were chosen at random,
// a third more or less is usual.
const fewestSeen = 10

// sees reports whether requests are known when so many have come.
func (k *Known) sees(n int64) bool {
	return k.Share == 0 || n == 0 || float64(n)*k.Share >= fewestSeen-1e-9
}

func (k *Known) header(name string) bool { return k.Header != nil && k.Header(name) }

// Lack is a rule that cannot be tried, or an entry of a list.
type Lack struct {
	Rule  *Rule     // nil: Entry
	Entry ListEntry // of the safelist or the blocklist
	// Reads is what it needs and is not known, as expressions have it: body, request.headers["x-key"].
	Reads []string
}

// Trying returns s for requests of which only k is known: rules that read anything else are off, and entries of
// lists that do are left out, because what they would decide could only be guessed. lacks has them in the
// file's order, and then the rules that depend on those: a default rule applies where no other rule does.
//
// Rules that hold units until a request ends are among them, too. Changes made at run time are not in trying.
func (s *Set) Trying(k *Known) (trying *Set, lacks []Lack) {
	if s.base != nil {
		s = s.base
	}
	a := newApplier(s)
	for l := Safe; l <= Blocked; l++ {
		lacks = append(lacks, a.set.list(l).tryOnly(k, l, s)...)
	}
	var first *Rule // that cannot be tried
	for _, r := range s.Rules {
		if r.Mode == Off {
			continue
		}
		reads := k.lackedBy(s, r)
		if len(reads) > 0 && first == nil && !r.Default && r.Mode == Enforce && r.Descriptor == nil {
			first = r
		}
		if len(reads) > 0 {
			lacks = append(lacks, Lack{Rule: r, Reads: reads})
		}
	}
	for _, r := range s.Rules {
		known := func(l Lack) bool { return l.Rule == r }
		if r.Default && r.Mode != Off && first != nil && !slices.ContainsFunc(lacks, known) {
			lacks = append(lacks, Lack{Rule: r, Reads: []string{"whether the rule " + first.Name + " applies"}})
		}
	}
	for _, l := range lacks {
		if l.Rule != nil {
			a.turnOff(l.Rule)
		}
	}
	a.set.noteUses()
	a.set.indexRules()
	a.set.base = nil // changes at run time would apply to s
	return a.set, lacks
}

func (a *applier) turnOff(r *Rule) {
	if err := a.mode(r.Name, Off); err != nil {
		panic(err) // r is one of the set's
	}
}

// tryOnly leaves out the entries of l that k is not enough for.
func (l *list) tryOnly(k *Known, which List, s *Set) (lacks []Lack) {
	var kept []*expr.Expression
	for i, e := range l.conditions {
		if reads := k.lacked(s, e); len(reads) > 0 {
			lacks = append(lacks, Lack{Entry: ListEntry{list: which, place: i + 1, listed: e}, Reads: reads})
		} else {
			kept = append(kept, e)
		}
	}
	if lacks != nil {
		l.conditions = kept
		l.index()
	}
	return lacks
}

// lackedBy is what r reads and k does not have.
func (k *Known) lackedBy(s *Set, r *Rule) (reads []string) {
	all := []*expr.Expression{r.match, r.key, r.cost}
	for _, l := range r.Limits {
		all = append(all, r.costs[l.ID()])
	}
	for _, t := range r.Tiers {
		all = append(all, s.tiers[t.index])
		for _, l := range t.Limits {
			all = append(all, r.costs[l.ID()])
		}
	}
	for _, e := range all {
		if e != nil {
			reads = append(reads, k.lacked(s, e)...)
		}
	}
	switch {
	case r.Descriptor != nil:
		reads = append(reads, "descriptors")
	case r.Tokens.API != NoTokens || r.Tokens.IncludeUsage:
		reads = append(reads, "body")
	case r.Holds() || r.after != nil:
		reads = append(reads, "what a request holds until its end")
	}
	if len(r.OnStatus) > 0 && !k.Status {
		reads = append(reads, "response.status")
	}
	if r.Penalty != nil && !k.sees(r.Penalty.Spec().BanAfter) {
		if len(r.OnStatus) > 0 {
			reads = append(reads, "every response")
		} else {
			reads = append(reads, "every refused request, for its bans")
		}
	}
	for _, l := range r.AllLimits("") {
		if !l.IsUnlimited() && !k.seesUntil(r, l) {
			reads = append(reads, "every request, for "+l.Terms())
		}
	}
	return inOrder(reads)
}

// LackedByKey is what the key of r, a rule of s, reads and k does not have, in the words of Lack.Reads.
func (k *Known) LackedByKey(s *Set, r *Rule) []string {
	if r.key == nil {
		return []string{"descriptors"}
	}
	return k.lacked(s, r.key)
}

// seesUntil reports whether enough requests of a key are known when l refuses one. If their costs differ, it depends
// on the costs of those that are not known.
func (k *Known) seesUntil(r *Rule, l *stint.Limit) bool {
	cost, fixed := int64(1), true
	if e := r.ownCost(l); e != nil {
		cost, fixed = e.FixedInt()
	} else if r.TakesCost(l) && r.cost != nil {
		cost, fixed = r.cost.FixedInt()
	} else if r.TakesCost(l) {
		fixed = !k.Cost
	}
	if !fixed {
		return k.Share == 0 || l.Capacity() == 0
	}
	return k.sees(l.Capacity() / max(cost, 1))
}

// lacked is what e reads and k does not have.
func (k *Known) lacked(s *Set, e *expr.Expression) (reads []string) {
	has := map[string]bool{
		"client.ip": k.Client, "request.method": k.Method, "request.path": k.Path, "request.query": k.Query,
		"request.host": k.Host, "request.route": k.Route, "operation": k.Operation, "cost": k.Cost,
		"request.headers": !e.AnyHeader, "attrs": !e.AnyAttr, "secrets": true,
		"request.cookies": k.header("Cookie"),
		"request.credential": !slices.ContainsFunc(s.credentialHeaders, func(name string) bool {
			return !k.header(name)
		}),
	}
	for _, name := range e.Variables {
		if !has[name] {
			reads = append(reads, name)
		}
	}
	for _, name := range e.Headers {
		if !k.header(http.CanonicalHeaderKey(name)) {
			reads = append(reads, `request.headers["`+strings.ToLower(name)+`"]`)
		}
	}
	for _, name := range e.Attrs {
		if !slices.Contains(k.Attrs, name) {
			reads = append(reads, "attrs."+name)
		}
	}
	return inOrder(reads)
}

func inOrder(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
