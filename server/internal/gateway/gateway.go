// Package gateway is the door through which requests pass on: to upstreams, or to handlers of the program. It also
// answers other proxies that ask about requests.
package gateway

import (
	"context"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/cors"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/rules"
)

// Gateway limits HTTP requests, and passes them on to upstreams or to handlers of the program. It also answers
// other proxies that ask about requests. It may be used from many goroutines at once.
type Gateway struct {
	*door.Door
	Options
	CORS       *cors.Policy // nil: nothing is done
	Transports Transports
	Routes     Routes
	misleads   misleading
}

// Options are the parts of a Gateway beside its Door.
type Options struct {
	AccessLog *slog.Logger
	// ErrorLog receives what net/http says.
	ErrorLog *log.Logger
}

// New returns a Gateway as the settings of d say. Its Transports are not ready until Open has read their files.
func New(d *door.Door, o Options) *Gateway {
	g := &Gateway{Door: d, Options: o, Transports: newTransports(d.Settings), Routes: newRoutes(d.Settings.Routes)}
	g.misleads = misleading{gateway: g.Routes.read(false), asked: g.Routes.read(true)}
	g.CORS = cors.New(d.Settings.CORS, g.Routes, g.Routes.Find)
	return g
}

// Handler limits requests, and passes them on to the upstreams of the routes.
func (g *Gateway) Handler() http.Handler {
	return g.logAccess(g.boundRest(g.CORS.Handler(httplimit.GRPC(inErrorFormat(g.Rules, g.withExchange(g.Watch.Tracing.Requests("gateway", g.BelievesCaller, g.middleware(g.decideHTTP).Wrap(g.upstreams()))))))))
}

// Wrap returns next behind the rules.
func (g *Gateway) Wrap(next http.Handler) http.Handler {
	m := g.middleware(g.decideFor(next))
	m.CORS = g.CORS.Stated()
	return g.CORS.Handler(httplimit.GRPC(inErrorFormat(g.Rules, g.withExchange(g.Watch.Tracing.Requests("limited", g.BelievesCaller, m.Wrap(next))))))
}

// inErrorFormat makes next answer in the error format of the rules in force when a request comes.
func inErrorFormat(current func() *rules.Set, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := current().Errors; f != nil {
			r = r.WithContext(httplimit.WithErrorFormat(r.Context(), f))
		}
		next.ServeHTTP(w, r)
	})
}

// middleware answers and delays HTTP requests, and writes their headers, as the settings say.
func (g *Gateway) middleware(decide httplimit.Decide) httplimit.Middleware {
	return httplimit.Middleware{
		Decide:     decide,
		Dialect:    g.Settings.Dialect,
		MaxDelayed: int(g.Settings.MaxDelayed),
		MaxDelay:   g.Settings.MaxDelay,
		Client:     g.ClientOf,
		Degraded:   g.Settings.DegradedHeader,
		Violations: g.Settings.ViolationsHeader,
	}
}

// decideHTTP is Decide for the gateway's middleware, which can delay r by up to maxDelay.
func (g *Gateway) decideHTTP(r *http.Request, maxDelay time.Duration) (httplimit.Answer, error) {
	g.Notice(r)
	x := exchangeOf(r)
	target, err := g.readTarget(r, x)
	if err != nil {
		g.Watch.Malformed(r.Context())
		return httplimit.Answer{}, err
	}
	clients, host, header := g.Clients(), httpfield.CanonicalHost(r.Host), r.Header
	if x != nil && !x.wrapped {
		header = passedOn(header)
	}
	route := g.takeRoute(x, host, target.Path)
	if r.Host == "" && x != nil && x.route != nil {
		host = httpfield.CanonicalHost(x.route.Upstream.Host) // the upstream will get it
	}
	in := rules.Input{
		Request: &rules.Request{
			Method:    r.Method,
			Preflight: g.CORS.IsPreflight(r.Method, header),
			Path:      target.Path,
			Ambiguous: target.Ambiguous,
			Host:      host,
			Route:     route,
			Header:    header,
			RawQuery:  target.RawQuery,
		},
		Client: clients.Addr(r),
		Cost:   1,
	}
	var asked *door.AskedCall
	if x == nil {
		if asked = door.AskedOf(r); asked != nil {
			in.Attrs = asked.Attrs
		}
	}
	if !g.believesToken(r, x) {
		in.Claims = noClaims
	}
	one := make([]decide.Request, 1)
	t := &one[0]
	t.In, t.MaxDelay = &in, maxDelay
	if x != nil {
		x.body.g, x.body.request = g, r
		in.Request.Body, t.Settlement, x.settlement.Next = &x.body, &x.settlement, x
	}
	g.Decide(r.Context(), one, time.Time{}, false)
	if x == nil {
		if t.Err != nil {
			return httplimit.Answer{}, t.Err
		}
		if asked != nil {
			asked.Verdict = t.Verdict
		}
		a := g.Answer(t)
		a.Format = a.Format.ForProxies()
		return a, nil
	}
	defer x.body.decided()
	x.access.decided(t)
	if t.Err != nil {
		return httplimit.Answer{}, t.Err
	}
	x.watching, x.set, x.id, x.client = t.Watching, t.Set, t.ID, in.Client
	a := g.Answer(t)
	if t.Allowed {
		if x.prompt != (rules.Prompt{}) && x.endpoint.UsesTokens() {
			g.Watch.Current().TakesRoute(g.Settings, x.route, t.Rules)
		}
		g.settlesAtEnd(x, r, t, &a)
	}
	return a, nil
}

