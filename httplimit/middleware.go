package httplimit

import (
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/room"
)

// Middleware puts limits before a handler. What passes reaches the handler with
// the ResponseWriter as it came, so that streaming, hijacking and everything else
// work as without it (but see Answer.OnStatus). What is refused never reaches the handler and is answered
// with problem details (RFC 9457, application/problem+json):
//   - 429, a limit or a ban refused; with Retry-After, unless no wait would help
//   - 403, Answer.Blocked
//   - 400, the request cannot be counted: an error that wraps stint.ErrRequest;
//     its method Detail() string, if it has one, is a sentence for the client
//   - 503 with Retry-After, nothing could be decided, or there is no room; see
//     MaxInFlight and Overloaded
//
// The members beside the standard ones are outcome ("limited", "warned",
// "banned", "blocked" or "overloaded"; all of them are refusals, warned ones too),
// limit_name, limit (its text), retry_after (seconds), and of a refusal that counts as a
// violation violations, warn_after and ban_after; each is left out where it does not
// apply. Such answers are marked Cache-Control: no-store. Clients of gRPC do not
// understand them: see GRPC.
//
// The headers of a Dialect are set before the handler runs and are its to
// change: a httputil.ReverseProxy adds what the upstream says under the same
// names, and clears them all if the upstream sends an interim (1xx) response;
// its ModifyResponse can put that right. Where one Middleware wraps another,
// those of the inner one stay. Headers of a request that was held are as of when
// it was decided about.
//
// The zero Middleware limits each client address to stint.DefaultLimit, in memory.
type Middleware struct {
	// Decide says what may pass. nil: By, with stint.DefaultLimit, in memory, for each
	// address that Clients finds.
	Decide Decide
	// Clients finds the clients' addresses for the Decide above, and puts them into the
	// contexts of requests (stint.WithClient), for a stint.Guard within. nil: of
	// connections, for that Decide, and none is put into a context.
	Clients *Clients
	// Dialect says which headers tell the client how it stands. 0: XRateLimit.
	Dialect Dialect
	// OnError is told what kept Decide from deciding, and says whether to let
	// the request pass; then it passes without headers. It is not told of
	// errors that wrap stint.ErrRequest, which are the client's own, nor of
	// Overloaded. nil: no request passes undecided.
	OnError func(r *http.Request, err error) (pass bool)
	// MaxHeld is how many requests may be held at once, those that are being decided
	// about among them; see Answer.Hold. One that finds no room is refused if it would
	// have to wait. One client cannot have all places; see MaxInFlight. 0: 1000.
	// Negative: none are held.
	MaxHeld int
	// MaxHold is the longest time to hold a request; one that would wait longer
	// is refused at once and takes no place in the queue, and so is one whose context
	// ends sooner. 0: 10 seconds. Negative: none are held.
	MaxHold time.Duration
	// MaxInFlight is how many requests may be under way at once behind this
	// Middleware, those that are held among them: from their arrival until the
	// handler returns. One more is refused before anything else, with 503 and
	// Retry-After: Decide is not asked and the body not read. One client cannot have all
	// places: anybody may take one while no more than half are taken; of the other half,
	// a client may take one more while it holds fewer of them than are free. So one
	// alone gets three quarters. 0: no cap.
	MaxInFlight int
	// Client finds the address of the client among whose requests one counts in
	// MaxInFlight and MaxHeld. IPv6 addresses of one network of 64 bits are one client,
	// and so are all requests without an address. It is asked only while more than half
	// of the places are taken. nil: Clients.Addr.
	Client func(*http.Request) netip.Addr
	// Degraded tells clients who decided where the Store that counts for all did
	// not: the header Stint-Degraded, local or policy.
	Degraded bool
	// Violations tells clients that are refused how many violations count, in the header
	// Stint-Violations; see SetViolations.
	Violations bool
}

const (
	defaultMaxHeld = 1000
	defaultMaxHold = 10 * time.Second
)

