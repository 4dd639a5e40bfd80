package httplimit

import (
	"net/http"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/room"
)

// Gate decides the requests of a Middleware, for frameworks whose handlers are no http.Handler. An
// adapter that converts a Middleware instead may lose the end and the status of a request, and with
// them what it holds and what Watch counts. It may be used from many goroutines at once.
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
// Middleware.CORS answers; otherwise call Running.End. r
// needs what the Decide and the Clients of the Middleware read: at least Method, URL, Header, Host
// and RemoteAddr. If its body is read, Running.Request has one that begins anew.
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

// Refusal is the response to a request that does not pass, or to a preflight. It is written
// as it is: Status, all of Header, and Body, which may be empty.
type Refusal struct {
	Status int
	Header http.Header
	Body   []byte
}

// Running is a request that has passed.
type Running struct {
	// Header has what tells the client of its limits. Set it on the response before the handler
	// runs.
	Header http.Header
	// Request is the request for the handler, whose context may name the client; see
	// Middleware.Clients.
	Request *http.Request

	gate    *Gate
	place   room.Place
	watched *watchedWriter
	ended   bool
}

// Write tells that p was written of the response's body, for Response.Bytes and Response.JSON. It never
// fails. Call Begun before, if JSON is to read the body.
func (r *Running) Write(p []byte) (int, error) {
	r.watched.passed(p)
	return len(p), nil
}

// Begun tells that the response has a status and headers now; header may be nil. Only the first final
// status counts.
func (r *Running) Begun(status int, header http.Header) {
	for name, lines := range header {
		r.watched.Header()[name] = lines
	}
	r.watched.final(status)
}

// End ends the request: what it holds is settled, and its place is free. status returns the response's,
// and is called if Begun was not. Only the first call of End does something. Defer it, so that it
// is called when the handler panics, too: then status may return 0 for a response that there was
// not.
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

// recorded is a response that is kept.
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
