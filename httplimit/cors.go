package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// CORS says which pages in browsers may read answers from another origin. Without it, a refused
// page sees a network error: no status, no Retry-After and no body. The zero CORS lets no page
// read anything. It must not be changed once in use.
type CORS struct {
	// Origins are the origins of pages that may read answers, as browsers write them:
	// https://app.example.com, http://localhost:3000. https://*.example.com stands for any one
	// label before .example.com, and * for all origins. The origin null, which many pages without
	// an origin share, needs to be listed or covered by *.
	Origins []string
	// Credentials lets pages read answers to requests with cookies, client certificates or HTTP
	// authentication. Origins cannot contain * then: any site could read the user's data.
	Credentials bool
	// MaxAge is how long a browser may remember the answer to a preflight, in whole seconds. 0:
	// the browser's default, mostly 5 seconds.
	MaxAge time.Duration
	// Methods are the methods that pages may use. Empty: GET, HEAD, POST, PUT, PATCH and DELETE.
	Methods []string
	// Headers are the names of the request headers that pages may set. Empty: any.
	Headers []string
	// DecidePreflights passes preflights to Decide, too. Whatever it decides, the preflight
	// gets the same answer, because no page can read the refusal of a preflight; a page can
	// read the refusal of the request itself.
	DecidePreflights bool
}

const defaultMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"

const (
	allowOrigin      = "Access-Control-Allow-Origin"
	allowCredentials = "Access-Control-Allow-Credentials"
	allowMethods     = "Access-Control-Allow-Methods"
	allowHeaders     = "Access-Control-Allow-Headers"
	exposeHeaders    = "Access-Control-Expose-Headers"
	maxAge           = "Access-Control-Max-Age"
	requestMethod    = "Access-Control-Request-Method"
	requestHeaders   = "Access-Control-Request-Headers"
)

// Check returns an error if c cannot work.
func (c *CORS) Check() error {
	for _, origin := range c.Origins {
		if err := checkOrigin(origin); err != nil {
			return err
		}
	}
	for what, names := range map[string][]string{"method": c.Methods, "header": c.Headers} {
		for _, name := range names {
			if !httpguts.ValidHeaderFieldName(name) {
				return fmt.Errorf("%s %.60q: want a name, or *", what, name)
			}
		}
	}
	switch {
	case c.Credentials && slices.Contains(c.Origins, "*"):
		return errors.New("the origin * and credentials exclude each other: any site could read what belongs to the user who is signed in; list the origins")
	case c.Credentials && (slices.Contains(c.Methods, "*") || slices.Contains(c.Headers, "*")):
		return errors.New("with credentials, browsers do not read * in methods and headers as a wildcard: list the names")
	case c.MaxAge < 0 || c.MaxAge%time.Second != 0:
		return errors.New("the maximum age must be whole seconds, and not negative")
	}
	return nil
}

