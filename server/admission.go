package server

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/room"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/inflight"
	"github.com/stintdev/stint/server/internal/watch"
)

// admission bounds what this instance accepts at the gateway and the check API, regardless of rules and
// store; see config.Instance.
type admission struct {
	// gateway and check bound the requests in flight at each listener, so that one listener
	// cannot fill the other.
	gateway, check *room.Room
	bytes          *inflight.Bytes
	client         func(*http.Request) netip.Addr
	metrics        *watch.Metrics
	log            *watch.Sampled

	// limit counts the requests that the rules allow, including those to which no rule applies.
	// Limiter.Instance would not do: it comes before the rules' limits and counts only requests that have
	// limits. nil: no limit.
	limit   *stint.Limit
	counted *stint.Limiter // one key: the count of limit
}

func newAdmission(s *config.Settings, client func(*http.Request) netip.Addr, m *watch.Metrics, log *watch.Sampled) *admission {
	return &admission{
		gateway: room.Of(s.Instance.InFlight),
		check:   room.Of(s.Instance.InFlight),
		bytes:   inflight.NewBytes(s.Instance.Bytes, client),
		client:  client,
		metrics: m,
		log:     log,
		limit:   s.Instance.Limit,
		counted: stint.NewLimiter(&stint.Memory{MaxKeys: 1}),
	}
}

func (a *admission) inFlight() int64 { return a.gateway.Taken() + a.check.Taken() }

// enter takes a place for r at a listener, and room for its headers. If there is none, it
// answers r and ok is false.
func (a *admission) enter(at *room.Room, w http.ResponseWriter, r *http.Request) (place, headers room.Place, ok bool) {
	place, refused := at.Enter(r, a.client)
	switch refused {
	case room.None:
		if headers, ok = a.bytes.Headers(r, a.inFlight()); !ok {
			at.Leave(place)
			a.refuseBytes(w, r)
		}
		return place, headers, ok
	case room.Share:
		a.metrics.OverloadedShare.Inc()
		a.log.Overloaded("share")
	default:
		a.metrics.OverloadedInFlight.Inc()
		a.log.Overloaded("in_flight")
	}
	refuseOverloaded(w, r)
	return place, headers, false
}

// refuseBytes answers a request for which there is not enough memory.
func (a *admission) refuseBytes(w http.ResponseWriter, r *http.Request) {
	a.metrics.OverloadedBytes.Inc()
	a.log.Overloaded("bytes")
	refuseOverloaded(w, r)
}

func refuseOverloaded(w http.ResponseWriter, r *http.Request) {
	(&httplimit.Overloaded{RetryAfter: time.Second}).Refuse(w, r)
}

// clientOf is the address that r counts for. If a trusted proxy asks about a request, as by /v1/authorize, it
// is the address of that request's client.
func (s *Server) clientOf(r *http.Request) netip.Addr {
	clients := s.clients()
	if a := askedOf(r); a != nil && clients.Believes(r) {
		r = a.Original
	}
	return clients.Addr(r)
}

// clientKey is the client that clientOf returns, as rules count it.
func (s *Server) clientKey(r *http.Request) string {
	clients := s.clients()
	return clients.Key(r)
}

// capped bounds the requests in flight of next, a handler of the check API. Requests without a
// place are refused before anything else happens.
func (s *Server) capped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		place, headers, ok := s.admission.enter(s.admission.check, w, r)
		if !ok {
			return
		}
		defer func() {
			s.admission.bytes.Refund(headers)
			s.cutOff.left(r, false)
			s.admission.check.Leave(place)
		}()
		next.ServeHTTP(w, r)
	})
}

// admit asks the instance's own limit, which there is, about a request that the rules allow. If it refuses, the
// error is a *httplimit.Overloaded.
func (a *admission) admit(ctx context.Context) error {
	d, err := a.counted.Allow(ctx, "instance", a.limit)
	if err != nil { // its one key is exhausted when another limit's would come
		return fmt.Errorf("the limit of the instance: %w", err)
	}
	if d.Allowed {
		return nil
	}
	a.metrics.OverloadedLimit.Inc()
	a.log.Overloaded("limit")
	return &httplimit.Overloaded{RetryAfter: d.RetryAfter}
}
