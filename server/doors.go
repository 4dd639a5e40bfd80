package server

import (
	"net/http"

	"github.com/stintdev/stint/server/internal/door"
)

// Gateway returns the handler that limits requests and passes them on to the upstreams of the routes. A
// request that matches no route counts, too, and gets 404. gRPC clients are refused with a gRPC status; see
// httplimit.GRPC.
func (s *Server) Gateway() http.Handler { return s.gateway.Handler() }

// Wrap returns next behind the rules. It does everything that the gateway does, except for upstreams: it
// answers refused requests itself, delays requests of rules that shape, writes the headers about limits,
// counts a violation when next writes a status of on_status, and counts requests in flight for
// Settings.Instance.
//
// request.route is the http.ServeMux pattern that the request matches, such as "POST /login" or "GET
// /users/{id}": of next if that is a mux, else of the mux that called this handler. So you can wrap a whole
// mux or single handlers.
//
// An h2c handler must be around this one, not inside: requests in a connection that it takes over would not
// pass through here.
//
// Changes made at run time, and files that change, take effect while Server.Follow runs: Load
// calls it, New does not. For the rules file itself, use rules.Watcher and Server.SetRules.
func (s *Server) Wrap(next http.Handler) http.Handler { return s.gateway.Wrap(next) }

// Asked is a request that a proxy asks about by another protocol than HTTP, such as gRPC. Call and Original must
// be given. It has:
//
//   - Call: the proxy's own call: its context (with http.LocalAddrContextKey), RemoteAddr and TLS, and in
//     Header Stint-Token and Traceparent. Nothing else of it is read.
//   - Original: the client's request as the proxy received it: Method, RequestURI, Host and Header, and as
//     RemoteAddr the address of the connection on which it came to the proxy. Its client is found as at the
//     gateway.
//   - Attrs: rules.Input.Attrs
//   - Passes, which is set if the request may pass, and Verdict, if rules have decided it
type Asked = door.Asked

// Authorizer returns a function that decides like /v1/authorize: with the same callers, bounds,
// rules and answers. It sets Passes and Verdict, and writes the answer: the headers for the client if the
// request may pass, else the gateway's refusal. gRPC clients are refused as httplimit.GRPC does. An error
// says why the caller may not ask; nothing was decided.
//
// The function may be used from many goroutines at once.
func (s *Server) Authorizer() func(http.ResponseWriter, *Asked) error { return s.gateway.Authorizer() }
