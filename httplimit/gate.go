package httplimit

import (
	"net/http"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/room"
)

// Gate decides the requests of a Middleware, for frameworks whose handlers are not http.Handlers.
// An adapter that converts a Middleware instead may miss the end and the status of a request, and
// so not settle holds and not count for Watch. A Gate may be used from many goroutines at once.
//
//	running, refused := gate.Begin(request)
//	if refused != nil {
//		// answer with refused.Status, refused.Header and refused.Body
//	}
//	defer running.End(func() int { return status }) // of the response, also after a panic
//	// set running.Header, and call the handler with running.Request
type Gate struct {
	handler *handler
	clients *Clients
}

// Gate returns the Gate of m. Each has its own MaxDelayed and MaxInFlight. It panics if m.Dialect combines
// dialects that exclude each other, or if m.CORS cannot work.
func (m Middleware) Gate() *Gate { return &Gate{m.handler(), m.Clients} }

// Begin decides a request. The Running is nil if the request is refused, or if it is a preflight that
// Middleware.CORS answers; otherwise call Running.End. r needs the fields that the Middleware's
// Decide and Clients read: at least Method, URL, Header, Host and RemoteAddr. If its body was read,
// Running.Request has it from the beginning.
func (g *Gate) Begin(r *http.Request) (*Running, *Refusal) {
	w := &recorded{header: http.Header{}}
	if g.handler.CORS != nil && (internals{}).IsPreflight(r) {
		g.handler.preflight(w, r)
		return nil, &Refusal{Status: w.status, Header: w.header}
	}
	r, a, place, pass := g.handler.begin(w, r)
	if !pass {
		return nil, &Refusal{Status: w.status, Header: w.header, Body: w.body}
	}
	running := &Running{Header: w.header, Request: r, gate: g, place: place, watched: watch(&recorded{header: http.Header{}}, r, &a)}
	if g.clients != nil {
		running.Request = r.WithContext(stint.WithClient(r.Context(), g.clients.Key(r)))
	}
	return running, nil
}

// Refusal is the response to a request that does not pass, or to a preflight. Write it
// unchanged: Status, all of Header, and Body, which may be empty.
type Refusal struct {
	Status int
	Header http.Header
	Body   []byte
}

// Running is a request that has passed.
type Running struct {
	// Header has the headers about limits. Set them on the response before the handler runs.
	Header http.Header
	// Request is the request for the handler, whose context may name the client; see
	// Middleware.Clients.
	Request *http.Request

	gate    *Gate
	place   room.Place
	watched *watchedWriter
	ended   bool
}

// Write records that p of the response's body was written, for Response.Bytes and Response.JSON. It
// never fails. Call Begun before, if JSON is to read the body.
func (r *Running) Write(p []byte) (int, error) {
	r.watched.passed(p)
	return len(p), nil
}

// Begun records the status and headers of the response; header may be nil. Only the first final
// status counts.
func (r *Running) Begun(status int, header http.Header) {
	for name, lines := range header {
		r.watched.Header()[name] = lines
	}
	r.watched.final(status)
}

// End ends the request: it settles holds and frees the place. status returns the status of the
// response, and is called if Begun was not. Only the first call of End has an effect. Defer it, so that
// it is called when the handler panics, too: then status may return 0 for no response.
func (r *Running) End(status func() int) {
	if r.ended {
		return
	}
	r.ended = true
	if r.watched.response.Status == 0 {
		if n := status(); n != 0 {
			r.watched.final(n)
		}
	}
	r.watched.leave()
	if r.gate.handler.inFlight != nil {
		r.gate.handler.inFlight.Leave(r.place)
	}
}

// recorded is a response kept in memory.
type recorded struct {
	status int
	header http.Header
	body   []byte
}

func (w *recorded) Header() http.Header { return w.header }

func (w *recorded) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorded) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, p...)
	return len(p), nil
}