// Ready is for decide.Next. It asks for what is to be known when the response ends. A body that does not
// arrive, or for which there is no memory, keeps the request from going on; a refusal stands.
func (x *exchange) Ready(t *decide.Request) error {
	if t.Err == nil && t.Allowed {
		if x.settlement.Holds || len(x.settlement.Spared) > 0 {
			x.endpoint = rules.EndpointOf(t.In.Request)
		}
		x.body.askForUsage(t.Rules, x.endpoint)
		x.prompt = x.body.passed()
	}
	if x.body.failed != nil && (t.Err != nil || t.Allowed) {
		return x.body.failed
	}
	return t.Err
}

// passedOn returns h without the headers that Connection names, which a ReverseProxy does not
// forward. Upgrade stays for rules about WebSockets. The address of the client is read from h
// itself: otherwise a client that names X-Forwarded-For would be taken for the proxy.
func passedOn(h http.Header) http.Header {
	kept := h
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(textproto.TrimString(name))
			if _, ok := kept[name]; !ok || name == "Upgrade" {
				continue
			}
			if len(kept) == len(h) {
				kept = maps.Clone(h)
			}
			delete(kept, name)
		}
	}
	return kept
}

// upstreams handles requests whose route was found when they were decided.
func (g *Gateway) upstreams() http.Handler {
	proxies := make(map[*config.Route]http.Handler, len(g.Routes))
	for _, r := range g.Routes {
		proxies[r] = g.proxy(r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.CORS.Answers(r) {
			exchangeOf(r).access.answersPreflight()
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if proxy := proxies[exchangeOf(r).route]; proxy != nil {
			proxy.ServeHTTP(w, r)
			return
		}
		httplimit.Problem(w, r, http.StatusNotFound, "No route matches this request.")
	})
}

// takeHeaders moves the headers about limits from h into x. A ReverseProxy would add the upstream's headers
// of the same names, and clears h if the upstream sends a 1xx first. So they go into the upstream's response
// instead, where they replace its own.
func (x *exchange) takeHeaders(h http.Header) {
	x.headers = make(http.Header, len(h))
	maps.Copy(x.headers, h)
	clear(h)
}

// decideFor is decideHTTP for a handler whose responses the middleware sees.
func (g *Gateway) decideFor(next http.Handler) httplimit.Decide {
	return func(r *http.Request, maxDelay time.Duration) (httplimit.Answer, error) {
		x := exchangeOf(r)
		x.wrapped, x.pattern = true, patternOf(next, r)
		a, err := g.decideHTTP(r, maxDelay)
		if len(x.watching) > 0 {
			a.OnStatus = func(ctx context.Context, status int) { g.responded(ctx, x, status) }
		}
		return a, err
	}
}

// noClaims is Input.Claims where no token is read.
var noClaims = map[string]any{}

// believesToken reports whether the token of a request may be read. A signature proves who made the token.
// Without one, others must verify the token, so the request must come through a trusted proxy. Proxies that
// call /v1/authorize, where x is nil, were checked already.
func (g *Gateway) believesToken(r *http.Request, x *exchange) bool {
	return !g.TrustedClaims || x == nil || g.Clients().Believes(r)
}
