package httplimit

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/places"
	"github.com/stintdev/stint/internal/room"
)

// Middleware puts limits in front of a handler. Requests that pass reach the handler with
// the original ResponseWriter, so that streaming and hijacking work as usual (but see
// Answer.OnStatus and Answer.OnEnd). Others are answered with problem details; see Problem:
//   - 429, a limit or a ban refused; with Retry-After, unless no wait would help
//   - 403, Answer.Blocked
//   - 400, the request cannot be counted: an error that wraps stint.ErrRequest. If it
//     has a method Detail() string, that returns a sentence for the client
//   - 503 with Retry-After, nothing could be decided, or there is no room; see
//     MaxInFlight and Overloaded
//   - the answer of an error with a method Refuse(http.ResponseWriter, *http.Request)
//
// The headers of a Dialect are set before the handler runs, which may change them. A
// delayed request has the headers of the instant when it was decided. See Wrap for proxies.
//
// The zero Middleware limits each client address to 100 per 1m, in memory.
type Middleware struct {
	// Decide decides which requests pass. nil: By, with 100 per 1m, in memory,
	// for each address that Clients finds.
	Decide Decide
	// Clients finds the clients' addresses for that default Decide, and puts them into
	// the contexts of requests (stint.WithClient) for a stint.Guard in the handler. nil:
	// the default Decide uses the connections' addresses, and contexts get none.
	Clients *Clients
	// Dialect selects the rate limit headers. 0: XRateLimit.
	Dialect Dialect
	// OnError says how to decide when the Store does not, for asks that Decide makes with the
	// request's context and without their own OnError. The zero OnError is that of the Limiter, else
	// stint.OnErrorLocal; stint.OnErrorAllow lets requests pass, and stint.OnErrorDeny answers 503.
	// docs/reliability.md has a table of which one wins.
	OnError stint.OnError
	// Undecided is called if Decide still returns an error, and returns whether the request passes,
	// without headers. It is not called for errors that wrap stint.ErrRequest, which are the
	// client's fault, nor for those with a method Refuse, such as Overloaded. nil: no undecided
	// request passes.
	Undecided func(r *http.Request, err error) (pass bool)
	// Refused answers a request that a limit, a ban or a list refuses: with 429, or 403 if a is
	// Blocked. The headers of the Dialect and Retry-After are set. nil: problem details.
	Refused func(w http.ResponseWriter, r *http.Request, a *Answer)
	// Refusals is the format of refusals by a limit or a ban, and Errors is the format of all other
	// answers. Parts that Refusals lacks, such as bodies, are those of Errors. nil: the format in the
	// request's context, see WithErrorFormat, else problem details.
	Refusals, Errors *ErrorFormat
	// MaxDelayed is how many requests may be delayed at once, including those that are being
	// decided; see Answer.Shape. A request without a place is refused if it would have to
	// wait. One client cannot take all places; see MaxInFlight. 0: 1000. Negative: none
	// are delayed.
	MaxDelayed int
	// MaxDelay is the longest time to delay a request. A request that would wait longer, or
	// whose context would end sooner, is refused at once and takes no place in the
	// queue. 0: 10 seconds. Negative: none are delayed.
	MaxDelay time.Duration
	// MaxInFlight is how many requests may be in flight at once behind this Middleware,
	// from their arrival until the handler returns, including those that are delayed. One
	// more is refused with 503 and Retry-After, before Decide is called or the body
	// read. Any client may take a place while no more than half are taken. Of the other
	// half, a client may take one more while it has fewer of them than are free. So one
	// client alone gets three quarters. 0: no cap.
	MaxInFlight int
	// Client returns the client's address for MaxInFlight and MaxDelayed. IPv6 addresses of
	// one /64 network are one client, and so are all requests without an address. It is
	// called only while more than half of the places are taken. nil: Clients.Addr.
	Client func(*http.Request) netip.Addr
	// Degraded sets the header Stint-Degraded to who decided, local or policy, if the shared
	// Store did not.
	Degraded bool
	// Violations sets the header Stint-Violations on refusals that count as violations, as
	// 4;warn-after=3;ban-after=5, without what the penalty does not set.
	Violations bool
	// CORS lets pages of other origins read refusals, with the headers of Refusals and Errors, and the
	// headers about limits of all responses. Preflights are answered and do not reach the handler. nil: no
	// CORS.
	CORS *CORS
}

const (
	defaultMaxDelayed = 1000
	defaultMaxDelay   = 10 * time.Second
)

