package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/room"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/inflight"
)

// admission bounds what this instance takes at the gateway and at the check API, whatever
// rules and store say: config.Instance.
type admission struct {
	// gateway and check are for the requests in flight at each listener: what fills one
	// leaves the other alone.
	gateway, check *room.Room
	bytes          *inflight.Bytes
	client         func(*http.Request) netip.Addr
	metrics        *metrics

	// limit is of the requests that the rules allow, those to which no rule applies among
	// them; so it is not Limiter.Instance, which is asked before the rules' limits and of
	// what has limits. nil: there is none.
	limit   *stint.Limit
	counted *stint.Limiter // has one key, the count of limit
}

func newAdmission(s *config.Settings, client func(*http.Request) netip.Addr, m *metrics) *admission {
	return &admission{
		gateway: room.Of(s.Instance.InFlight),
		check:   room.Of(s.Instance.InFlight),
		bytes:   inflight.NewBytes(s.Instance.Bytes, client),
		client:  client,
		metrics: m,
		limit:   s.Instance.Limit,
		counted: stint.NewLimiter(&stint.Memory{MaxKeys: 1}),
	}
}

// inFlight is how many requests are in flight.
func (a *admission) inFlight() int64 { return a.gateway.Taken() + a.check.Taken() }

// enter takes a place for r at a listener, and room for its headers. Where there is none, r
// is answered, and ok is false.
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
		a.metrics.overloadedShare.Inc()
	default:
		a.metrics.overloadedInFlight.Inc()
	}
	refuseOverloaded(w, r)
	return place, headers, false
}

// refuseBytes answers a request for which there is no memory.
func (a *admission) refuseBytes(w http.ResponseWriter, r *http.Request) {
	a.metrics.overloadedBytes.Inc()
	refuseOverloaded(w, r)
}

func refuseOverloaded(w http.ResponseWriter, r *http.Request) {
	(&httplimit.Overloaded{RetryAfter: time.Second}).Refuse(w, r)
}

// clientOf is the address among whose requests r counts. Of what a trusted proxy asks
// /v1/authorize, it is that of the original request.
func (s *Server) clientOf(r *http.Request) netip.Addr {
	clients := s.clients()
	return clients.Addr(r)
}

// capped is next for as many requests as there is room for at the check API. What finds
// none is refused before anything else.
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

// refundTimeout bounds how long a request that the instance refuses tries to
// return what the rules charged.
const refundTimeout = time.Second

// admit asks the instance's own limit about a request that the rules allow. Where
// it refuses, what the rules charged goes back, for the client is not to blame; the
// error is a *httplimit.Overloaded then.
func (s *Server) admit(ctx context.Context, v *Verdict) error {
	if s.admission.limit == nil || !v.Allowed {
		return nil
	}
	d, err := s.admission.counted.Allow(ctx, "instance", s.admission.limit)
	if err != nil { // its one key is exhausted when another limit's would come
		return fmt.Errorf("the limit of the instance: %w", err)
	}
	if d.Allowed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	if err := s.refund(ctx, v.taken); err != nil {
		s.sampled.failure("this instance is overloaded, and could not refund a request that it refused", err)
	}
	return &httplimit.Overloaded{RetryAfter: d.RetryAfter}
}

// isOverloaded reports whether err is the refusal of a request because this instance is
// overloaded.
func isOverloaded(err error) (*httplimit.Overloaded, bool) {
	if err == nil {
		return nil, false
	}
	var o *httplimit.Overloaded // which allocates
	return o, errors.As(err, &o)
}
