package config

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
	"golang.org/x/net/http/httpguts"
)

// Route sends requests to an upstream.
type Route struct {
	// Name is request.route in rules, for requests that take this route. It is unique among routes. Empty:
	// they have none.
	Name string
	// Host is the host of the request, in lower case, without a port. Empty: any.
	Host string
	// Path is the prefix of the request's path, in whole segments: /v1 matches /v1 and
	// /v1/users, not /v10.
	Path string
	// Upstream is the URL that requests go to: http, https or h2c. Its path, if any, is put before the
	// request's. With https, the upstream chooses HTTP/2 or HTTP/1.1; h2c is HTTP/2 without TLS.
	Upstream *url.URL
	// BodyTimeout replaces Settings.BodyTimeout for this route. nil: it does not.
	BodyTimeout *time.Duration
	// UpstreamTimeout replaces Settings.UpstreamTimeout for this route; 0: the upstream may take
	// any time. nil: it does not.
	UpstreamTimeout *time.Duration
	// ResponseTimeout replaces Settings.ResponseTimeout for this route. nil: it does not.
	ResponseTimeout *time.Duration
	// TLS is for an https Upstream. nil: the gateway checks its certificate against the
	// system's authorities, and shows none.
	TLS *UpstreamTLS
}

// UpstreamTLS says how an upstream proves its identity, and which certificate the gateway
// shows it. The files are PEM and are read again when they change; see Server.Run.
type UpstreamTLS struct {
	// CA has the authorities; one of them must have signed the upstream's certificate. Empty: the system's.
	CA string
	// Cert has the certificate that the gateway shows the upstream, followed by
	// intermediate ones. Key has its private key. Empty: it shows none.
	Cert, Key string
	// ServerName is the name that the upstream's certificate must have. Empty: the host of
	// its URL.
	ServerName string
}

// Timeouts returns how long r's upstream may take until it begins to answer, and how long the whole response
// may take. 0: any time.
func (s *Settings) Timeouts(r *Route) (upstream, response time.Duration) {
	upstream, response = s.UpstreamTimeout, s.ResponseTimeout
	if r.UpstreamTimeout != nil {
		upstream = *r.UpstreamTimeout
	}
	if r.ResponseTimeout != nil {
		response = *r.ResponseTimeout
	}
	return upstream, response
}

// patience is how long the official clients of OpenAI and Anthropic wait for an answer.
const patience = 10 * time.Minute

// IsImpatient reports whether r gives up on an upstream before a client of a language model would.
func (s *Settings) IsImpatient(r *Route) bool {
	upstream, response := s.Timeouts(r)
	return 0 < upstream && upstream < patience || 0 < response && response < patience
}

// AllImpatient reports whether there are routes, and IsImpatient is true of each.
func (s *Settings) AllImpatient() bool {
	for i := range s.Routes {
		if !s.IsImpatient(&s.Routes[i]) {
			return false
		}
	}
	return len(s.Routes) > 0
}

// Impatient is the finding that requests of rule, which counts tokens, take r, for which IsImpatient is true.
func (s *Settings) Impatient(rule *rules.Rule, r *Route) rules.Finding {
	upstream, response := s.Timeouts(r)
	does, fix := fmt.Sprintf("waits only %s for an answer to begin", limittext.Duration(upstream)), "upstream_timeout: 10m"
	if upstream == 0 || upstream >= patience {
		does, fix = fmt.Sprintf("breaks off an answer after %s", limittext.Duration(response)), "response_timeout: 10m or more, or 0s"
	}
	return rules.Finding{Code: rules.CodeImpatient, Text: fmt.Sprintf("rule %q has tokens, and the route %s %s: "+
		"the official clients of OpenAI and Anthropic wait ten minutes and then send again, so an answer that takes longer than the route allows is paid for but never received; give the route %s",
		rule.Name, r, does, fix)}
}

// String is its host and path.
func (r *Route) String() string { return r.Host + r.Path }

