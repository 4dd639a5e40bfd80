package server

import (
	"fmt"

	"github.com/stintdev/stint/internal/yamlnode"
)

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
	if a.Listen == Off || isLoopback(a.Listen) || len(a.Tokens) > 0 || asksForCertificate(a.TLS) && len(a.Clients) > 0 {
		return nil
	}
	return fmt.Errorf("admin API on %.60q: other machines may reach it, and it would obey them all: give it tokens, or tls with client_ca and clients, or an address such as 127.0.0.1:8090",
		a.Listen)
}

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
