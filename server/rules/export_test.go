package rules

import (
	"context"
	"strings"
)

// For tests of package rules_test.
const (
	MaxRules   = maxRules
	MaxLimits  = maxLimits
	MaxListed  = maxListed
	MaxTiers   = maxTiers
	MaxFiles   = maxFiles
	DefaultKey = defaultKey
)

// EndpointRows are the rows of the table of endpoints: path, use, and the API whose fields it has.
func EndpointRows() (rows [][3]string) {
	for _, e := range endpoints {
		rows = append(rows, [3]string{e.path, e.use.String(), e.form.String()})
	}
	return rows
}

// FreeRoots are the resources below which nothing uses tokens.
func FreeRoots() []string { return freeRoots }

// Use is what an endpoint does to tokens.
func (e Endpoint) Use() string { return e.use.String() }

// Measures are the functions of conditions of alerts: for each, how it may be called.
func Measures() map[string][]string {
	all := map[string][]string{}
	for name, m := range measures {
		for n := m.least; n <= len(m.args); n++ {
			args := make([]string, n)
			for i, a := range m.args[:n] {
				args[i] = [...]string{ruleArgument: "RULE", outcomeArgument: "OUTCOME", quantileArgument: "Q"}[a]
			}
			all[name] = append(all[name], name+"("+strings.Join(args, ", ")+")")
		}
	}
	return all
}

// AlertOutcomes are the outcomes that the measure rate knows.
func AlertOutcomes() []string { return alertOutcomes }

// Linear is s without indexes: it evaluates every condition.
func (s *Set) Linear() *Set {
	linear := *s
	linear.indexed, linear.defaults, linear.safelist.indexed, linear.blocklist.indexed = nil, nil, nil, nil
	return &linear
}

// Indexed is how many of the rules that are not Default have a guard in the index of s; -1: it has none.
func (s *Set) Indexed() int {
	if s.indexed == nil {
		return -1
	}
	guarded := newBitset(len(s.written()))
	for _, g := range s.indexed.groups {
		guarded.addAll(g.all)
	}
	n := 0
	for i := guarded.next(0, len(s.Rules)); i < len(s.Rules); i = guarded.next(i+1, len(s.Rules)) {
		n++
	}
	return n
}

// Evaluated is how many rules s evaluates for in.
func (s *Set) Evaluated(in *Input) (n int) {
	var ev evaluation
	ev.open(context.Background(), s, in)
	defer ev.close()
	for _, x := range []*index{s.indexed, s.defaults} {
		if x == nil {
			continue
		}
		all := x.candidates(&ev, &ev.candidates)
		for i := all.next(0, len(s.Rules)); i < len(s.Rules); i = all.next(i+1, len(s.Rules)) {
			n++
		}
	}
	return n
}
