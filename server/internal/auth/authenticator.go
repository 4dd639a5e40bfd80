package server

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/server/config"
)

// gate tells who calls an API, or why that one may not.
type gate struct {
	api     string // its name, for the log
	callers *config.Callers
	local   bool // it is to be reached from this machine alone
	open    bool // everybody may call
	anyCert bool // every certificate that was verified may call
	tokens  atomic.Pointer[Tokens]
}

// makeGates makes those of the admin and the check API.
func (s *Server) makeGates() {
	a, c := &s.settings.Admin, &s.settings.Check
	s.adminGate = &gate{api: "admin", callers: &a.Callers, local: httpfield.IsLoopbackAddress(a.Listen)}
	s.checkGate = &gate{
		api: "check", callers: &c.Callers, local: httpfield.IsLoopbackAddress(s.settings.CheckListen), open: c.Open,
		anyCert: s.settings.CheckTLS.AsksForCertificate() && len(c.Tokens)+len(c.Clients) == 0,
	}
}

// principal is who calls an API.
type principal struct {
	// Name is that of the token or client, "local" for a caller on this machine where
	// the settings name nobody, and "" for one that may be anybody.
	Name  string
	Scope config.Scope
}

// credential is how a caller shows its token.
type credential struct {
	header string
	scheme string // before the token; "": none
	// passedOn is set where the caller passes on the headers of a request that it asks
	// about, so that Origin and Authorization among them are those of its own client.
	passedOn bool
}

func (c credential) String() string {
	if c.scheme == "" {
		return c.header
	}
	return c.header + ": " + c.scheme
}

var (
	byAuthorization = credential{header: "Authorization", scheme: "Bearer"}
	byProxy         = credential{header: tokenHeader, passedOn: true}
)

// tokenHeader is where proxies show their token to /v1/authorize.
const tokenHeader = "Stint-Token"

// admit tells who calls, or why that one may not.
func (g *gate) admit(r *http.Request, by credential) (principal, error) {
	if len(g.callers.Tokens)+len(g.callers.Clients) == 0 && !g.anyCert {
		return g.neighbour(r, by)
	}
	if lines := r.Header[by.header]; len(lines) > 1 || len(lines) == 1 && lines[0] != "" {
		// It decides even if it is wrong and a certificate would do: to let a wrong
		// token pass would hide that it is wrong.
		return g.byToken(lines, by)
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return principal{}, &callError{status: http.StatusUnauthorized, detail: "This takes a token, as " + by.String() + "."}
	}
	if !by.passedOn && !sameOrigin(r) { // browsers show certificates by themselves
		return principal{}, errOrigin
	}
	return g.byCertificate(r.TLS.VerifiedChains[0][0])
}

func (g *gate) byToken(lines []string, by credential) (principal, error) {
	scheme, token := "", lines[0]
	if by.scheme != "" {
		scheme, token, _ = strings.Cut(token, " ")
	}
	name, scope, ok := g.tokens.Load().Find(strings.Trim(token, " "))
	if len(lines) > 1 || !strings.EqualFold(scheme, by.scheme) || !ok {
		return principal{}, &callError{status: http.StatusUnauthorized, detail: "This token is not known."}
	}
	return principal{name, scope}, nil
}

func (g *gate) byCertificate(leaf *x509.Certificate) (principal, error) {
	if g.anyCert {
		return principal{Name: leaf.Subject.CommonName}, nil
	}
	for _, c := range g.callers.Clients {
		if names(leaf, c.Name) {
			return principal(c), nil
		}
	}
	return principal{}, &callError{status: http.StatusUnauthorized, detail: "This certificate is nobody's who may use this."}
}

// names tells whether a certificate has a name.
func names(c *x509.Certificate, name string) bool {
	if c.Subject.CommonName == name {
		return true
	}
	for _, n := range c.DNSNames {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	for _, u := range c.URIs {
		if u.String() == name {
			return true
		}
	}
	return false
}

var (
	errOrigin = &callError{status: http.StatusForbidden, detail: "A page of another origin may not use this."}
	errAfar   = &callError{status: http.StatusForbidden, detail: "Without tokens or clients in the settings, this is for callers on the same machine."}
)

// wrongHost refuses a caller under a host that is not this machine's, and says what to set.
func (g *gate) wrongHost(r *http.Request, by credential) error {
	detail := fmt.Sprintf(`This is answered under localhost, 127.0.0.1 and the hosts that server.%s.hosts lists, and not under "%s".`, g.api, shown(httpfield.CanonicalHost(r.Host)))
	if by.passedOn {
		detail += ` The proxy must write another Host: in nginx "proxy_set_header Host localhost", in Caddy "header_up Host localhost".`
	}
	return &callError{status: http.StatusForbidden, detail: detail}
}

// neighbour is a caller on this machine, where the settings name nobody, or any
// caller where the API is open.
//
// A browser calls, too, on behalf of the page that it shows. There are two ways for a
// page from elsewhere: it sends a request to http://127.0.0.1, whose answer it may not
// read but whose effect it may want; such a request names the page's origin. Or its
// own host name is made to lead to 127.0.0.1 (DNS rebinding), so that the browser
// takes us for the page's server; then the Host is that name, for a page cannot
// choose it.
func (g *gate) neighbour(r *http.Request, by credential) (principal, error) {
	switch {
	case !g.open && !(g.local && arrivedLocally(r)):
		return principal{}, errAfar
	case (!g.open || len(g.callers.Hosts) > 0) && !g.isOurs(httpfield.CanonicalHost(r.Host)):
		return principal{}, g.wrongHost(r, by)
	// The Origin that a proxy passes on is its client's. A page cannot send what
	// /v1/authorize needs, X-Forwarded-Uri and more, without asking first (CORS), which
	// is never granted.
	case !by.passedOn && !sameOrigin(r):
		return principal{}, errOrigin
	case g.open:
		return principal{Scope: config.WriteScope}, nil
	}
	return principal{"local", config.WriteScope}, nil
}

func (g *gate) isOurs(host string) bool {
	return httpfield.IsLoopback(host) || slices.Contains(g.callers.Hosts, host)
}

// arrivedLocally tells whether r came in by an address that only this machine reaches,
// as far as that is known.
func arrivedLocally(r *http.Request) bool {
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case net.Addr:
		return httpfield.IsLoopbackAddress(a.String())
	}
	return true
}

// sameOrigin tells whether no page of another origin sent r.
func sameOrigin(r *http.Request) bool {
	lines, given := r.Header["Origin"]
	if !given {
		return true
	}
	if len(lines) != 1 {
		return false
	}
	u, err := url.Parse(lines[0])
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// isJSON tells whether a body is said to be JSON. A page on another site cannot say so
// without asking first.
func isJSON(h http.Header) bool {
	lines := h["Content-Type"]
	if len(lines) != 1 {
		return false
	}
	if lines[0] == "application/json" {
		return true
	}
	kind, _, err := mime.ParseMediaType(lines[0])
	return err == nil && kind == "application/json"
}

// complainOfCaller logs that a caller was refused, unless one was just now.
func (s *Server) complainOfCaller(g *gate, r *http.Request, p principal, err error) {
	what := "the " + g.api + " API refused a caller"
	args := []any{"address", r.RemoteAddr, "why", err}
	if p.Name != "" {
		args = append(args, "name", p.Name)
	}
	s.complainAt(slog.LevelWarn, what, what, args...)
}