// Wrap returns next behind the limits. It copies m. Each call has its own MaxDelayed and
// MaxInFlight. It panics if m.Dialect combines dialects that exclude each other, or if
// m.CORS cannot work; see CORS.Check.
//
// A httputil.ReverseProxy within adds the upstream's headers to those of the Dialect,
// and clears all of them if the upstream sends an interim (1xx) response; set them again
// in its ModifyResponse. If one Middleware wraps another, the inner one's headers stay.
//
// Put a handler for h2c around this one, not within: it takes over a connection, and
// requests on that would not be limited.
//
// If the client of a delayed request leaves, the request ends and refunds its units, but
// not its place in the queue, which later requests may take; see Shape. net/http notices
// this with HTTP/1 only if the request has no body or the body has been read.
func (m Middleware) Wrap(next http.Handler) http.Handler {
	h := m.handler()
	if h.next = next; m.Clients != nil {
		h.next = m.Clients.withClient(next)
	}
	return h
}

func (m Middleware) handler() *handler {
	var clients Clients
	if m.Clients != nil {
		clients = *m.Clients
	}
	if m.Decide == nil {
		m.Decide = By(nil, nil, clients.Key)
	}
	if err := m.Dialect.Check(); err != nil {
		panic("httplimit: " + err.Error())
	}
	if m.CORS != nil {
		if err := m.CORS.Check(); err != nil {
			panic("httplimit: CORS: " + err.Error())
		}
	}
	if m.Client == nil {
		m.Client = clients.Addr
	}
	switch {
	case m.MaxDelayed == 0:
		m.MaxDelayed = defaultMaxDelayed
	case m.MaxDelayed < 0:
		m.MaxDelay = -1
	}
	if m.MaxDelay == 0 {
		m.MaxDelay = defaultMaxDelay
	}
	m.Refusals = m.Refusals.Over(m.Errors)
	h := &handler{Middleware: m}
	h.queue = queue{room.Of(int64(m.MaxDelayed)), places.Of(m.MaxDelayed), m.Client, max(0, m.MaxDelay)}
	if m.MaxInFlight > 0 {
		h.inFlight = room.Of(int64(m.MaxInFlight))
	}
	return h
}

type handler struct {
	Middleware
	next     http.Handler
	queue    queue
	inFlight *room.Room // nil: no cap
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.CORS != nil && (internals{}).IsPreflight(r) {
		h.preflight(w, r)
		return
	}
	r, a, place, pass := h.begin(w, r)
	if !pass {
		return
	}
	if h.inFlight != nil {
		defer h.inFlight.Leave(place)
	}
	a.OnStatus = h.CORS.watching(w, r, a.OnStatus)
	if a.OnStatus != nil || a.OnEnd != nil {
		watched := watch(w, r, &a)
		defer watched.leave()
		h.next.ServeHTTP(watched, r)
		watched.final(http.StatusOK) // net/http writes 200 now if the handler wrote nothing
		return
	}
	h.next.ServeHTTP(w, r)
}

// preflight answers a preflight, after Decide if DecidePreflights is set.
func (h *handler) preflight(w http.ResponseWriter, r *http.Request) {
	if h.CORS.DecidePreflights {
		h.decidePreflight(r)
	}
	h.CORS.answerPreflight(w, r)
}

func (h *handler) decidePreflight(r *http.Request) {
	unseen := &recorded{header: http.Header{}}
	r, a, place, pass := h.begin(unseen, r)
	if !pass {
		return
	}
	if h.inFlight != nil {
		defer h.inFlight.Leave(place)
	}
	watched := watch(unseen, r, &a)
	defer watched.leave()
	watched.final(http.StatusNoContent)
}

