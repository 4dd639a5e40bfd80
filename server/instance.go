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
)

// instance is what this instance bounds by itself: the second layer, which holds
// whatever the store says.
type instance struct {
	limiter *stint.Limiter // of limit; has one key
	limit   *stint.Limit   // nil: none
	// gateway and check are for the requests under way at each listener: what fills one
	// leaves the other alone.
	gateway, check *room.Room
	bytes          *underWay
}

func newInstance(s *config.Settings, client func(*http.Request) netip.Addr) *instance {
	return &instance{
		limiter: stint.NewLimiter(&stint.Memory{MaxKeys: 1}),
		limit:   s.Instance.Limit,
		gateway: room.Of(s.Instance.InFlight),
		check:   room.Of(s.Instance.InFlight),
		bytes:   newUnderWay(s.Instance.Bytes, client),
	}
}

// underWay is how many requests are under way.
func (i *instance) underWay() int64 { return i.gateway.Taken() + i.check.Taken() }

// enter takes a place for r in m, and room for its headers. What finds none is answered,
// and ok is false.
func (s *Server) enter(m *room.Room, w http.ResponseWriter, r *http.Request) (place, headers room.Place, ok bool) {
	place, refused := m.Enter(r, s.clientOf)
	switch refused {
	case room.None:
		if headers, ok = s.instance.bytes.headers(r, s.instance.underWay()); !ok {
			m.Leave(place)
			s.noBytes(w, r)
		}
		return place, headers, ok
	case room.Share:
		s.metrics.overloadedShare.Inc()
	default:
		s.metrics.overloadedInFlight.Inc()
	}
	noRoom(w, r)
	return place, headers, false
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
		place, headers, ok := s.enter(s.instance.check, w, r)
		if !ok {
			return
		}
		defer func() {
			s.instance.bytes.give(headers)
			s.cutOff.left(r, false)
			s.instance.check.Leave(place)
		}()
		next.ServeHTTP(w, r)
	})
}

// noBytes refuses a request for which there is no memory.
func (s *Server) noBytes(w http.ResponseWriter, r *http.Request) {
	s.metrics.overloadedBytes.Inc()
	noRoom(w, r)
}

func noRoom(w http.ResponseWriter, r *http.Request) {
	(&httplimit.Overloaded{RetryAfter: time.Second}).Refuse(w, r)
}

// refundTimeout bounds how long a request that the instance refuses tries to
// return what the rules charged.
const refundTimeout = time.Second

// admit asks the instance's own limit about a request that the rules allow. Where
// it refuses, what the rules charged goes back, for the client is not to blame; the
// error is a *httplimit.Overloaded then.
func (s *Server) admit(ctx context.Context, v *Verdict) error {
	if s.instance.limit == nil || !v.Allowed {
		return nil
	}
	d, err := s.instance.limiter.Allow(ctx, "instance", s.instance.limit)
	if err != nil { // its one key is exhausted when another limit's would come
		return fmt.Errorf("the limit of the instance: %w", err)
	}
	if d.Allowed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	if err := s.refund(ctx, v.taken); err != nil {
		s.sampled.failure("this instance is overloaded, and what a request took that it refused stays taken", err)
	}
	return &httplimit.Overloaded{RetryAfter: d.RetryAfter}
}

// isOverloaded tells whether err says that the instance, and not the client, is at
// its end.
func isOverloaded(err error) (*httplimit.Overloaded, bool) {
	if err == nil {
		return nil, false
	}
	var o *httplimit.Overloaded // which allocates
	return o, errors.As(err, &o)
}