func (route *Route) rows(r *yamlnode.Reader) schema.Rows {
	timeout := func(name string, to **time.Duration, most time.Duration) schema.Value {
		v := schema.Duration(r, name, new(time.Duration), 0, most)
		return schema.Custom(v.Shape, func(n *yamlnode.Node) {
			*to = new(time.Duration)
			schema.Duration(r, name, *to, 0, most).Read(n)
		})
	}
	return schema.Rows{
		{Name: "name", Value: schema.Parsed(r, &route.Name, parseRouteName, schema.Scalar("name", schema.Name)), Example: "users", See: "deployment.md#names-of-routes",
			Says: "The value of request.route in rules, for requests on this route."},
		{Name: "host", Value: schema.Text(r, &route.Host, "host"), Computed: "any", Example: "api.example.com",
			Says: "The request's host, without a port."},
		{Name: "path", Value: schema.Text(r, &route.Path, "path").Matching("^/"), Default: "/", Example: "/v1",
			Says: "Prefix of the request's path, in whole segments: /v1 matches /v1 and /v1/users, not /v10."},
		{Name: "upstream", Value: schema.Parsed(r, &route.Upstream, ParseUpstream, schema.Scalar("URL", "^"+schema.AnyCase("http", "https", "h2c")+"://[^/?#]")).Expanding(r), Required: true, Example: `"http://localhost:9000"`, Flag: "upstream",
			Says: "URL of the upstream: http, https, or h2c (HTTP/2 without TLS). Its path is put before the request's."},
		{Name: "tls", Value: readUpstreamTLS(r, &route.TLS), Example: "{ca: /etc/stint/upstream.pem}", See: "deployment.md#upstreams",
			Says: "Certificates for an https upstream."},
		{Name: "body_timeout", Value: timeout("body_timeout", &route.BodyTimeout, hour), Computed: "the server's", Example: "5m",
			Says: "Replaces body_timeout for this route."},
		{Name: "upstream_timeout", Value: timeout("upstream_timeout", &route.UpstreamTimeout, schema.Endless), Computed: "the server's", Example: "10m",
			Says: "Replaces upstream_timeout for this route. 0s: no limit."},
		{Name: "response_timeout", Value: timeout("response_timeout", &route.ResponseTimeout, schema.Endless), Computed: "the server's", Example: "30m",
			Says: "Replaces response_timeout for this route. 0s: no limit."},
	}
}

func (s *Settings) addRoute(r *yamlnode.Reader, route *Route, n *yamlnode.Node, fields map[string]*yamlnode.Node) {
	if fields["upstream"] == nil {
		r.Report(n, "a route needs an upstream, such as http://localhost:9000")
	}
	if route.TLS != nil && route.Upstream != nil && route.Upstream.Scheme != "https" {
		r.Report(fields["tls"], "tls is for an upstream of https, and this one is of %s", route.Upstream.Scheme)
	}
	if !strings.HasPrefix(route.Path, "/") {
		r.Report(fields["path"], "path %.60q must start with /", route.Path)
	} else if path := rules.CleanPath(route.Path); route.Path != path {
		r.Report(fields["path"], "path %.60q: paths are compared without empty and dot segments: write %.60q", route.Path, path)
	} else if decoded, err := url.PathUnescape(route.Path); err == nil && decoded != route.Path {
		r.Report(fields["path"], "path %.60q: paths are compared when they have been decoded: write %.60q", route.Path, decoded)
	}
	if host := httpfield.CanonicalHost(route.Host); route.Host != host {
		r.Report(fields["host"], "host %.60q: hosts are compared without port and in lower case: write %.60q", route.Host, host)
	}
	for _, other := range s.Routes {
		if other.Name == route.Name && route.Name != "" {
			r.Report(fields["name"], "a second route named %.60q", route.Name)
		}
		if other.Host == route.Host && other.Path == route.Path {
			r.Report(n, "a second route for host %.60q and path %.60q", route.Host, route.Path)
		}
	}
	s.Routes = append(s.Routes, *route)
}

