package config

import (
	"fmt"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// CheckAPI says who may use the check API. Its address and TLS are CheckListen and CheckTLS
// of Settings. If CheckTLS has a ClientCA, and there are neither Tokens nor Clients, every certificate of
// that authority is accepted.
type CheckAPI struct {
	Callers
	// Open lets everyone who can connect use it, without a token or certificate.
	Open bool
}

// CheckGuarded returns an error if other machines could reach the check API without a token
// or certificate, unless it is Open.
func (s *Settings) CheckGuarded() error {
	if s.CheckListen == Off || httpfield.IsLoopbackAddress(s.CheckListen) || s.Check.Open || len(s.Check.Tokens) > 0 || s.CheckTLS.AsksForCertificate() {
		return nil
	}
	return fmt.Errorf("check API on %.60q: other machines may reach it, and use up your clients' limits: give check tokens, or check_tls a client_ca, or check_listen an address such as 127.0.0.1:8082; check: {open: true} lets everybody in",
		s.CheckListen)
}

// value reads the section check, after check_listen and check_tls.
func (c *CheckAPI) value(s *Settings, r *yamlnode.Reader) schema.Value {
	callers := callersReader{Reader: r, to: &c.Callers}
	rows := append(callers.rows(), schema.Row{Name: "open", Value: schema.Bool(r, &c.Open), Default: "false", Not: []string{"tokens", "clients"},
		Says: "Lets everyone who can connect use it."})
	return schema.Section(r, rows, func(_ *yamlnode.Node, fields map[string]*yamlnode.Node) {
		allShow := len(c.Tokens)+len(c.Clients) > 0 || s.CheckTLS.AsksForCertificate()
		callers.check(fields, s.CheckTLS, "check_tls", allShow)
		if c.Open && allShow {
			r.Report(fields["open"], "open lets everybody in, but tokens, clients and client_ca only some: remove one of them")
		}
	})
}

// CheckTokensInTheClear reports whether tokens for the check API travel between machines
// unencrypted.
func (s *Settings) CheckTokensInTheClear() bool { return s.Check.inTheClear(s.CheckListen, s.CheckTLS) }

// Findings returns settings that, with the rules of set, are valid but probably not meant.
func (s *Settings) Findings(set *rules.Set) (all []rules.Finding) {
	if s.Check.Open && s.CheckListen != Off {
		all = append(all, rules.Finding{Code: rules.CodeCheckOpen, Text: "check has open: true, so everybody who reaches " + s.CheckListen +
			" may use up the limits of others and get them banned; give check tokens, or check_tls a client_ca"})
	}
	if len(set.Alerts) > 0 && len(s.Webhooks) == 0 {
		all = append(all, rules.Finding{Code: rules.CodeAlert, Text: "the rules have alerts, but the section server has no webhooks, so only the admin API shows them; add webhooks, or remove the alerts"})
	}
	if f, found := s.corsInVain(); found {
		all = append(all, f)
	}
	if f, found := s.claimsUnknown(set); found {
		all = append(all, f)
	}
	all = append(all, s.queuesInVain(set)...)
	if s.AllImpatient() {
		for _, rule := range set.Rules {
			if rule.Tokens.API != rules.NoTokens && rule.Mode != rules.Off {
				all = append(all, s.Impatient(rule, &s.Routes[0]))
			}
		}
	}
	return all
}

// Admin is the settings of the admin API.
type Admin struct {
	// Listen is its address, or Off.
	Listen string
	// TLS is nil for plain HTTP.
	TLS *TLSFiles
	Callers
	// Dashboard serves the dashboard at "/", and lets browsers sign in with a token.
	Dashboard bool
}

// Off is the address of an optional listener that is turned off.
const Off = "off"

// Check returns an error if other machines could reach the admin API without a token or
// certificate.
func (a *Admin) Check() error {
	if a.Listen == Off || httpfield.IsLoopbackAddress(a.Listen) || len(a.Tokens) > 0 || a.TLS.AsksForCertificate() && len(a.Clients) > 0 {
		return nil
	}
	return fmt.Errorf("admin API on %.60q: other machines may reach it, and it would obey all of them: give it tokens, or tls with client_ca and clients, or an address such as 127.0.0.1:8090",
		a.Listen)
}

// TokensInTheClear reports whether tokens for the admin API travel between machines
// unencrypted.
func (a *Admin) TokensInTheClear() bool { return a.inTheClear(a.Listen, a.TLS) }

func (a *Admin) value(r *yamlnode.Reader) schema.Value {
	callers := callersReader{Reader: r, to: &a.Callers, scoped: true}
	rows := append(schema.Rows{
		{Name: "listen", Value: schema.Parsed(r, &a.Listen, parseListenOrOff, addressOrOff).Expanding(r), Default: "127.0.0.1:8090", Flag: "admin-listen",
			Says: "Address of the admin API; off: none."},
		{Name: "tls", Value: readTLS(r, &a.TLS), Example: "{cert: /etc/stint/tls.crt, key: /etc/stint/tls.key}", See: "access.md#tls",
			Says: "The admin API's certificate; without it, plain HTTP."},
		{Name: "dashboard", Value: schema.Bool(r, &a.Dashboard), Default: "true", See: "dashboard.md",
			Says: "Serves the dashboard at \"/\", with a sign-in by token."},
	}, callers.rows()...)
	before := 0
	v := schema.Section(r, rows, func(_ *yamlnode.Node, fields map[string]*yamlnode.Node) {
		callers.check(fields, a.TLS, "tls", len(a.Tokens)+len(a.Clients) > 0)
		if err := a.Check(); err != nil && r.Problems() == before {
			r.Report(fields["listen"], "%v", err)
		}
	})
	read := v.Read
	v.Read = func(n *yamlnode.Node) {
		before = r.Problems()
		read(n)
	}
	return v
}

func parseListenOrOff(text string) (string, error) {
	if _, err := parseListen(text); err != nil && text != Off {
		return "", fmt.Errorf("%w, or off", err)
	}
	return text, nil
}
