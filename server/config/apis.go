package server

import (
	"fmt"

	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/rules"
)

// CheckAPI is who may use the check API. Its address and TLS are CheckListen and
// CheckTLS of Settings. Where CheckTLS has a ClientCA, and it has neither Tokens nor
// Clients, every certificate of that authority will do.
type CheckAPI struct {
	Callers
	// Open lets everybody who can connect use it, without telling who it is.
	Open bool
}

// CheckGuarded returns an error if the check API could be reached from other machines
// and nothing would tell who calls, unless it is open on purpose.
func (s *Settings) CheckGuarded() error {
	if s.CheckListen == Off || isLoopback(s.CheckListen) || s.Check.Open || len(s.Check.Tokens) > 0 || asksForCertificate(s.CheckTLS) {
		return nil
	}
	return fmt.Errorf("check API on %.60q: other machines may reach it, and spend what it is asked about: give check tokens, or check_tls a client_ca, or check_listen an address such as 127.0.0.1:8082; check: {open: true} lets everybody in",
		s.CheckListen)
}

// readCheck reads "check", after "check_listen" and "check_tls" were read.
func (s *Settings) readCheck(r *yamlnode.Reader, n *yamlnode.Node) {
	if n == nil {
		return
	}
	c := &s.Check
	callers := callersReader{Reader: r, to: &c.Callers}
	members := callers.fields()
	members["open"] = r.Bool(&c.Open)
	fields := r.Mapping(n, members)
	if fields == nil {
		return
	}
	allShow := len(c.Tokens)+len(c.Clients) > 0 || asksForCertificate(s.CheckTLS)
	callers.check(fields, s.CheckTLS, "check_tls", allShow)
	if c.Open && allShow {
		r.Report(fields["open"], "open lets everybody in, and tokens, clients and client_ca only some: remove one of them")
	}
}

// Findings is what works as set but hardly as meant.
func (s *Settings) Findings() []rules.Finding {
	if !s.Check.Open || s.CheckListen == Off {
		return nil
	}
	return []rules.Finding{{Code: rules.CodeCheckOpen, Text: "check has open: true, so that everybody who reaches " + s.CheckListen +
		" may spend the quotas of others and have them banned; give check tokens, or check_tls a client_ca"}}
}
