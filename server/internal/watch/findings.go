package watch

import (
	"fmt"
	"slices"
	"sync"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// noticed has what requests under one set of rules revealed about forwarding headers, held limits and routes.
type noticed struct {
	forwarded, unheld sync.Once
	impatient         sync.Map // the rules for which this was found
	mu                sync.Mutex
	endpoints         map[string]bool // the first that rules met and did not know
	found             []rules.Finding // at most one for each code, or for each code and rule
}

// found logs a finding, about what args say.
func (c *Served) found(f rules.Finding, args ...any) {
	c.watch.Log.Warn(f.Text, append([]any{"code", f.Code}, args...)...)
	c.noticed.mu.Lock()
	defer c.noticed.mu.Unlock()
	c.noticed.found = append(c.noticed.found, f)
}

// Forwarded finds a proxy that is missing in trusted_proxies: a request from this address has a header that is
// ignored. It is logged once for each set of rules.
func (c *Served) Forwarded(from, header string) {
	c.noticed.forwarded.Do(func() { c.foundForwarded(from, header) })
}

func (c *Served) foundForwarded(from, header string) {
	f := rules.Finding{Code: rules.CodeNoProxies, Text: "requests have " + header + ", which is ignored because trusted_proxies is empty: " +
		"if your proxy sets it, all its clients count as one; add the proxy to trusted_proxies"}
	c.found(f, "address", c.watch.Privacy.shownAddress(from))
}

// Unheld is for decide.Watcher: it finds a rule with held limits that met a request that holds nothing, because
// its end is not seen. It is logged once for each set of rules.
func (c *Served) Unheld(r *rules.Rule, l *stint.Limit) {
	c.noticed.unheld.Do(func() { c.foundUnheld(r, l) })
}

func (c *Served) foundUnheld(r *rules.Rule, l *stint.Limit) {
	does := "the budget is charged the estimate"
	if !rules.IsBudget(l) {
		does = "in_flight only says whether one more would fit"
	}
	f := rules.Finding{Code: rules.CodeNoEnd, Text: fmt.Sprintf("rule %q got a request whose end Stint cannot see, so %s is not held: %s; "+
		"send such requests through the gateway, or use checks with hold and settle", r.Name, l.Terms(), does)}
	c.found(f, "rule", r.Name)
}

// TakesRoute finds rules with tokens that apply to a request whose route gives up before its client does. If
// all routes do, a finding about the settings says so already. It is logged once for each rule.
func (c *Served) TakesRoute(s *config.Settings, route *config.Route, all []*rules.Rule) {
	if route == nil || !s.IsImpatient(route) {
		return
	}
	for _, rule := range all {
		if rule.Tokens.API == rules.NoTokens || rule.Mode == rules.Off {
			continue
		}
		if _, known := c.noticed.impatient.LoadOrStore(rule, true); known || s.AllImpatient() {
			continue
		}
		f := s.Impatient(rule, route)
		c.found(f, "rule", rule.Name)
	}
}

// foundUnread finds a rule for which no response reported a cost. It is logged.
func (c *Served) foundUnread(r *rules.Rule) {
	where := "cost_after"
	if r.After == "" {
		where = "tokens: " + r.Tokens.API.String()
	}
	f := rules.Finding{Code: rules.CodeNoCost, Text: fmt.Sprintf("rule %q: none of %d responses had the cost of its request where %s expects it, so unsettled decides; "+
		"compare a response of the upstream with the rule", r.Name, unreadResponses, where)}
	c.watch.Current().found(f, "rule", r.Name) // the rules may be others by now
}

// maxEndpoints bounds the unknown endpoints that are found: clients choose paths.
const maxEndpoints = 8

// UnknownEndpoint finds a rule whose preset for tokens does not know the cost of an endpoint that an upstream
// serves. Each of the first maxEndpoints is logged once.
func (c *Served) UnknownEndpoint(r *rules.Rule, e rules.Endpoint, method, path string) {
	n, what := c.noticed, r.Name+" "+method+" "+path
	n.mu.Lock()
	known := n.endpoints[what] || len(n.endpoints) == maxEndpoints
	if n.endpoints == nil {
		n.endpoints = map[string]bool{}
	}
	if !known {
		n.endpoints[what] = true
	}
	n.mu.Unlock()
	if known {
		return
	}
	why := "whose cost tokens: " + r.Tokens.API.String() + " does not know"
	if e.IsBatch() {
		why = "which starts a batch of requests from a file"
	}
	f := rules.Finding{Code: rules.CodeEndpoint, Text: fmt.Sprintf("rule %q got a request to %s %s, %s: it was charged the response's usage, or the estimate of one request; "+
		"give such requests their own rule with a cost, or block them", r.Name, Shown(method), Shown(path), why)}
	c.found(f, "rule", r.Name)
}

// Found returns what was found while c was in force.
func (c *Served) Found() []rules.Finding {
	c.noticed.mu.Lock()
	defer c.noticed.mu.Unlock()
	return slices.Clone(c.noticed.found)
}
