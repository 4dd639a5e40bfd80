package rpclimit

import (
	"context"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/places"
	"github.com/stintdev/stint/internal/room"
)

// Server limits the calls that a server gets. Calls that pass have the metadata of a Dialect in the
// header of the response. Others end before the handler is called, with that metadata in the
// trailer and with one of these codes:
//   - RESOURCE_EXHAUSTED, a limit or a ban refused; with google.rpc.RetryInfo, unless no wait would
//     help, and google.rpc.QuotaFailure
//   - PERMISSION_DENIED, Answer.Blocked
//   - INVALID_ARGUMENT, the call cannot be counted: an error that wraps stint.ErrRequest. If it has
//     a method Detail() string, that returns a sentence for the client
//   - UNAVAILABLE with RetryInfo, nothing could be decided, or there is no room; see MaxInFlight and
//     httplimit.Overloaded
//   - CANCELLED or DEADLINE_EXCEEDED, the call's context ended while the call was delayed
//   - that of a *Refusal that Decide returned as its error
//
// RetryInfo has the wait in milliseconds, rounded up. grpc-retry-pushback-ms in the trailer has it,
// too: clients with a retry policy obey it, and do not retry if no wait would help.
//
// A call holds its units until the handler returns or panics. A handler that obeys its context or
// uses its stream returns when its client cancels, when its deadline passes or when the connection
// breaks. Only the server's keepalive notices a client that vanishes without closing its connection.
//
// The zero Server limits each client address to 100 per 1m, in memory.
type Server struct {
	// Decide decides which calls pass: unary ones by their request, and streams when they begin.
	// nil: By, with 100 per 1m, in memory, for each address that Clients finds.
	Decide Decide
	// Received decides each message that a client sends on a stream of several messages, when
	// the handler receives it. Sent decides each message that the handler sends on such a
	// stream. A single message in the other direction does not count. A refused message ends
	// the stream like a refused call, whatever the handler returns. nil: messages are not
	// limited.
	Received, Sent Decide
	// MessageWait is how long a refused message may wait in all for its turn. Meanwhile the
	// stream moves no message in that direction, so flow control slows down a client that
	// sends too fast. A message that would wait longer, or longer than the call's deadline
	// allows, is refused at once. A Decide that shapes delays messages up to MessageWait, too.
	// 0: messages do not wait.
	MessageWait time.Duration
	// Clients finds the clients' addresses for the default Decide, for MaxInFlight and
	// MaxDelayed, and puts them into the contexts of calls (stint.WithClient) for a stint.Guard
	// in the handler. nil: the addresses of connections are used, and contexts get none.
	Clients *httplimit.Clients
	// Dialect selects the metadata of limits, under the header names in lower case. 0:
	// httplimit.XRateLimit. With httplimit.NoHeaders, refusals have no QuotaFailure.
	Dialect httplimit.Dialect
	// OnError says how to decide when the Store does not, for asks that a Decide makes with its
	// context and without their own OnError. The zero OnError is that of the Limiter, else
	// stint.OnErrorLocal; stint.OnErrorAllow lets calls and messages pass, and stint.OnErrorDeny ends
	// them with UNAVAILABLE. docs/reliability.md has a table of which one wins.
	OnError stint.OnError
	// Undecided is called if a Decide still returns an error, and returns whether the call or message
	// passes, without metadata. It is not called for errors that wrap stint.ErrRequest, *Refusal or
	// *httplimit.Overloaded. nil: nothing undecided passes.
	Undecided func(ctx context.Context, c *Call, err error) (pass bool)
	// MaxDelayed is how many calls may be delayed at once; see Answer.Shape. A call without a
	// place is refused if it would have to wait. One client cannot take all places; see
	// MaxInFlight. 0: 1000. Negative: none are delayed.
	MaxDelayed int
	// MaxDelay is the longest time to delay a call. A call that would wait longer, or past its
	// deadline, is refused at once. 0: 10 seconds. Negative: none are delayed.
	MaxDelay time.Duration
	// MaxInFlight is how many calls may be in flight at once, from their arrival until the
	// handler returns. One more is refused with UNAVAILABLE. Any client may take a place while no
	// more than half are taken. Of the other half, a client may take one more while it has fewer
	// of them than are free. 0: no cap.
	MaxInFlight int
	// Degraded sends the metadata stint-degraded, local or policy, if the shared Store did not
	// decide; see httplimit.SetDegraded.
	Degraded bool
	// Violations sends the metadata stint-violations with refusals; see httplimit.SetViolations.
	Violations bool
}

const (
	defaultMaxDelayed = 1000
	defaultMaxDelay   = 10 * time.Second
)

// Gate returns the Gate of s, for interceptors. Each Gate has its own MaxDelayed and MaxInFlight. It
// panics if s.Dialect combines dialects that exclude each other.
func (s Server) Gate() *Gate {
	if err := s.Dialect.Check(); err != nil {
		panic("rpclimit: " + err.Error())
	}
	g := &Gate{server: s}
	if s.Clients != nil {
		g.clients = *s.Clients
	}
	g.client = ClientKey(g.clients)
	if g.server.Decide == nil {
		g.server.Decide = By(nil, nil, g.client)
	}
	switch {
	case s.MaxDelayed == 0:
		g.server.MaxDelayed = defaultMaxDelayed
	case s.MaxDelayed < 0:
		g.server.MaxDelay = -1
	}
	if g.server.MaxDelay == 0 {
		g.server.MaxDelay = defaultMaxDelay
	}
	g.delayed = room.Of(int64(max(1, g.server.MaxDelayed)))
	g.waiting = places.Of(max(1, g.server.MaxDelayed))
	if s.MaxInFlight > 0 {
		g.inFlight = room.Of(int64(s.MaxInFlight))
	}
	return g
}

