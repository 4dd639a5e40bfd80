package door

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

// Admission bounds what this instance accepts at the gateway and the check API, regardless of rules and
// store; see config.Instance.
type Admission struct {
	// Gateway and Check bound the requests in flight at each listener, so that one listener
	// cannot fill the other.
	Gateway, Check *room.Room
	Bytes          *inflight.Bytes
	client         func(*http.Request) netip.Addr
	metrics        *watch.Metrics
	log            *watch.Sampled

	// limit counts the requests that the rules allow, including those to which no rule applies.
	// Limiter.Instance would not do: it comes before the rules' limits and counts only requests that have
	// limits. nil: no limit.
	limit   *stint.Limit
	counted *stint.Limiter // one key: the count of limit
}

// NewAdmission returns bounds as the settings say. client is the address that a request counts for.
func NewAdmission(s *config.Settings, client func(*http.Request) netip.Addr, m *watch.Metrics, log *watch.Sampled) *Admission {
	return &Admission{
		Gateway: room.Of(s.Instance.InFlight),
		Check:   room.Of(s.Instance.InFlight),
		Bytes:   inflight.NewBytes(s.Instance.Bytes, client),
		client:  client,
		metrics: m,
		log:     log,
		limit:   s.Instance.Limit,
		counted: stint.NewLimiter(&stint.Memory{MaxKeys: 1}),
	}
}

// InFlight is how many requests have a place.
func (a *Admission) InFlight() int64 { return a.Gateway.Taken() + a.Check.Taken() }

// Enter takes a place for r at a listener, and room for its headers. If there is none, it
// answers r and ok is false.
func (a *Admission) Enter(at *room.Room, w http.ResponseWriter, r *http.Request) (place, headers room.Place, ok bool) {
	place, refused := at.Enter(r, a.client)
	switch refused {
	case room.None:
		if headers, ok = a.Bytes.Headers(r, a.InFlight()); !ok {
			at.Leave(place)
			a.RefuseBytes(w, r)
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

// RefuseBytes answers a request for which there is not enough memory.
func (a *Admission) RefuseBytes(w http.ResponseWriter, r *http.Request) {
	a.metrics.OverloadedBytes.Inc()
	a.log.Overloaded("bytes")
	refuseOverloaded(w, r)
}

func refuseOverloaded(w http.ResponseWriter, r *http.Request) {
	(&httplimit.Overloaded{RetryAfter: time.Second}).Refuse(w, r)
}

// HasLimit reports whether the instance has a limit of its own.
func (a *Admission) HasLimit() bool { return a.limit != nil }

// Admit asks the instance's own limit, which there is, about a request that the rules allow. If it refuses, the
// error is a *httplimit.Overloaded.
func (a *Admission) Admit(ctx context.Context) error {
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
