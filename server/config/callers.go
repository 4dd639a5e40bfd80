package config

import (
	"fmt"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
)

// Callers says who may use an API. Without Tokens and Clients, that is everyone on this machine.
type Callers struct {
	// Tokens and Clients are the callers that may use the API. Their names are the
	// callers' names, and are unique among both.
	Tokens  []Token
	Clients []Client
	// Hosts are names in Host under which callers without a token may reach the API, beside localhost and
	// loopback addresses; in lower case, without a port.
	Hosts []string
}

// Token names the file or variable that has a bearer token, and what the token allows. It
// does not hold the token.
type Token struct {
	Name string
	// Scope is for the admin API; the check API has none.
	Scope Scope
	// Exactly one is given: File, which is read again when it changes, or Env, the
	// name of an environment variable.
	File, Env string
}

// Client is a client that is known by its certificate.
type Client struct {
	// Name is the certificate's common name, or a DNS name or URI among its
	// alternative names.
	Name string
	// Scope is for the admin API; the check API has none.
	Scope Scope
}

// Scope is what a caller of the admin API may do. The zero Scope allows nothing.
type Scope uint8

const (
	// ReadScope allows reading.
	ReadScope Scope = iota + 1
	// WriteScope allows reading and changing.
	WriteScope
)

// String returns the name in the configuration file.
func (s Scope) String() string {
	switch s {
	case ReadScope:
		return "read"
	case WriteScope:
		return "write"
	}
	return fmt.Sprintf("Scope(%d)", uint8(s))
}

// parseScope reads the name of a scope.
func parseScope(text string) (Scope, error) {
	switch text {
	case "read":
		return ReadScope, nil
	case "write":
		return WriteScope, nil
	}
	return 0, fmt.Errorf("unknown scope %.60q: one of read, write", text)
}

// inTheClear reports whether an API at an address receives tokens from other machines
// unencrypted.
func (c *Callers) inTheClear(listen string, tls *TLSFiles) bool {
	return listen != Off && !httpfield.IsLoopbackAddress(listen) && tls == nil && len(c.Tokens) > 0
}

// callersReader reads Callers.
type callersReader struct {
	*yamlnode.Reader
	to     *Callers
	scoped bool            // tokens and clients have scopes
	names  map[string]bool // of tokens and clients, as read so far
}

// rows are Callers in a mapping.
func (r *callersReader) rows() schema.Rows {
	r.names = map[string]bool{}
	token := schema.Shape{Kind: schema.KindMapping, Rows: func() schema.Rows { return r.tokenRows(new(Token)) }}
	client := schema.Shape{Kind: schema.KindMapping, Rows: func() schema.Rows { return r.clientRows(new(Client)) }}
	of, elsewhere, tls := "", " Needs check_tls with client_ca.", []string(nil)
	if r.scoped {
		of, elsewhere, tls = ", scope: write", "", []string{"tls.client_ca"}
	}
	return schema.Rows{
		{Name: "tokens", Value: schema.Custom(schema.Shape{Kind: schema.KindList, Item: &token}, r.tokens), Example: "[{name: deploy" + of + ", file: /etc/stint/token}]",
			Says: "Bearer tokens of callers."},
		{Name: "clients", Value: schema.Custom(schema.Shape{Kind: schema.KindList, Item: &client}, func(n *yamlnode.Node) { r.Each(n, r.client) }), Example: "[{name: ops.internal" + of + "}]", Needs: tls,
			Says: "Names in callers' certificates: the common name, or an alternative DNS name or URI." + elsewhere},
		{Name: "hosts", Value: schema.List(r.Reader, &r.to.Hosts, parseCallersHost, schema.Scalar("host", schema.Something)), Example: "[stint.internal]",
			Says: "Hosts by which callers without a token may reach it, besides loopback."},
	}
}

