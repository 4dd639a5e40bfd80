package server

import (
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint/rules"
)

// forwarding is what requests under one set of rules showed about forwarding headers.
type forwarding struct {
	once  sync.Once
	mu    sync.Mutex
	found []rules.Finding // none, or one
}

// Findings returns settings and rules that work but probably not as they were meant: those
// found at the start, in the rules in force, and while these have been in force.
func (s *Server) Findings() []rules.Finding {
	controls := s.control.Findings()
	set := s.set.Load()
	set.forwarding.mu.Lock()
	defer set.forwarding.mu.Unlock()
	var beside []rules.Finding
	if s.found != nil {
		beside = s.found()
	}
	return slices.Concat(beside, s.settings.Findings(), set.Findings, s.claimsFindings(set.Set), s.alertFindings(set.Set), set.forwarding.found, controls)
}

// claimsFindings finds rules that need claims where no token is read.
func (s *Server) claimsFindings(set *rules.Set) []rules.Finding {
	why := ""
	switch {
	case s.claims == nil:
		why = "the section server has no jwt"
	case s.claims.Trusted && len(set.TrustedProxies) == 0:
		why = "jwt is trusted: true while trusted_proxies is empty"
	}
	if why == "" || !set.UsesClaims() {
		return nil
	}
	return []rules.Finding{{Code: rules.CodeClaimsUnknown, Text: "the rules use claims, and " + why +
		", so that only checks which send claims have any; configure how tokens are verified"}}
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
			set.forwarding.once.Do(func() { s.foundForwarded(set, r.RemoteAddr, name) })
			return
		}
	}
}

func (s *Server) foundForwarded(set *served, from, header string) {
	f := rules.Finding{Code: rules.CodeNoProxies, Text: "requests come with " + header + ", which is ignored because trusted_proxies is empty: " +
		"if your proxy wrote it, all its clients count as one; add the proxy to trusted_proxies"}
	s.log.Warn(f.Text, "code", f.Code, "address", s.shownAddress(from))
	set.forwarding.mu.Lock()
	defer set.forwarding.mu.Unlock()
	set.forwarding.found = []rules.Finding{f}
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