// begin decides r, which it may replace. It sets the headers of a request that passes, and answers
// the others. If r passes and there is a cap on requests in flight, the caller must leave place at the
// end.
func (h *handler) begin(w http.ResponseWriter, r *http.Request) (_ *http.Request, a Answer, place room.Place, pass bool) {
	r = h.CORS.With(h.Dialect.with(r))
	if h.Errors != nil {
		r = r.WithContext(WithErrorFormat(r.Context(), h.Errors))
	}
	if h.inFlight != nil {
		var refused room.Refusal
		if place, refused = h.inFlight.Enter(r, h.Client); refused != room.None {
			(&Overloaded{RetryAfter: time.Second}).Refuse(w, r)
			return r, a, place, false
		}
		defer func() {
			if !pass { // or Decide panicked
				h.inFlight.Leave(place)
			}
		}()
	}
	r, a, err := h.decide(r)
	switch {
	case errors.Is(err, errCanceled):
		unavailable(w, r, "The request was canceled while it waited for its turn.")
		return r, a, place, false
	case err != nil:
		return r, Answer{}, place, h.undecided(w, r, err)
	}
	retryAfter := h.Dialect.set(w.Header(), &a)
	if h.Degraded {
		internals{}.SetDegraded(w.Header(), a.By)
	}
	if h.Violations {
		internals{}.SetViolations(w.Header(), &a.Decision)
	}
	pass = !a.Blocked && (a.Allowed || a.Unlimited)
	if !pass {
		internals{}.SetID(w.Header(), a.ID)
	}
	h.CORS.set(w.Header(), internals{}.Origin(r), w.Header())
	if pass {
		return r, a, place, true
	}
	told := a // else a would be on the heap for every request
	if h.Refused != nil {
		h.Refused(w, r, &told)
	} else {
		told.Format = cmp.Or(a.Format, h.Refusals)
		refusal(&told, h.Dialect, retryAfter).write(w, r)
	}
	return r, a, place, false
}

// errCanceled is returned for a request whose context ended while it was delayed.
var errCanceled = errors.New("request canceled while delayed")

// decide calls Decide, and delays r by the answer's Delay. It may replace r.
func (h *handler) decide(r *http.Request) (_ *http.Request, a Answer, err error) {
	maxDelay, place := h.queue.enter(r)
	if maxDelay > 0 {
		defer h.queue.room.Leave(place)
	}
	if h.OnError == stint.OnErrorLocal {
		a, err = h.Decide(r, maxDelay)
	} else {
		ctx := r.Context()
		r = r.WithContext(stint.Internal(friend.Of{}).WithOnError(ctx, h.OnError))
		a, err = h.Decide(r, maxDelay)
		r = r.WithContext(ctx) // with the body and the form that Decide has set
	}
	if err != nil {
		return r, a, err
	}
	if a.Blocked || !a.Shape || !a.Allowed || a.Delay <= 0 {
		return r, a, nil
	}
	if a.wait(r.Context(), h.queue.waiting, maxDelay) != nil {
		a.refund(r.Context())
		return r, a, errCanceled
	}
	if !a.Allowed {
		a.refund(r.Context())
	}
	return r, a, nil
}

// undecided answers a request that was not decided, or returns that it passes.
func (h *handler) undecided(w http.ResponseWriter, r *http.Request, err error) (pass bool) {
	var refuser interface {
		error
		Refuse(http.ResponseWriter, *http.Request)
	}
	switch {
	case errors.As(err, &refuser):
		refuser.Refuse(w, r)
	case errors.Is(err, stint.ErrRequest):
		p := problem{Status: http.StatusBadRequest, Detail: "The request cannot be counted: the value that it is counted by is missing, too long, or sent more than once."}
		var detailed interface{ Detail() string }
		if errors.As(err, &detailed) {
			p.Detail = detailed.Detail()
		}
		p.write(w, r)
	case h.Undecided != nil && h.Undecided(r, err):
		h.CORS.set(w.Header(), internals{}.Origin(r), w.Header())
		return true
	default:
		unavailable(w, r, "The server cannot check the limits of this request right now.")
	}
	return false
}

func unavailable(w http.ResponseWriter, r *http.Request, detail string) {
	w.Header()["Retry-After"] = []string{"1"}
	p := problem{Status: http.StatusServiceUnavailable, Detail: detail, RetryAfter: 1}
	p.write(w, r)
}

// queue bounds the delayed requests, because each costs a goroutine and a connection. The
// leaky bucket has ordered their delays, and waiting keeps that order.
type queue struct {
	room    *room.Room
	waiting *places.Waiting
	client  func(*http.Request) netip.Addr
	longest time.Duration
}

// enter takes a place for r before it is decided, and returns how long r can be delayed. If
// that is negative, there is no place; otherwise the caller must leave the place.
func (q *queue) enter(r *http.Request) (time.Duration, room.Place) {
	longest := q.longest
	if deadline, ok := r.Context().Deadline(); ok {
		longest = min(longest, time.Until(deadline))
	}
	if longest <= 0 {
		return -1, room.Place{}
	}
	place, refused := q.room.Enter(r, q.client)
	if refused != room.None {
		return -1, room.Place{}
	}
	return longest, place
}
