// Package auth authenticates callers of the admin API and the check API: by a bearer token,
// by a certificate, or, if the settings name no callers, by calling from the same machine.
package auth

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/server/config"
)

// Authenticator authenticates the callers of one API. It may be used from many goroutines at
// once.
type Authenticator struct {
	api            string // its name, in errors and in the settings
	callers        *config.Callers
	local          bool // the API listens on this machine alone
	open           bool // everybody may call
	anyCertificate bool // every certificate that was verified may call
	tokens         atomic.Pointer[Tokens]
	guesses        *guesses  // nil: a client may try any number of tokens
	sessions       *sessions // nil: there are none
}

// ForAdmin returns the Authenticator of the admin API. It knows no token before ReadTokens. Wrong tokens
// count for the client that client returns; nil: for the connection's address.
func ForAdmin(a *config.Admin, client func(*http.Request) string) *Authenticator {
	auth := &Authenticator{api: "admin", callers: &a.Callers, local: httpfield.IsLoopbackAddress(a.Listen), guesses: newGuesses(client)}
	if a.Dashboard {
		auth.sessions = new(sessions)
	}
	return auth
}

// ForCheck returns the Authenticator of the check API. It knows no token before ReadTokens.
func ForCheck(s *config.Settings) *Authenticator {
	c := &s.Check
	return &Authenticator{
		api: "check", callers: &c.Callers, open: c.Open,
		// Without a listener of its own, the API is behind Envoy's gRPC.
		local:          s.CheckListen == config.Off || httpfield.IsLoopbackAddress(s.CheckListen),
		anyCertificate: s.CheckTLS.AsksForCertificate() && len(c.Tokens)+len(c.Clients) == 0,
	}
}

// API is the name of the API: admin or check.
func (a *Authenticator) API() string { return a.api }

// HasSessions reports whether browsers can sign in.
func (a *Authenticator) HasSessions() bool { return a.sessions != nil }

// ReadTokens reads the tokens that the settings name. An error names the API and the token.
func (a *Authenticator) ReadTokens() error {
	tokens, err := OpenTokens(a.callers.Tokens)
	if err != nil {
		return fmt.Errorf("%s: %w", a.api, err)
	}
	a.tokens.Store(tokens)
	return nil
}

// Reload reads the files of tokens that have changed since ReadTokens, or all of them. A token
// that cannot be read stays as it was. It must not run concurrently.
func (a *Authenticator) Reload(all bool) (changed bool, err error) {
	return a.tokens.Load().Reload(all)
}

// Caller is a caller of an API.
type Caller struct {
	// Name is the name of the token or client, "local" for a caller on this machine if the
	// settings name no callers, and "" if the API is open.
	Name  string
	Scope config.Scope
	// By is how the caller is known; "" if the API is open.
	By By
	// Until is when the caller's session ends at the latest; zero: it has none.
	Until time.Time
}

// By is how a caller is known.
type By string

// The ways to know a caller.
const (
	BySession     By = "session"
	ByToken       By = "token"
	ByCertificate By = "certificate"
	ByLocal       By = "local" // on this machine, if the settings name no callers
)

// Credential is a way to present a token.
type Credential struct {
	header string
	scheme string // before the token; "": none
	// proxied is set if the caller forwards the headers of the request that it asks about, so that Origin and
	// Authorization come from its client.
	proxied bool
}

// String is the credential as an error names it.
func (c Credential) String() string {
	if c.scheme == "" {
		return c.header
	}
	return c.header + ": " + c.scheme
}

// TokenHeader is the header in which proxies send their token to /v1/authorize.
const TokenHeader = "Stint-Token"

// The credentials: Bearer is a bearer token in Authorization, Proxy a token in TokenHeader.
var (
	Bearer = Credential{header: "Authorization", scheme: "Bearer"}
	Proxy  = Credential{header: TokenHeader, proxied: true}
)

// Error is the refusal of a caller.
type Error struct {
	Status int    // of HTTP
	Detail string // a sentence for the caller
	// RetryAfter is when to try again; 0: not known.
	RetryAfter time.Duration
}

// Error is the detail.
func (e *Error) Error() string { return e.Detail }

// Challenge sets the headers of the answer that ask the caller to authenticate, or to try again
// later.
func (e *Error) Challenge(h http.Header) {
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", Bearer.scheme)
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
	}
}

func unauthorized(detail string) *Error {
	return &Error{Status: http.StatusUnauthorized, Detail: detail}
}
func forbidden(detail string) *Error { return &Error{Status: http.StatusForbidden, Detail: detail} }

// Authenticate returns the caller that sent r, or the reason why it may not use the API; nil:
// it may.
func (a *Authenticator) Authenticate(r *http.Request, by Credential) (Caller, *Error) {
	if len(a.callers.Tokens)+len(a.callers.Clients) == 0 && !a.anyCertificate {
		return a.unnamed(r, by)
	}
	if lines := r.Header[by.header]; len(lines) > 1 || len(lines) == 1 && lines[0] != "" {
		// A wrong token is refused even if the certificate is enough. Otherwise nobody would
		// notice that the token is wrong.
		return a.byToken(r, lines, by)
	}
	if who, refused, known := a.bySession(r); known {
		return who, refused
	}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return Caller{}, unauthorized("A token is required, as " + by.String() + ".")
	}
	if !by.proxied && !sameOrigin(r) { // browsers present certificates by themselves
		return Caller{}, errOrigin
	}
	return a.byCertificate(r.TLS.VerifiedChains[0][0])
}

