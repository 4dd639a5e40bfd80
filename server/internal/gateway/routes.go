package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// Routes are the gateway's routes in search order: routes for one host before those for any host, the longest
// path first.
type Routes []*config.Route

func newRoutes(all []config.Route) Routes {
	r := make(Routes, len(all))
	for i := range all {
		r[i] = &all[i]
	}
	slices.SortStableFunc(r, func(a, b *config.Route) int {
		if (a.Host == "") != (b.Host == "") {
			return len(b.Host) - len(a.Host)
		}
		return len(b.Path) - len(a.Path)
	})
	return r
}

// Find returns the route of a request, given its host and path in normal form; nil: there is
// none.
func (r Routes) Find(host, path string) *config.Route {
	for _, route := range r {
		if leadsTo(route, host, path) {
			return route
		}
	}
	return nil
}

func leadsTo(r *config.Route, host, path string) bool {
	if r.Host != "" && r.Host != host {
		return false
	}
	rest, ok := strings.CutPrefix(path, r.Path)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(r.Path, "/"))
}

// takeRoute returns the name of a request's route, and stores the route in its exchange, if it has one.
func (g *Gateway) takeRoute(x *exchange, host, path string) string {
	if x != nil && x.wrapped {
		return x.pattern
	}
	route := g.Routes.Find(host, path)
	if x != nil {
		x.route = route
	}
	if route == nil {
		return ""
	}
	return route.Name
}

// misleading has the ambiguities that could mislead the routes: in requests through the gateway, and in
// requests that other proxies ask about.
type misleading struct{ gateway, asked rules.Ambiguity }

// read returns the ambiguities that could mislead r: at a gateway, or for a proxy that asks, where routes
// matter only if rules use their names.
func (r Routes) read(asking bool) rules.Ambiguity {
	if asking && !slices.ContainsFunc(r, func(r *config.Route) bool { return r.Name != "" }) {
		return 0
	}
	if slices.ContainsFunc(r, looksAtPath) {
		return rules.PathAmbiguity
	}
	return 0
}

// looksAtPath reports whether r depends on the path.
func looksAtPath(r *config.Route) bool {
	return r.Path != "/" || strings.Trim(r.Upstream.Path, "/") != ""
}

// readTarget reads the target of a request, and stores it in the exchange, if there is one. It refuses
// ambiguities that could mislead the routes, if the request takes one. Ambiguities of the method are in
// Target.Ambiguous, too.
func (g *Gateway) readTarget(r *http.Request, x *exchange) (rules.Target, error) {
	uri := r.RequestURI
	if uri == "" && r.URL != nil { // the program itself made it
		uri = r.URL.RequestURI()
	}
	t, err := rules.ReadTarget(uri)
	if err != nil {
		return t, &decide.TargetError{Text: "The request's target is not a path, or has a #, a space, a control character or a malformed escape."}
	}
	method, err := rules.ReadMethod(r.Method)
	if err != nil || strings.EqualFold(r.Method, http.MethodConnect) { // it asks for a tunnel
		return t, &decide.TargetError{Text: "The request's method is CONNECT, or has characters that are not allowed in a method."}
	}
	t.Ambiguous |= method
	if _, err := httpfield.ReadHost(r.Host); err != nil {
		return t, &decide.TargetError{Text: "The request's host is neither a name nor an address, with or without a port."}
	}
	misled := g.misleads.asked
	if x != nil {
		x.target, misled = t, g.misleads.gateway
		if x.wrapped { // the program's handlers have no routes
			return t, nil
		}
	}
	if a := t.Ambiguous & misled &^ g.Settings.AllowAmbiguous; a != 0 {
		return t, decide.Ambiguous(a)
	}
	return t, nil
}

// outgoing is the URL of the request to the upstream: the path of r's upstream, then the target as sent.
// proxied means that the request goes to an HTTP proxy.
func outgoing(r *config.Route, target *rules.Target, proxied bool) (*url.URL, error) {
	base := strings.TrimSuffix(r.Upstream.EscapedPath(), "/")
	if base != "" && target.Ambiguous&rules.DotSegments != 0 {
		return nil, decide.Ambiguous(rules.DotSegments) // it might climb out of that path, whatever the settings allow
	}
	u := &url.URL{Scheme: r.Upstream.Scheme, Host: r.Upstream.Host, RawQuery: target.RawQuery, ForceQuery: target.HasQuery}
	if u.Scheme == "h2c" {
		u.Scheme = "http"
	}
	switch path := base + target.RawPath; {
	case proxied:
		u.Opaque = "//" + u.Host + path
	case !strings.HasPrefix(path, "//"):
		u.Opaque = path
	default: // net/url would take it for a host
		decoded, err := url.PathUnescape(path)
		u.Path, u.RawPath = decoded, path
		if err != nil || u.EscapedPath() != path {
			return nil, &decide.TargetError{Text: "The request's path begins with two slashes and has characters that must be escaped."}
		}
	}
	return u, nil
}