// checkOrigin returns an error if no browser would send an origin that matches text.
func checkOrigin(text string) error {
	if text == "*" || text == "null" {
		return nil
	}
	scheme, host, ok := strings.Cut(text, "://")
	if !ok || scheme == "" || host == "" || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || 'A' <= c && c <= 'Z' }) {
		return fmt.Errorf("origin %.60q: want a scheme and a host in lower case, such as https://app.example.com, or *, or null", text)
	}
	if strings.ContainsAny(host, `/?#@,;"\`) {
		return fmt.Errorf("origin %.60q: only a scheme, a host and a port: an origin has no path, and no slash at its end", text)
	}
	if scheme == "https" && strings.HasSuffix(host, ":443") || scheme == "http" && strings.HasSuffix(host, ":80") {
		return fmt.Errorf("origin %.60q: browsers leave out the port that the scheme has by default", text)
	}
	base, wildcard := strings.CutPrefix(host, "*.")
	if strings.Contains(base, "*") {
		return fmt.Errorf("origin %.60q: * stands for the first label of a host, as in https://*.example.com, or alone for all origins", text)
	}
	if name, _, _ := strings.Cut(base, ":"); wildcard && name != "localhost" && !strings.Contains(strings.Trim(name, "."), ".") {
		return fmt.Errorf("origin %.60q: it would allow strangers: anybody can have a name under %s", text, name)
	}
	return nil
}

// allows returns Access-Control-Allow-Origin for pages of an origin; empty: they may read nothing.
func (c *CORS) allows(origin string) string {
	if !c.Credentials && slices.Contains(c.Origins, "*") {
		return "*"
	}
	for _, o := range c.Origins {
		if isOneOf(o, origin) {
			return origin
		}
	}
	return ""
}

// isOneOf reports whether origin is pattern, or has one label where pattern has *.
func isOneOf(pattern, origin string) bool {
	before, after, wildcard := strings.Cut(pattern, "*")
	if !wildcard {
		return origin == pattern && origin != ""
	}
	if before == "" || len(origin) <= len(before)+len(after) || !strings.HasPrefix(origin, before) || !strings.HasSuffix(origin, after) {
		return false
	}
	for _, b := range []byte(origin[len(before) : len(origin)-len(after)]) {
		if (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '-' && b != '_' {
			return false
		}
	}
	return true
}

// corsKey is the context key of the *CORS for a request's answers.
type corsKey struct{}

// With returns a request for a handler, so that Problem, Overloaded.Refuse and every Middleware in
// it answer as c says. It returns r itself if r has no origin, or if c is nil.
func (c *CORS) With(r *http.Request) *http.Request {
	if c == nil || r.Header["Origin"] == nil || r.Context().Value(corsKey{}) == c {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), corsKey{}, c))
}

// corsOf returns the CORS that With has set, or nil.
func corsOf(r *http.Request) *CORS {
	c, _ := r.Context().Value(corsKey{}).(*CORS)
	return c
}

// Origin returns the origin of the page that sent r. Empty: no page, or it is unknown.
func (internals) Origin(r *http.Request) string {
	if lines := r.Header["Origin"]; len(lines) == 1 {
		return lines[0]
	}
	return ""
}

// IsPreflight reports whether r is a preflight.
func (internals) IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header["Origin"] != nil && r.Header[requestMethod] != nil
}

// set lets a page of an origin read an answer with the headers h, and its headers about limits: those in
// limits, which may be h. It replaces the CORS headers of h, but keeps other names that h exposes. If the
// page may not read the answer, it removes the headers that would let it. It does nothing if c is nil.
func (c *CORS) set(h http.Header, origin string, limits http.Header) {
	if c == nil {
		return
	}
	if !c.allow(h, origin) {
		for _, name := range [...]string{allowOrigin, allowCredentials, allowMethods, allowHeaders, exposeHeaders, maxAge} {
			delete(h, name)
		}
		return
	}
	internals{}.ExposeLimits(h, limits)
}

// allow sets the headers that every answer to a page of this origin has, and reports whether it may
// read the answer.
func (c *CORS) allow(h http.Header, origin string) bool {
	allowed := c.allows(origin)
	if allowed != "*" { // else caches would give the answer to pages of other origins
		vary(h, "Origin")
	}
	if allowed == "" {
		return false
	}
	h[allowOrigin] = []string{allowed}
	delete(h, allowCredentials)
	if c.Credentials {
		h[allowCredentials] = []string{"true"}
	}
	return true
}

func vary(h http.Header, names ...string) {
	for _, name := range names {
		if !httpguts.HeaderValuesContainsToken(h["Vary"], name) && !httpguts.HeaderValuesContainsToken(h["Vary"], "*") {
			h["Vary"] = append(slices.Clip(h["Vary"]), name)
		}
	}
}

// ExposeLimits adds to Access-Control-Expose-Headers in h the names of the headers about limits in limits,
// which may be h. It does not add names that are exposed already.
func (internals) ExposeLimits(h, limits http.Header) { expose(h, limits, isAboutLimits) }

// expose is ExposeLimits for the headers in from for which meant is true.
func expose(h, from http.Header, meant func(name string) bool) {
	exposed := h[exposeHeaders]
	if h[allowCredentials] == nil && httpguts.HeaderValuesContainsToken(exposed, "*") {
		return
	}
	var names []string
	for name := range from {
		if meant(name) && !httpguts.HeaderValuesContainsToken(exposed, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	h[exposeHeaders] = []string{strings.Join(append(slices.Clip(exposed), names...), ", ")}
}

// isAboutLimits reports whether a Dialect or Stint sets the header with this canonical name.
func isAboutLimits(name string) bool {
	switch name {
	case "Retry-After", "Retry-After-Ms", "X-Should-Retry", "Ratelimit", "Ratelimit-Policy":
		return true
	}
	return strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Anthropic-Ratelimit-") || strings.HasPrefix(name, "Stint-")
}

// answerPreflight answers the preflight r with 204. If r's origin is not among c.Origins, the
// answer has no header that allows anything, and the browser sends no request.
func (c *CORS) answerPreflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if c.allow(h, internals{}.Origin(r)) {
		methods := defaultMethods
		if len(c.Methods) > 0 {
			methods = strings.Join(c.Methods, ", ")
		}
		h[allowMethods] = []string{methods}
		asked := r.Header[requestHeaders]
		if len(c.Headers) > 0 {
			asked = c.Headers
		}
		if len(asked) > 0 {
			h[allowHeaders] = []string{strings.Join(asked, ", ")}
		}
		if c.MaxAge > 0 {
			h[maxAge] = []string{strconv.FormatInt(int64(c.MaxAge/time.Second), 10)}
		}
	}
	vary(h, requestMethod, requestHeaders)
	w.WriteHeader(http.StatusNoContent)
}

// watching wraps onStatus, which may be nil, so that the response has the headers of c for r's origin,
// whatever the handler sets. It returns onStatus itself if c is nil or does not apply to r.
func (c *CORS) watching(w http.ResponseWriter, r *http.Request, onStatus func(context.Context, int)) func(context.Context, int) {
	if c == nil || r.Header["Origin"] == nil && c.allows("") != "" { // caches may give it to every page
		return onStatus
	}
	return func(ctx context.Context, status int) {
		if onStatus != nil {
			onStatus(ctx, status)
		}
		c.set(w.Header(), internals{}.Origin(r), w.Header())
	}
}