func parseRouteName(text string) (string, error) {
	if !rules.IsName(text) {
		return "", fmt.Errorf("name %.60q: must be 1 to 64 of A-Z a-z 0-9 _ . : / -", text)
	}
	return text, nil
}

// readUpstreamTLS is the section tls for servers that this instance calls.
func readUpstreamTLS(r *yamlnode.Reader, to **UpstreamTLS) schema.Value {
	return schema.Optional(r, to, func(t *UpstreamTLS) schema.Rows {
		rows := t.rows(r)
		rows[0].Instead = []string{"cert", "server_name"}
		return rows
	}, func(t *UpstreamTLS, n *yamlnode.Node, _ map[string]*yamlnode.Node) {
		if t.checkPair(r, n); *t == (UpstreamTLS{}) {
			r.Report(n, "tls needs ca, cert and key, or server_name")
		}
	})
}

func (t *UpstreamTLS) rows(r *yamlnode.Reader) schema.Rows {
	return schema.Rows{
		{Name: "ca", Value: schema.Text(r, &t.CA, "file"), Computed: "the system's authorities", Example: "/etc/stint/ca.pem", Reread: true,
			Says: "PEM file with the authorities trusted to sign the server's certificate."},
		{Name: "cert", Value: schema.Text(r, &t.Cert, "file"), Example: "/etc/stint/client.crt", Reread: true, Needs: []string{"key"},
			Says: "File with the client certificate, then intermediate ones."},
		{Name: "key", Value: schema.Text(r, &t.Key, "file"), Example: "/etc/stint/client.key", Reread: true, Needs: []string{"cert"},
			Says: "File with its private key."},
		{Name: "server_name", Value: schema.Text(r, &t.ServerName, "name"), Computed: "the host of the URL", Example: "api.internal",
			Says: "The name that the server's certificate must have."},
	}
}

func (t *UpstreamTLS) checkPair(r *yamlnode.Reader, n *yamlnode.Node) {
	if (t.Cert == "") != (t.Key == "") {
		r.Report(n, "cert and key go together")
	}
}

// ParseUpstream reads the address of an upstream, such as http://localhost:9000,
// https://api.internal or h2c://localhost:9000.
func ParseUpstream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c" || u.Host == "" { // text may contain a password
		return nil, errors.New("want the URL of an upstream, such as http://localhost:9000")
	}
	if u.User != nil { // a user is a secret even without a password
		u.User = nil
		return nil, fmt.Errorf("upstream %.60q has a user or password: only a scheme, host and path", u)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("upstream %.60q: only a scheme, host and path", u)
	}
	return u, nil
}

// fromEnvironment is the UpstreamProxy that the environment names.
const fromEnvironment = "environment"

// Proxy returns the http.Transport.Proxy function for UpstreamProxy. nil: no proxy.
func (s *Settings) Proxy() func(*http.Request) (*url.URL, error) {
	switch s.UpstreamProxy {
	case "":
		return nil
	case fromEnvironment:
		return http.ProxyFromEnvironment
	}
	u, err := url.Parse(s.UpstreamProxy)
	return func(*http.Request) (*url.URL, error) { return u, err }
}

// parseProxy reads the URL of a proxy, which may contain a password.
func parseProxy(text string) (string, error) {
	if text == fromEnvironment {
		return text, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" {
		return "", errors.New("want the URL of a proxy, such as http://proxy.internal:3128 (http, https or socks5), or environment")
	}
	return text, nil
}

func parseUpgrade(text string) (string, error) {
	name, version, hasVersion := strings.Cut(text, "/")
	if !httpguts.ValidHeaderFieldName(name) || hasVersion && !httpguts.ValidHeaderFieldName(version) {
		return "", fmt.Errorf("upgrade %.60q: want the name of a protocol, such as websocket", text)
	}
	switch strings.ToLower(name) {
	case "h2c", "h2", "h3", "http", "tls":
		return "", fmt.Errorf("upgrade %.60q: it would carry any number of requests past the rules; for an HTTP/2 upstream, write h2c://", text)
	}
	return text, nil
}
