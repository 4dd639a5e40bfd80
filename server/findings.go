package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
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

func (n *noticed) add(f rules.Finding) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.found = append(n.found, f)
}

// Findings returns settings and rules that are valid but probably not meant: those found at the start, in the
// rules in force, and while these have been in force.
func (s *Server) Findings() []rules.Finding {
	controls := s.control.Findings()
	set := s.set.Load()
	set.noticed.mu.Lock()
	defer set.noticed.mu.Unlock()
	var beside []rules.Finding
	if s.found != nil {
		beside = s.found()
	}
	if f, near := s.holdsFinding(); near {
		beside = append(slices.Clone(beside), f)
	}
	return slices.Concat(beside, s.settings.Findings(set.Set.Set), set.Findings, set.noticed.found, controls)
}

// holdsFinding finds that this instance has little room left for its own holds. Holds in Redis take none of
// it.
func (s *Server) holdsFinding() (f rules.Finding, near bool) {
	m := s.local
	if !s.fleet.IsLayered() {
		if m, _ = stint.As[*stint.Memory](s.limiter.Store); m == nil {
			return f, false
		}
	}
	made, most := stint.Internal(friend.Of{}).RoomOfHolds(m)
	return rules.Finding{Code: rules.CodeManyHolds, Text: fmt.Sprintf("this instance has %d of at most %d holds in its own memory; beyond that, requests that hold get 503: "+
		"raise max_keys (this is a sixteenth of it), or shorten the holds of limits", made, most)}, made >= most-most/10
}

// noticeHolds logs that finding when it appears.
func (s *Server) noticeHolds() {
	f, near := s.holdsFinding()
	if was := s.manyHolds.Swap(near); near && !was {
		s.log.Warn(f.Text, "code", f.Code)
	}
}

// notice finds a proxy that is missing in trusted_proxies. It is logged once for each set of
// rules.
func (s *Server) notice(r *http.Request) {
	set := s.set.Load()
	if len(set.TrustedProxies) > 0 {
		return
	}
	for _, name := range [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", http.CanonicalHeaderKey(s.settings.ClientHeader)} {
		if r.Header[name] != nil {
			set.noticed.forwarded.Do(func() { s.foundForwarded(set, r.RemoteAddr, name) })
			return
		}
	}
}

func (s *Server) foundForwarded(set *served, from, header string) {
	f := rules.Finding{Code: rules.CodeNoProxies, Text: "requests have " + header + ", which is ignored because trusted_proxies is empty: " +
		"if your proxy sets it, all its clients count as one; add the proxy to trusted_proxies"}
	s.log.Warn(f.Text, "code", f.Code, "address", s.shownAddress(from))
	set.noticed.add(f)
}

// Unheld is for decide.Watcher: it finds a rule with held limits that met a request that holds nothing, because
// its end is not seen. It is logged once for each set of rules.
func (c *served) Unheld(r *rules.Rule, l *stint.Limit) {
	c.noticed.unheld.Do(func() { c.of.foundUnheld(c, r, l) })
}

func (s *Server) foundUnheld(set *served, r *rules.Rule, l *stint.Limit) {
	does := "the budget is charged the estimate"
	if !rules.IsBudget(l) {
		does = "in_flight only says whether one more would fit"
	}
	f := rules.Finding{Code: rules.CodeNoEnd, Text: fmt.Sprintf("rule %q got a request whose end Stint cannot see, so %s is not held: %s; "+
		"send such requests through the gateway, or use checks with hold and settle", r.Name, l.Terms(), does)}
	s.log.Warn(f.Text, "code", f.Code, "rule", r.Name)
	set.noticed.add(f)
}

// takesRoute finds rules with tokens that apply to a request whose route gives up before its client does. If
// all routes do, a finding about the settings says so already. It is logged once for each rule.
func (n *noticed) takesRoute(s *config.Settings, route *config.Route, all []*rules.Rule, log *slog.Logger) {
	if route == nil || !s.IsImpatient(route) {
		return
	}
	for _, rule := range all {
		if rule.Tokens.API == rules.NoTokens || rule.Mode == rules.Off {
			continue
		}
		if _, known := n.impatient.LoadOrStore(rule, true); known || s.AllImpatient() {
			continue
		}
		f := s.Impatient(rule, route)
		log.Warn(f.Text, "code", f.Code, "rule", rule.Name)
		n.add(f)
	}
}

// foundUnread finds a rule for which no response reported a cost. It is logged.
func (s *Server) foundUnread(r *rules.Rule) {
	where := "cost_after"
	if r.After == "" {
		where = "tokens: " + r.Tokens.API.String()
	}
	f := rules.Finding{Code: rules.CodeNoCost, Text: fmt.Sprintf("rule %q: none of %d responses had the cost of its request where %s expects it, so unsettled decides; "+
		"compare a response of the upstream with the rule", r.Name, unreadResponses, where)}
	s.log.Warn(f.Text, "code", f.Code, "rule", r.Name)
	s.set.Load().noticed.add(f)
}

// maxEndpoints bounds the unknown endpoints that are found: clients choose paths.
const maxEndpoints = 8

// endpoint finds a rule whose preset for tokens does not know the cost of an endpoint that an upstream
// serves. Each of the first maxEndpoints is logged once.
func (n *noticed) endpoint(log *slog.Logger, r *rules.Rule, e rules.Endpoint, method, path string) {
	what := r.Name + " " + method + " " + path
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
		"give such requests their own rule with a cost, or block them", r.Name, shown(method), shown(path), why)}
	log.Warn(f.Text, "code", f.Code, "rule", r.Name)
	n.add(f)
}

// findingsCollector collects the number of open findings of each code at each scrape.
type findingsCollector func() []rules.Finding

var findingsOpen = prometheus.NewDesc("stint_findings", "Open findings, by code.", []string{"code"}, nil)

// Describe is for prometheus.Collector.
func (findingsCollector) Describe(to chan<- *prometheus.Desc) { to <- findingsOpen }

// Collect is for prometheus.Collector.
func (current findingsCollector) Collect(to chan<- prometheus.Metric) {
	open := map[string]int{}
	for _, f := range current() {
		open[f.Code]++
	}
	for _, code := range rules.Codes() {
		to <- prometheus.MustNewConstMetric(findingsOpen, prometheus.GaugeValue, float64(open[code]), code)
	}
}