func (r *callersReader) tokenRows(t *Token) schema.Rows {
	return r.named(&t.Name, &t.Scope,
		schema.Row{Name: "file", Value: schema.Text(r.Reader, &t.File, "file"), Example: "/etc/stint/token", Reread: true, Instead: []string{"env"}, Not: []string{"env"},
			Says: "File with the token."},
		schema.Row{Name: "env", Value: schema.Text(r.Reader, &t.Env, "name"), Example: "STINT_TOKEN",
			Says: "Environment variable with the token."})
}

func (r *callersReader) clientRows(c *Client) schema.Rows { return r.named(&c.Name, &c.Scope) }

// check reports clients whose certificates tls, which the settings call name, does not ask for,
// and hosts that have no effect because every caller must authenticate.
func (r *callersReader) check(fields map[string]*yamlnode.Node, tls *TLSFiles, name string, allShow bool) {
	if len(r.to.Hosts) > 0 && allShow {
		r.Report(fields["hosts"], "hosts are for callers without a token or certificate, but here all need one: remove it")
	}
	if len(r.to.Clients) > 0 && !tls.AsksForCertificate() {
		r.Report(fields["clients"], "clients are known by their certificates: give %s with client_ca, too", name)
	}
}

func (r *callersReader) tokens(n *yamlnode.Node) {
	if n.Value != "" { // as in token
		r.Report(n, "want a list of mappings of %s", r.membersOfToken())
		return
	}
	r.Each(n, r.token)
}

func (r *callersReader) membersOfToken() string {
	if r.scoped {
		return "name, scope and one of file and env"
	}
	return "name and one of file and env"
}

func (r *callersReader) token(n *yamlnode.Node) {
	if n.Value != "" { // it may be the token itself, which must not be shown
		r.Report(n, "want a mapping of %s", r.membersOfToken())
		return
	}
	var t Token
	fields := r.Mapping(n, r.tokenRows(&t).Fields())
	if fields == nil {
		return
	}
	r.checkNamed(n, fields, t.Name)
	if (t.File == "") == (t.Env == "") {
		r.Report(n, "token: set file or env")
	}
	r.to.Tokens = append(r.to.Tokens, t)
}

func (r *callersReader) client(n *yamlnode.Node) {
	var c Client
	fields := r.Mapping(n, r.clientRows(&c).Fields())
	if fields == nil {
		return
	}
	r.checkNamed(n, fields, c.Name)
	r.to.Clients = append(r.to.Clients, c)
}

// named are the rows that tokens and clients share, and more.
func (r *callersReader) named(name *string, scope *Scope, more ...schema.Row) schema.Rows {
	rows := schema.Rows{{Name: "name", Value: schema.Text(r.Reader, name, "name").Matching(schema.Something), Required: true, Example: "deploy",
		Says: "The caller's name, unique among tokens and clients."}}
	if r.scoped {
		rows = append(rows, schema.Row{Name: "scope", Value: schema.Parsed(r.Reader, scope, parseScope, schema.Words("read", "write")), Required: true, Example: "write",
			Says: "What the caller may do: read, or also change."})
	}
	return append(rows, more...)
}

// checkNamed reports a name that is missing or used before, and a missing scope.
func (r *callersReader) checkNamed(n *yamlnode.Node, fields map[string]*yamlnode.Node, name string) {
	switch {
	case fields["name"] == nil:
		r.Report(n, "name is missing")
	case name == "" && fields["name"].Value == "":
		r.Report(fields["name"], "name must not be empty")
	case name != "" && r.names[name]:
		r.Report(fields["name"], "a second token or client named %.60q", name)
	}
	r.names[name] = true
	if r.scoped && fields["scope"] == nil {
		r.Report(n, "scope is missing: one of read, write")
	}
}

func parseCallersHost(text string) (string, error) {
	host := httpfield.CanonicalHost(text)
	if host == "" || len(host) != len(text) {
		return "", fmt.Errorf("host %.60q: want a name as in Host, without a port, such as stint.internal", text)
	}
	return host, nil
}
