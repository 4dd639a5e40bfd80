package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// instance is what this instance bounds by itself: the second layer, which holds
// whatever the store says.
type instance struct {
	limiter        *stint.Limiter // of limit; has one key
	limit          *stint.Limit   // nil: none
	room           int64          // for requests under way; 0: any number
	gateway, check flights
	bytes          *underWay
}

// flights counts the requests under way at one listener.
type flights struct {
	now atomic.Int64
	_   [56]byte // the other listener's count lies in another cache line
}

func newInstance(s *Settings) *instance {
	return &instance{
		limiter: stint.NewLimiter(&stint.Memory{MaxKeys: 1}),
		limit:   s.Instance.Limit,
		room:    s.Instance.InFlight,
		bytes:   newUnderWay(s.Instance.Bytes),
	}
}

// enter counts a request as under way, if there is room. Of two that come at once
// for the last place both may be refused; there are never more than room.
func (i *instance) enter(at, other *flights) bool {
	if n := at.now.Add(1); i.room > 0 && n+other.now.Load() > i.room {
		at.now.Add(-1)
		return false
	}
	return true
}

func (f *flights) leave() { f.now.Add(-1) }

// capped is next for as many requests as there is room for. What finds none is
// refused before anything else.
func (s *Server) capped(at, other *flights, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers, ok := s.enter(at, other, w, r)
		if !ok {
			return
		}
		defer func() {
			s.instance.bytes.give(headers)
			s.cutOff.left(r, false)
			at.leave()
		}()
		next.ServeHTTP(w, r)
	})
}

// enter counts r as under way, with its headers, or refuses it.
func (s *Server) enter(at, other *flights, w http.ResponseWriter, r *http.Request) (headers int64, ok bool) {
	if !s.instance.enter(at, other) {
		s.metrics.overloadedInFlight.Inc()
		noRoom(w, r)
		return 0, false
	}
	headers, ok = s.instance.bytes.headers(r, at.now.Load()+other.now.Load())
	if !ok {
		at.leave()
		s.noBytes(w, r)
	}
	return headers, ok
}

// noBytes refuses a request for which there is no memory.
func (s *Server) noBytes(w http.ResponseWriter, r *http.Request) {
	s.metrics.overloadedBytes.Inc()
	noRoom(w, r)
}

func noRoom(w http.ResponseWriter, r *http.Request) {
	(&httplimit.Overloaded{RetryAfter: time.Second}).Refuse(w, r)
}

// giveBackTimeout bounds how long a request that the instance refuses tries to
// return what the rules charged.
const giveBackTimeout = time.Second

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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if err := s.giveBack(ctx, v.taken); err != nil {
		s.complainOf("this instance is overloaded, and what a request took that it refused stays taken", err)
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