// Wrap is next behind the limits. Each call makes room of its own for requests
// to be held in. m is read when Wrap is called. It panics if dialects
// are combined that do not go together.
//
// A handler of h2c must be around this one, and not within: it takes a connection over,
// and the requests in it would not come by here.
//
// A request that is held sees its client leave, and refunds what it took but its
// place in the queue, only where net/http sees that: with HTTP/1, once the request's
// body has been read or if it has none.
func (m Middleware) Wrap(next http.Handler) http.Handler {
	var clients Clients
	if m.Clients != nil {
		clients = *m.Clients
		next = clients.tell(next)
	}
	if m.Decide == nil {
		m.Decide = By(nil, nil, clients.Key)
	}
	if err := m.Dialect.check(); err != nil {
		panic("httplimit: " + err.Error())
	}
	if m.Client == nil {
		m.Client = clients.Addr
	}
	switch {
	case m.MaxHeld == 0:
		m.MaxHeld = defaultMaxHeld
	case m.MaxHeld < 0:
		m.MaxHold = -1
	}
	if m.MaxHold == 0 {
		m.MaxHold = defaultMaxHold
	}
	h := &handler{Middleware: m, next: next}
	h.queue = queue{room.Of(int64(m.MaxHeld)), m.Client, max(0, m.MaxHold)}
	if m.MaxInFlight > 0 {
		h.underWay = room.Of(int64(m.MaxInFlight))
	}
	return h
}

type handler struct {
	Middleware
	next     http.Handler
	queue    queue
	underWay *room.Room // nil: there is no cap
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.underWay != nil {
		place, refused := h.underWay.Enter(r, h.Client)
		if refused != room.None {
			(&Overloaded{RetryAfter: time.Second}).Refuse(w, r)
			return
		}
		defer h.underWay.Leave(place)
	}
	a, err := h.decide(r)
	switch {
	case errors.Is(err, errGivenUp):
		unavailable(w, r, "The request was given up while it was held.")
		return
	case err != nil:
		h.undecided(w, r, err)
		return
	}
	pass := !a.Blocked && (a.Allowed || a.Unlimited)
	retryAfter := h.Dialect.set(w.Header(), &a)
	if h.Degraded {
		SetDegraded(w.Header(), a.By)
	}
	if h.Violations {
		SetViolations(w.Header(), &a.Decision)
	}
	if !pass {
		refusal(&a, h.Dialect, retryAfter).write(w, r)
		return
	}
	if a.OnStatus != nil {
		watched := &statusWriter{ResponseWriter: w, ctx: r.Context(), tell: a.OnStatus}
		h.next.ServeHTTP(watched, r)
		watched.final(http.StatusOK) // which net/http writes now
		return
	}
	h.next.ServeHTTP(w, r)
}

var errGivenUp = errors.New("the request was given up while it was held")

// decide asks Decide about r, and holds r if that is what it takes.
func (h *handler) decide(r *http.Request) (Answer, error) {
	hold, place := h.queue.enter(r)
	if hold > 0 {
		defer h.queue.room.Leave(place)
	}
	a, err := h.Decide(r, hold)
	if err != nil {
		return a, err
	}
	if a.Blocked || !a.Hold || !a.Allowed || a.Delay <= 0 {
		return a, nil
	}
	if a.wait(r.Context(), hold) != nil {
		a.refund(r.Context())
		return a, errGivenUp
	}
	if !a.Allowed {
		a.refund(r.Context())
	}
	return a, nil
}

func (h *handler) undecided(w http.ResponseWriter, r *http.Request, err error) {
	var overloaded *Overloaded
	switch {
	case errors.As(err, &overloaded):
		overloaded.Refuse(w, r)
	case errors.Is(err, stint.ErrRequest):
		p := problem{Status: http.StatusBadRequest, Detail: "The request cannot be counted: what it is counted by is missing, too long, or there several times."}
		var told interface{ Detail() string }
		if errors.As(err, &told) {
			p.Detail = told.Detail()
		}
		p.write(w, r)
	case h.OnError != nil && h.OnError(r, err):
		h.next.ServeHTTP(w, r)
	default:
		unavailable(w, r, "It cannot be decided at present whether the request is within its limits.")
	}
}

func unavailable(w http.ResponseWriter, r *http.Request, detail string) {
	w.Header()["Retry-After"] = []string{"1"}
	p := problem{Status: http.StatusServiceUnavailable, Detail: detail, RetryAfter: 1}
	p.write(w, r)
}

// queue is where allowed requests wait until they may leave. It keeps no order:
// their delays, which the leaky bucket gave out, already do. It is bounded
// because what is held costs a goroutine and a connection each.
type queue struct {
	room    *room.Room
	client  func(*http.Request) netip.Addr
	longest time.Duration
}

// enter takes a place for a request that is yet to be decided about, and tells how long
// it can be held: negative, and no place, if it cannot. A place is to be left.
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