func (a *Authenticator) byToken(r *http.Request, lines []string, by Credential) (Caller, *Error) {
	scheme, token := "", lines[0]
	if by.scheme != "" {
		scheme, token, _ = strings.Cut(token, " ")
	}
	if len(lines) > 1 || !strings.EqualFold(scheme, by.scheme) {
		return Caller{}, errToken
	}
	found, refused := a.findToken(r, strings.Trim(token, " "))
	return found.Caller, refused
}

// findToken finds r's token, unless its client has tried too many.
func (a *Authenticator) findToken(r *http.Request, token string) (knownToken, *Error) {
	found, ok, wait := a.guesses.find(r, a.tokens.Load(), token)
	switch {
	case wait > 0:
		return knownToken{}, &Error{http.StatusTooManyRequests, "Too many wrong tokens came from this address. Try again later.", wait}
	case !ok:
		return knownToken{}, errToken
	}
	return found, nil
}

func (a *Authenticator) byCertificate(leaf *x509.Certificate) (Caller, *Error) {
	if a.anyCertificate {
		return Caller{Name: leaf.Subject.CommonName, By: ByCertificate}, nil
	}
	for _, c := range a.callers.Clients {
		if hasName(leaf, c.Name) {
			return Caller{Name: c.Name, Scope: c.Scope, By: ByCertificate}, nil
		}
	}
	return Caller{}, unauthorized("The settings list no client with a name in this certificate.")
}

// hasName reports whether a certificate has a name.
func hasName(c *x509.Certificate, name string) bool {
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
	errToken  = unauthorized("This token is unknown.")
	errOrigin = forbidden("A page of another origin may not use this API.")
	errRemote = forbidden("Without tokens or clients in the settings, only callers on the same machine may use this API.")
)

// wrongHost refuses a call whose Host is not this machine's, and says which setting allows it.
func (a *Authenticator) wrongHost(r *http.Request, by Credential) *Error {
	detail := fmt.Sprintf(`This API accepts the hosts localhost, 127.0.0.1 and those in server.%s.hosts, not %+.200q.`, a.api, httpfield.CanonicalHost(r.Host))
	if by.proxied {
		detail += ` The proxy must send another Host: in nginx "proxy_set_header Host localhost", in Caddy "header_up Host localhost".`
	}
	return forbidden(detail)
}

// unnamed authenticates callers if the settings name none: it admits callers on this machine, or all if the
// API is open.
//
// A browser may call on behalf of a page that it shows. A page from elsewhere has two ways to
// call. It can send a request to http://127.0.0.1, whose answer it may not read but whose
// effect it may want; such a request names the page's origin. Or its own host name resolves to
// 127.0.0.1 (DNS rebinding), so that the browser takes us for the page's server; then Host is
// that name, because a page cannot choose it.
func (a *Authenticator) unnamed(r *http.Request, by Credential) (Caller, *Error) {
	switch {
	case !a.open && !(a.local && arrivedLocally(r)):
		return Caller{}, errRemote
	case (!a.open || len(a.callers.Hosts) > 0) && !a.answersAs(httpfield.CanonicalHost(r.Host)):
		return Caller{}, a.wrongHost(r, by)
	// The Origin that a proxy forwards is its client's. A page cannot send X-Forwarded-Uri and the other
	// headers that /v1/authorize needs without a preflight request (CORS), which is never granted.
	case !by.proxied && !sameOrigin(r):
		return Caller{}, errOrigin
	case a.open:
		return Caller{Scope: config.WriteScope}, nil
	}
	return Caller{Name: "local", Scope: config.WriteScope, By: ByLocal}, nil
}

func (a *Authenticator) answersAs(host string) bool {
	return httpfield.IsLoopback(host) || slices.Contains(a.callers.Hosts, host)
}

// arrivedLocally reports whether r arrived at an address that only this machine reaches, as far
// as that is known.
func arrivedLocally(r *http.Request) bool {
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case net.Addr:
		return httpfield.IsLoopbackAddress(a.String())
	}
	return true
}

// sameOrigin reports whether no page of another origin sent r.
func sameOrigin(r *http.Request) bool {
	switch site := r.Header["Sec-Fetch-Site"]; {
	case len(site) > 1, len(site) == 1 && site[0] != "same-origin" && site[0] != "none": // none: the user typed it
		return false
	}
	lines, given := r.Header["Origin"]
	if !given {
		return true
	}
	if len(lines) != 1 {
		return false
	}
	u, err := url.Parse(lines[0])
	if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return false
	}
	// Anybody on the network can fake an http page of this host. A proxy may have ended TLS; without TLS
	// here, both schemes are possible.
	return u.Scheme == "https" || u.Scheme == "http" && r.TLS == nil
}
