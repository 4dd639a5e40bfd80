package config

import (
	"fmt"

	"github.com/stintdev/stint/internal/httpfield"
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
	if s.CheckListen == Off || httpfield.IsLoopbackAddress(s.CheckListen) || s.Check.Open || len(s.Check.Tokens) > 0 || s.CheckTLS.AsksForCertificate() {
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
	allShow := len(c.Tokens)+len(c.Clients) > 0 || s.CheckTLS.AsksForCertificate()
	callers.check(fields, s.CheckTLS, "check_tls", allShow)
	if c.Open && allShow {
		r.Report(fields["open"], "open lets everybody in, and tokens, clients and client_ca only some: remove one of them")
	}
}

// CheckTokensInTheClear reports whether tokens travel to the check API between machines
// unencrypted.
func (s *Settings) CheckTokensInTheClear() bool { return s.Check.inTheClear(s.CheckListen, s.CheckTLS) }

// Findings is what works as set but hardly as meant.
func (s *Settings) Findings() []rules.Finding {
	if !s.Check.Open || s.CheckListen == Off {
		return nil
	}
	return []rules.Finding{{Code: rules.CodeCheckOpen, Text: "check has open: true, so that everybody who reaches " + s.CheckListen +
		" may spend the quotas of others and have them banned; give check tokens, or check_tls a client_ca"}}
}

// Admin is the settings of the admin API.
type Admin struct {
	// Listen is its address, or Off.
	Listen string
	// TLS is nil for plain HTTP.
	TLS *TLSFiles
	Callers
}

// Off, as the address of a listener that need not be, is none.
const Off = "off"

// Check returns an error if the admin API could be reached from other machines and
// nothing would tell who calls.
func (a *Admin) Check() error {
	if a.Listen == Off || httpfield.IsLoopbackAddress(a.Listen) || len(a.Tokens) > 0 || a.TLS.AsksForCertificate() && len(a.Clients) > 0 {
		return nil
	}
	return fmt.Errorf("admin API on %.60q: other machines may reach it, and it would obey them all: give it tokens, or tls with client_ca and clients, or an address such as 127.0.0.1:8090",
		a.Listen)
}

// TokensInTheClear reports whether tokens travel to the admin API between machines
// unencrypted.
func (a *Admin) TokensInTheClear() bool { return a.inTheClear(a.Listen, a.TLS) }

func (a *Admin) read(r *yamlnode.Reader, n *yamlnode.Node) {
	before := r.Problems()
	callers := callersReader{Reader: r, to: &a.Callers, scoped: true}
	members := callers.fields()
	members["listen"] = yamlnode.Parsed(r, &a.Listen, parseListenOrOff)
	members["tls"] = readTLS(r, &a.TLS)
	fields := r.Mapping(n, members)
	if fields == nil {
		return
	}
	callers.check(fields, a.TLS, "tls", len(a.Tokens)+len(a.Clients) > 0)
	if err := a.Check(); err != nil && r.Problems() == before {
		r.Report(fields["listen"], "%v", err)
	}
}

func parseListenOrOff(text string) (string, error) {
	if _, err := parseListen(text); err != nil && text != Off {
		return "", fmt.Errorf("%w, or off", err)
	}
	return text, nil
}
