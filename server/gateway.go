package server

import (
	"context"
	"maps"
	"net/http"
	"net/textproto"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/places"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/rules"
)

// Gateway returns the handler that limits requests and passes them on to the upstreams of the routes. A
// request that matches no route counts, too, and gets 404. gRPC clients are refused with a gRPC status; see
// httplimit.GRPC.
func (s *Server) Gateway() http.Handler {
	return s.logAccess(s.boundRest(s.cors.Handler(httplimit.GRPC(inErrorFormat(s.Rules, s.withExchange(s.watch.Tracing.Requests("gateway", s.believesCaller, s.middleware(s.decideHTTP).Wrap(s.upstreams()))))))))
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
		Client:     s.clientOf,
		Degraded:   s.settings.DegradedHeader,
		Violations: s.settings.ViolationsHeader,
	}
}

// decideHTTP is Decide for the gateway's middleware, which can delay r by up to maxDelay.
func (s *Server) decideHTTP(r *http.Request, maxDelay time.Duration) (httplimit.Answer, error) {
	s.notice(r)
	x := exchangeOf(r)
	target, err := s.readTarget(r, x)
	if err != nil {
		s.watch.Malformed(r.Context())
		return httplimit.Answer{}, err
	}
	clients, host, header := s.clients(), httpfield.CanonicalHost(r.Host), r.Header
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
	var asked *Asked
	if x == nil {
		if asked = askedOf(r); asked != nil {
			in.Attrs = asked.Attrs
		}
	}
	if !s.believesToken(r) {
		in.Claims = noClaims
	}
	one := make([]decide.Request, 1)
	t := &one[0]
	t.In, t.MaxDelay = &in, maxDelay
	if x != nil {
		x.body.s, x.body.request = s, r
		in.Request.Body, t.Settlement, x.settlement.Next = &x.body, &x.settlement, x
	}
	s.decide(r.Context(), one, time.Time{}, false)
	if x == nil {
		if t.Err != nil {
			return httplimit.Answer{}, t.Err
		}
		if asked != nil {
			asked.Verdict = t.Verdict
		}
		a := s.answer(t)
		a.Format = a.Format.ForProxies()
		return a, nil
	}
	defer x.body.decided()
	x.access.decided(t)
	if t.Err != nil {
		return httplimit.Answer{}, t.Err
	}
	x.watching, x.set, x.id, x.client = t.Watching, t.Set, t.ID, in.Client
	a := s.answer(t)
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

func (s *Server) clients() httplimit.Clients {
	set := s.Rules()
	return httplimit.Clients{Trusted: set.TrustedProxies, Header: s.settings.ClientHeader, NAT64: set.NAT64}
}

// answer converts a decision to the middleware's type.
func (s *Server) answer(t *decide.Request) httplimit.Answer {
	a := httplimit.Answer{
		Decision:  t.Decision,
		Blocked:   t.Kind == kind.Blocked,
		Unlimited: t.Allowed && t.Limit == nil,
	}
	a.Message, a.Cause, a.ID = t.Message, t.Cause(), t.ID
	if a.Blocked || a.Unlimited {
		return a
	}
	if !t.Allowed {
		a.Format = formatOf(t, s.Rules())
	}
	a.Each, a.Units = t.Enforced(), t.Units()
	a.Delay = 0
	delaying, last := 0, 0
	for i := range t.Each {
		if d := t.Each[i].Delay; d > 0 && t.Allowed && t.Rules[i].Shape && t.Rules[i].Mode == rules.Enforce {
			a.Delay = max(a.Delay, d)
			delaying, last = delaying+1, i
		}
	}
	if a.Delay > 0 {
		a.Shape = true
		if delaying == 1 { // with several queues, a turn in one would be too early for another
			httplimit.Internal(friend.Of{}).SetQueue(&a, places.QueueOf(t.Ask(last)))
		}
		a.Refund = func(ctx context.Context) {
			s.decider.Undo(ctx, t, "a request ended while it was delayed, and its units could not be refunded")
		}
	}
	return a
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

// buffers are reused to copy bodies and to read lists of checks.
type buffers struct{}

const bufferSize = 32 << 10

var freeBuffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

func (buffers) Get() []byte  { return freeBuffers.Get().(*[bufferSize]byte)[:] }
func (buffers) Put(b []byte) { freeBuffers.Put((*[bufferSize]byte)(b)) }

// noClaims is Input.Claims where no token is read.
var noClaims = map[string]any{}

// believesToken reports whether the token of a request may be read. A signature proves who made
// the token. Without one, others must verify the token, so the request must come through a
// trusted proxy. Proxies that call /v1/authorize were checked already.
func (s *Server) believesToken(r *http.Request) bool {
	return s.claims == nil || !s.claims.Trusted || exchangeOf(r) == nil || s.clients().Believes(r)
}
