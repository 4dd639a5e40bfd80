package gateway

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"github.com/stintdev/stint/internal/room"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// exchange is the gateway's data about a request until its response arrives.
type exchange struct {
	headers    http.Header // about limits
	watching   []decide.Watching
	set        *decide.Set // that decided
	id         string      // of the decision; empty: it has none
	access     *access     // nil: there is no access log
	client     netip.Addr  // invalid: unknown
	room       *room.Room  // where it has a place; nil: it has left
	place      room.Place
	upgraded   bool // counts in CutOff.Upgraded
	target     rules.Target
	route      *config.Route // nil: none yet
	upload     *upload       // nil: no body, or no upstream
	body       body          // as rules read it
	prompt     rules.Prompt  // of the body, as far as known
	endpoint   rules.Endpoint
	settlement decide.Settlement // of its holds
	status     int               // of the upstream's response; 0: none
	unsent     bool              // the upstream could not be reached
	// clientFailed means that there was no response because the client left, or because its body
	// did not arrive.
	clientFailed bool
	timer        *responseTimer // nil: no upstream, or no response_timeout
	http1        bool           // the client's protocol, if there is a body
	response     *pacedWriter   // nil: no upstream, or no time limit
	out          *url.URL       // the URL of the request to the upstream
	// wrapped means that a handler of the program serves it (Server.Wrap), under the pattern of a mux if
	// there is one.
	wrapped bool
	pattern string
}

type exchangeKey struct{}

// withExchange adds an exchange to the context of each request that the instance has room for, and refuses
// the others.
func (g *Gateway) withExchange(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		place, headers, ok := g.Admission.Enter(g.Admission.Gateway, w, r)
		if !ok {
			return
		}
		x := &exchange{room: g.Admission.Gateway, place: place}
		x.body.writer = w
		if g.Settings.Log.Access {
			if x.access = accessOf(r); x.access != nil {
				x.access.x = x
			}
		}
		defer func() {
			x.stopPace()
			g.Admission.Bytes.Refund(headers)
			if x.body.read {
				x.body.free()
			}
			g.CutOff.Left(r, x.upgraded)
			x.leave()
			if x.upgraded {
				g.CutOff.Upgraded.Add(-1)
			}
		}()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	})
}

// leave ends the time in which the exchange counts as in flight. Only the goroutine of its
// request calls it.
func (x *exchange) leave() {
	if x != nil && x.room != nil {
		x.room.Leave(x.place)
		x.room = nil
	}
}

// exchangeOf returns the exchange of a request; nil: it did not come through the gateway.
func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// setHeaders puts the headers about limits into h, in place of the upstream's of the same
// names.
func (x *exchange) setHeaders(h http.Header) {
	if x != nil {
		maps.Copy(h, x.headers)
	}
}

// responded counts the violations by an upstream's response before it is forwarded, so that the client's next
// request finds the ban. It never breaks the response.
func (g *Gateway) responded(ctx context.Context, x *exchange, status int) {
	for i := range x.watching {
		if w := &x.watching[i]; slices.Contains(w.Rule.OnStatus, status) {
			g.violated(ctx, x, w, status)
		}
	}
}

func (g *Gateway) violated(ctx context.Context, x *exchange, w *decide.Watching, status int) {
	ctx, span := g.Watch.Tracing.Start(ctx, "violate")
	v := decide.Violation{Watching: *w, Client: x.client, Path: x.target.Path, ID: x.id, Status: status}
	err := g.Decider.Violate(ctx, x.set, &v)
	g.Watch.Tracing.Violated(span, w, &v.Decision, err)
}

// RouteOf is the route of a request; empty: it has none.
func RouteOf(r *http.Request) string {
	x := exchangeOf(r)
	switch {
	case x == nil:
		return ""
	case x.route != nil:
		return x.route.String()
	}
	return x.pattern
}

// patternOf is the mux pattern that r matches or has matched; empty: there is no mux.
func patternOf(next http.Handler, r *http.Request) string {
	if mux, ok := next.(interface {
		Handler(*http.Request) (http.Handler, string)
	}); ok {
		if _, pattern := mux.Handler(r); pattern != "" {
			return pattern
		}
	}
	return r.Pattern
}
