// Package cors makes the answers of a server readable for pages of other origins.
package cors

import (
	"net/http"
	"time"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

var internal = httplimit.Internal(friend.Of{})

// Policy says which pages may read the answers of a server. A nil Policy changes nothing. It may be used from
// many goroutines at once.
type Policy struct {
	stated  *httplimit.CORS             // nil: what upstreams allow is learned
	learned map[*config.Route]*upstream // all routes; never changed
	find    func(host, path string) *config.Route
}

// New returns the Policy of c, which may be nil. find finds the route of a request among those of routes.
func New(c *config.CORS, routes []*config.Route, find func(host, path string) *config.Route) *Policy {
	switch {
	case c == nil:
		return nil
	case !c.Upstream:
		stated := c.Policy
		stated.DecidePreflights = true
		return &Policy{stated: &stated}
	}
	p := &Policy{learned: make(map[*config.Route]*upstream, len(routes)), find: find}
	for _, r := range routes {
		p.learned[r] = new(upstream)
	}
	return p
}

// Stated returns the origins in the settings; nil: none, or the upstreams decide.
func (p *Policy) Stated() *httplimit.CORS {
	if p == nil {
		return nil
	}
	return p.stated
}

// IsPreflight reports whether a request is a preflight that rules count only if they say so. header is the
// header that the upstream gets; it decides whether the request is a preflight there.
func (p *Policy) IsPreflight(method string, header http.Header) bool {
	return p != nil && internal.IsPreflight(&http.Request{Method: method, Header: header})
}

// Answers reports whether r is a preflight that does not pass, because Handler answers it.
func (p *Policy) Answers(r *http.Request) bool {
	return p.Stated() != nil && internal.IsPreflight(r)
}

// Handler returns next, and lets pages read its own answers as the Policy says. If the Policy names the
// origins, a preflight is answered with 204, whatever next decides: refusing it would hide the refusal of the
// request itself from the page. Then next must not pass it on; see Answers.
func (p *Policy) Handler(next http.Handler) http.Handler {
	if p == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Answers(r) {
			next.ServeHTTP(&unseen{w, http.Header{}}, r)
			internal.AnswerPreflight(p.stated, w, r)
			return
		}
		next.ServeHTTP(w, p.of(r).With(r))
	})
}

// Refusals returns next, for refusals that go through a proxy to pages: these may read them if the Policy
// names their origins.
func (p *Policy) Refusals(next http.Handler) http.Handler {
	if p.Stated() == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, p.stated.With(r)) })
}

// of returns who may read the server's own answer to r; nil: nobody.
func (p *Policy) of(r *http.Request) *httplimit.CORS {
	if p.stated != nil {
		return p.stated
	}
	origin := internal.Origin(r)
	if origin == "" {
		return nil
	}
	target, err := rules.ReadTarget(r.RequestURI)
	if err != nil {
		return nil
	}
	if u := p.learned[p.find(httpfield.CanonicalHost(r.Host), target.Path)]; u != nil {
		return u.allowed(origin)
	}
	return nil
}

// Passed sets in the header of an upstream's response who may read it, if the settings name origins, and
// allows reading limits, the headers about limits that this server added. Otherwise it remembers what the
// upstream allows. r is the request to the upstream.
func (p *Policy) Passed(route *config.Route, r *http.Request, response, limits http.Header) {
	switch {
	case p == nil:
	case p.stated != nil:
		internal.SetCORS(p.stated, response, internal.Origin(r), limits)
	case p.learned[route].answered(r, response) && !internal.IsPreflight(r):
		internal.ExposeLimits(response, limits)
	}
}

// unseen is a ResponseWriter whose answer is dropped. The body of the request can be cut off nevertheless.
type unseen struct {
	http.ResponseWriter // of the answer that the client gets
	header              http.Header
}

func (u *unseen) Header() http.Header         { return u.header }
func (u *unseen) WriteHeader(int)             {}
func (u *unseen) Write(b []byte) (int, error) { return len(b), nil }

// SetReadDeadline is for http.ResponseController.
func (u *unseen) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(u.ResponseWriter).SetReadDeadline(t)
}
