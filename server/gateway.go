package server

import (
	"maps"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/rules"
)

// Gateway returns the handler that limits requests and passes them on to the upstreams of the routes. A
// request that matches no route counts, too, and gets 404. gRPC clients are refused with a gRPC status; see
// httplimit.GRPC.
func (s *Server) Gateway() http.Handler {
	return s.logAccess(s.boundRest(s.cors.Handler(httplimit.GRPC(inErrorFormat(s.Rules, s.withExchange(s.watch.Tracing.Requests("gateway", s.door.BelievesCaller, s.middleware(s.decideHTTP).Wrap(s.upstreams()))))))))
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
func (s *Server) middleware(decide httplimit.Decide) httplimit.Middleware {
	return httplimit.Middleware{
		Decide:     decide,
		Dialect:    s.settings.Dialect,
		MaxDelayed: int(s.settings.MaxDelayed),
		MaxDelay:   s.settings.MaxDelay,
		Client:     s.door.ClientOf,
		Degraded:   s.settings.DegradedHeader,
		Violations: s.settings.ViolationsHeader,
	}
}

// decideHTTP is Decide for the gateway's middleware, which can delay r by up to maxDelay.
func (s *Server) decideHTTP(r *http.Request, maxDelay time.Duration) (httplimit.Answer, error) {
	s.door.Notice(r)
	x := exchangeOf(r)
	target, err := s.readTarget(r, x)
	if err != nil {
		s.watch.Malformed(r.Context())
		return httplimit.Answer{}, err
	}
	clients, host, header := s.door.Clients(), httpfield.CanonicalHost(r.Host), r.Header
	if x != nil && !x.wrapped {
		header = passedOn(header)
	}
	route := s.takeRoute(x, host, target.Path)
	if r.Host == "" && x != nil && x.route != nil {
		host = httpfield.CanonicalHost(x.route.Upstream.Host) // the upstream will get it
	}
	in := rules.Input{
		Request: &rules.Request{
			Method:    r.Method,
			Preflight: s.cors.IsPreflight(r.Method, header),
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
	if x != nil && !s.door.BelievesToken(r) {
		in.Claims = door.NoClaims
	}
	one := make([]decide.Request, 1)
	t := &one[0]
	t.In, t.MaxDelay = &in, maxDelay
	if x != nil {
		x.body.s, x.body.request = s, r
		in.Request.Body, t.Settlement, x.settlement.Next = &x.body, &x.settlement, x
	}
	s.door.Decide(r.Context(), one, time.Time{}, false)
	if x == nil {
		if t.Err != nil {
			return httplimit.Answer{}, t.Err
		}
		if asked != nil {
			asked.Verdict = t.Verdict
		}
		a := s.door.Answer(t)
		a.Format = a.Format.ForProxies()
		return a, nil
	}
	defer x.body.decided()
	x.access.decided(t)
	if t.Err != nil {
		return httplimit.Answer{}, t.Err
	}
	x.watching, x.set, x.id, x.client = t.Watching, t.Set, t.ID, in.Client
	a := s.door.Answer(t)
	if t.Allowed {
		if x.prompt != (rules.Prompt{}) && x.endpoint.UsesTokens() {
			s.set.Load().TakesRoute(&s.settings, x.route, t.Rules)
		}
		s.settlesAtEnd(x, r, t, &a)
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
func (s *Server) upstreams() http.Handler {
	proxies := make(map[*config.Route]http.Handler, len(s.routes))
	for _, r := range s.routes {
		proxies[r] = s.proxy(r)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.cors.Answers(r) {
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
