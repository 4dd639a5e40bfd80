package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/room"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/config"
)

// watching is a rule that counts responses to a request as violations of its key.
type watching struct {
	rule *rules.Rule
	ask  stint.Ask
}

// watch notes the rules that wait for the response. A rule in shadow mode bans nobody.
func (v *Verdict) watch(asks []stint.Ask) {
	for i, r := range v.Rules {
		known := i > 0 && v.Rules[i-1] == r // by another of its limits
		if len(r.OnStatus) > 0 && r.Mode == rules.Enforce && !known {
			v.watching = append(v.watching, watching{r, asks[i]})
		}
	}
}

// showLimits takes rules without limits out of Rules and Each, which are of limits.
func (v *Verdict) showLimits() {
	if !slices.ContainsFunc(v.Rules, hasNoLimits) {
		return
	}
	shown := 0
	for i, r := range v.Rules {
		if hasNoLimits(r) {
			continue
		}
		v.Rules[shown] = r
		if v.Each != nil {
			v.Each[shown] = v.Each[i]
		}
		shown++
	}
	v.Rules = v.Rules[:shown]
	if v.Each != nil {
		v.Each = v.Each[:shown]
	}
}

func hasNoLimits(r *rules.Rule) bool { return len(r.Limits) == 0 }

// exchange is what the gateway knows of a request until its response comes.
type exchange struct {
	headers  http.Header // what the limits say
	watching []watching
	counters ruleCounters
	room     *room.Room // where it has its place; nil: none any more
	place    room.Place
	upgraded bool // it is one of cutOff.upgraded
	target   rules.Target
	route    *config.Route // where it goes; nil: nowhere yet
	body     *upload       // nil: it has none, or goes to no upstream
	http1    bool          // the client, where there is a body
	response *pacedWriter  // nil: it goes to no upstream, or has all the time there is
	out      *url.URL      // that the upstream is asked for
	// wrapped means that it goes to a handler of the program, by the pattern of a mux,
	// if there is one.
	wrapped bool
	pattern string
}

type exchangeKey struct{}

// withExchange makes room for it in the context of each request for which the
// instance has room, and refuses the others.
func (s *Server) withExchange(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		place, headers, ok := s.admission.enter(s.admission.gateway, w, r)
		if !ok {
			return
		}
		x := &exchange{room: s.admission.gateway, place: place}
		defer func() {
			x.stopPace()
			s.admission.bytes.Refund(headers)
			s.cutOff.left(r, x.upgraded)
			x.leave()
			if x.upgraded {
				s.cutOff.upgraded.Add(-1)
			}
		}()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
	})
}

// leave ends that the exchange counts as under way. Only the goroutine of its
// request calls it.
func (x *exchange) leave() {
	if x != nil && x.room != nil {
		x.room.Leave(x.place)
		x.room = nil
	}
}

// exchangeOf is that of a request that came through the gateway; nil: it did not.
func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// setHeaders puts what the limits say into h, in place of what an upstream says
// under the same names.
func (x *exchange) setHeaders(h http.Header) {
	if x != nil {
		maps.Copy(h, x.headers)
	}
}

// responded counts the violations that a response of an upstream is, before it is
// passed on: the client's next request finds the ban. It never harms the response.
func (s *Server) responded(ctx context.Context, x *exchange, status int) {
	if x == nil {
		return
	}
	for i := range x.watching {
		if w := &x.watching[i]; slices.Contains(w.rule.OnStatus, status) {
			s.violated(ctx, x, w)
		}
	}
}

func (s *Server) violated(ctx context.Context, x *exchange, w *watching) {
	ctx = context.WithoutCancel(ctx) // it counts, too, if the client has left
	d, err := s.decider.Violate(ctx, w.ask.Key, w.ask.Penalty)
	if err != nil {
		s.sampled.failure("a response could not be counted as a violation", fmt.Errorf("rule %s: %w", w.rule.Name, err))
		return
	}
	if d.Outcome == stint.Banned {
		s.bans.impose(w.rule.Name, w.ask.Key, d.BanLeft)
	}
	if c := x.counters[w.rule]; c != nil {
		c.responses.Inc()
	}
}
