package server

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/stintdev/stint/internal/yamlnode"
)

// Admin is the settings of the admin API. Where it has neither Tokens nor Clients,
// whoever can connect from this machine may do everything.
type Admin struct {
	// Listen is its address, or AdminOff.
	Listen string
	// TLS is nil for plain HTTP.
	TLS *TLSFiles
	// Tokens and Clients are who may use it. Their names are what it calls callers,
	// and are unique among both.
	Tokens  []Token
	Clients []AdminClient
}

// AdminOff, as the address of the admin API, is none.
const AdminOff = "off"

// Token says where the text of a bearer token is found, and what it allows. It does
// not hold the text.
type Token struct {
	Name  string
	Scope Scope
	// One of File, which is read again when it changes, and Env, the name of a
	// variable of the environment, is given.
	File, Env string
}

// AdminClient is a client that is known by its certificate.
type AdminClient struct {
	// Name is the certificate's common name, or a DNS name or URI among its
	// alternative names.
	Name  string
	Scope Scope
}

// Scope is what a caller of the admin API may do. The zero Scope allows nothing.
type Scope uint8

const (
	// Read allows to look.
	Read Scope = iota + 1
	// Write allows to look and to change.
	Write
)

// String is the name in the configuration file.
func (s Scope) String() string {
	switch s {
	case Read:
		return "read"
	case Write:
		return "write"
	}
	return fmt.Sprintf("Scope(%d)", uint8(s))
}

// ParseScope reads the name of a scope.
func ParseScope(text string) (Scope, error) {
	switch text {
	case "read":
		return Read, nil
	case "write":
		return Write, nil
	}
	return 0, fmt.Errorf("unknown scope %.60q: one of read, write", text)
}

// Check returns an error if the admin API could be reached from other machines and
// nothing would tell who calls.
func (a *Admin) Check() error {
	if a.Listen == AdminOff || isLoopback(a.Listen) || len(a.Tokens) > 0 || a.TLS != nil && a.TLS.ClientCA != "" && len(a.Clients) > 0 {
		return nil
	}
	return fmt.Errorf("admin API on %.60q: other machines may reach it, and it would obey them all: give it tokens, or tls with client_ca and clients, or an address such as 127.0.0.1:8090",
		a.Listen)
}

// inTheClear tells whether tokens travel between machines unencrypted.
func (a *Admin) inTheClear() bool {
	return a.Listen != AdminOff && !isLoopback(a.Listen) && a.TLS == nil && len(a.Tokens) > 0
}

// isLoopback tells whether only this machine reaches an address. Names other than
// localhost are not asked of the DNS, whose answer may change.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && isLoopbackHost(host)
}

func isLoopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func (a *Admin) read(r *yamlnode.Reader, n *yamlnode.Node) {
	before := r.Problems()
	names := map[string]bool{}
	fields := r.Mapping(n, yamlnode.Fields{
		"listen":  yamlnode.Parsed(r, &a.Listen, parseAdminListen),
		"tls":     readTLS(r, &a.TLS),
		"tokens":  func(n *yamlnode.Node) { a.readTokens(r, n, names) },
		"clients": func(n *yamlnode.Node) { r.Each(n, func(n *yamlnode.Node) { a.readClient(r, n, names) }) },
	})
	if fields == nil {
		return
	}
	if len(a.Clients) > 0 && (a.TLS == nil || a.TLS.ClientCA == "") {
		r.Report(fields["clients"], "clients are known by their certificates: give tls with client_ca, too")
	}
	if err := a.Check(); err != nil && r.Problems() == before {
		r.Report(fields["listen"], "%v", err)
	}
}

func parseAdminListen(text string) (string, error) {
	if _, err := parseListen(text); err != nil && text != AdminOff {
		return "", fmt.Errorf("%w, or off", err)
	}
	return text, nil
}

func (a *Admin) readTokens(r *yamlnode.Reader, n *yamlnode.Node, names map[string]bool) {
	if n.Value != "" { // as in readToken
		r.Report(n, "want a list of mappings of name, scope and one of file and env")
		return
	}
	r.Each(n, func(n *yamlnode.Node) { a.readToken(r, n, names) })
}

func (a *Admin) readToken(r *yamlnode.Reader, n *yamlnode.Node, names map[string]bool) {
	if n.Value != "" { // which may be the token itself: it must not be told
		r.Report(n, "want a mapping of name, scope and one of file and env")
		return
	}
	var t Token
	fields := r.Mapping(n, yamlnode.Fields{
		"name":  r.Text(&t.Name),
		"scope": yamlnode.Parsed(r, &t.Scope, ParseScope),
		"file":  r.Text(&t.File),
		"env":   r.Text(&t.Env),
	})
	if fields == nil {
		return
	}
	checkNamed(r, n, fields, t.Name, names)
	if (t.File == "") == (t.Env == "") {
		r.Report(n, "a token needs one of file and env: where its text is found")
	}
	a.Tokens = append(a.Tokens, t)
}

func (a *Admin) readClient(r *yamlnode.Reader, n *yamlnode.Node, names map[string]bool) {
	var c AdminClient
	fields := r.Mapping(n, yamlnode.Fields{"name": r.Text(&c.Name), "scope": yamlnode.Parsed(r, &c.Scope, ParseScope)})
	if fields == nil {
		return
	}
	checkNamed(r, n, fields, c.Name, names)
	a.Clients = append(a.Clients, c)
}

// checkNamed reports a name that is missing or was given before, and a missing
// scope.
func checkNamed(r *yamlnode.Reader, n *yamlnode.Node, fields map[string]*yamlnode.Node, name string, names map[string]bool) {
	switch {
	case fields["name"] == nil:
		r.Report(n, "name is missing")
	case name == "" && fields["name"].Value == "":
		r.Report(fields["name"], "name must not be empty")
	case name != "" && names[name]:
		r.Report(fields["name"], "a second token or client named %.60q", name)
	}
	names[name] = true
	if fields["scope"] == nil {
		r.Report(n, "scope is missing: one of read, write")
	}
}