// Gate decides the calls of a Server. It is for authors of interceptors: each call goes
// through Begin. It may be used from many goroutines at once.
type Gate struct {
	server            Server
	clients           httplimit.Clients
	client            Key
	delayed, inFlight *room.Room // inFlight is nil without a cap
	waiting           *places.Waiting
}

// Begin decides a call. The Running is nil if the call is refused. Otherwise call Running.Run.
func (g *Gate) Begin(ctx context.Context, c *Call) (running *Running, refused *Refusal) {
	r := &Running{Context: ctx, gate: g, call: *c}
	if g.server.Clients != nil {
		r.Context = stint.WithClient(ctx, g.client(ctx, c))
	}
	if g.inFlight != nil {
		place, no := g.inFlight.Enter(nil, g.addr(c))
		if no != room.None {
			return nil, overloaded(0)
		}
		r.place = place
		defer func() {
			if running == nil { // refused, or Decide panicked
				g.inFlight.Leave(place)
			}
		}()
	}
	if refused := g.decide(r); refused != nil {
		return nil, refused
	}
	if r.onEnd != nil {
		r.start = time.Now()
	}
	return r, nil
}

// asking returns ctx with OnError, for a Decide.
func (g *Gate) asking(ctx context.Context) context.Context {
	return stint.Internal(friend.Of{}).WithOnError(ctx, g.server.OnError)
}

// addr returns a function for package room that returns the client's address.
func (g *Gate) addr(c *Call) func(*http.Request) netip.Addr {
	return func(*http.Request) netip.Addr { return address(g.clients, c) }
}

func (g *Gate) decide(r *Running) *Refusal {
	longest, place := g.enter(r.Context, &r.call)
	if longest > 0 {
		defer g.delayed.Leave(place)
	}
	a, err := g.server.Decide(g.asking(r.Context), &r.call, longest)
	if err != nil {
		return g.undecided(r.Context, &r.call, err)
	}
	if err := a.delay(r.Context, g.waiting, longest); err != nil {
		return ended(err)
	}
	if !a.pass() {
		return g.refusal(&a)
	}
	if !a.Unlimited {
		r.Header = g.metadata(&a)
	}
	r.onEnd = a.OnEnd
	return nil
}

// enter takes a place for a call before it is decided, and returns how long it can be delayed. If
// that is negative, there is no place; otherwise the caller must leave the place.
func (g *Gate) enter(ctx context.Context, c *Call) (time.Duration, room.Place) {
	longest := untilDeadline(ctx, g.server.MaxDelay)
	if longest <= 0 {
		return -1, room.Place{}
	}
	place, refused := g.delayed.Enter(nil, g.addr(c))
	if refused != room.None {
		return -1, room.Place{}
	}
	return longest, place
}

// untilDeadline returns d, or how long the context still lasts if that is less.
func untilDeadline(ctx context.Context, d time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(d, time.Until(deadline))
	}
	return d
}

// Running is a call that has passed. Received and Sent may be called concurrently with each other,
// but each by one goroutine at a time.
type Running struct {
	// Context is for the handler.
	Context context.Context
	// Header is the metadata for the header of the response, under header names. nil: none.
	Header http.Header

	gate           *Gate
	call           Call
	place          room.Place
	onEnd          func(context.Context, *End)
	start          time.Time
	received, sent atomic.Int64
	last           any
	refused        atomic.Pointer[Refusal]
}

// Run calls the handler and returns its error, or the Refusal of a message. codeOf returns the
// code of an error that is not nil. When the handler has returned or panicked, the call ends.
// For a unary call, the handler should call Running.Answered with its response.
func (r *Running) Run(codeOf func(error) code.Code, handler func() error) (err error) {
	if r.onEnd == nil && r.gate.inFlight == nil {
		return r.fate(handler())
	}
	e := End{Panicked: true}
	defer func() { r.end(&e, err, codeOf) }()
	err = r.fate(handler())
	e.Panicked = false
	return err
}

// fate returns the client's error if the handler has returned err.
func (r *Running) fate(err error) error {
	if refused := r.refused.Load(); refused != nil {
		return refused
	}
	return err
}

func (r *Running) end(e *End, err error, codeOf func(error) code.Code) {
	defer r.leave()
	if r.onEnd == nil {
		return
	}
	e.Err, e.Last = err, r.last
	e.Received, e.Sent, e.Took = r.received.Load(), r.sent.Load(), time.Since(r.start)
	switch refused, ok := err.(*Refusal); {
	case e.Panicked:
		e.Code = code.Code_UNKNOWN
	case ok:
		e.Code = refused.Code
	case err != nil:
		e.Code = codeOf(err)
	}
	outlive(r.Context, func(ctx context.Context) { r.onEnd(ctx, e) })
}

func (r *Running) leave() {
	if r.gate.inFlight != nil {
		r.gate.inFlight.Leave(r.place)
	}
}

// Answered notes the request and response of a unary call.
func (r *Running) Answered(response any) {
	r.received.Store(1)
	r.sent.Store(1)
	r.last = response
}
