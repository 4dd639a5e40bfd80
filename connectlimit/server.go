package connectlimit

import (
	"context"
	"errors"
	"net/http"
	"net/netip"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/stintdev/stint/rpclimit"
)

// Server returns an interceptor that limits the calls of handlers by s. Handlers that get the same
// interceptor share its limits. It does nothing to the calls of clients. connect calls interceptors in
// their order: put those that authenticate the caller, and those that recover from panics, before this
// one. A message that s refuses ends its stream, even if the handler or an interceptor within returns
// no error.
//
// It panics if s.Dialect combines dialects that exclude each other.
func Server(s rpclimit.Server) connect.Interceptor { return server{s.Gate()} }

type server struct{ gate *rpclimit.Gate }

// WrapUnary limits unary calls.
func (s server) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (response connect.AnyResponse, err error) {
		if request.Spec().IsClient {
			return next(ctx, request)
		}
		c := incoming(request.Spec(), request.Peer(), request.Header())
		c.Message = request.Any()
		running, refused := s.gate.Begin(ctx, &c)
		if refused != nil {
			return nil, errorOf(refused)
		}
		if info, ok := connect.CallInfoForHandlerContext(ctx); ok && running.Header != nil {
			set(info.ResponseHeader(), running.Header)
		}
		err = running.Run(codeOf, func() (err error) {
			response, err = next(running.Context, request)
			if err == nil {
				running.Answered(response.Any())
			}
			return err
		})
		return response, errorOf(err)
	}
}

// WrapStreamingClient does nothing.
func (s server) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler limits streams and their messages.
func (s server) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		c := incoming(conn.Spec(), conn.Peer(), conn.RequestHeader())
		running, refused := s.gate.Begin(ctx, &c)
		if refused != nil {
			return errorOf(refused)
		}
		set(conn.ResponseHeader(), running.Header)
		return errorOf(running.Run(codeOf, func() error {
			return next(running.Context, &handlerConn{conn, running})
		}))
	}
}

// set copies the headers from into to.
func set(to, from http.Header) {
	for name, values := range from {
		to[name] = values
	}
}

// incoming returns the call of a handler.
func incoming(spec connect.Spec, peer connect.Peer, header http.Header) rpclimit.Call {
	c := rpclimit.Call{Method: spec.Procedure, Metadata: header.Values}
	if p, err := netip.ParseAddrPort(peer.Addr); err == nil {
		c.Peer = p.Addr().Unmap()
	}
	return c
}

// codeOf returns the code that a client gets for an error of a handler.
func codeOf(err error) code.Code {
	var e *connect.Error
	switch {
	case errors.As(err, &e):
		return code.Code(e.Code())
	case errors.Is(err, context.Canceled):
		return code.Code_CANCELLED
	case errors.Is(err, context.DeadlineExceeded):
		return code.Code_DEADLINE_EXCEEDED
	}
	return code.Code_UNKNOWN
}

// handlerConn decides the messages of a stream.
type handlerConn struct {
	connect.StreamingHandlerConn
	running *rpclimit.Running
}

// Receive receives a message, and waits until it may pass.
func (c *handlerConn) Receive(m any) error {
	if err := c.StreamingHandlerConn.Receive(m); err != nil {
		return err
	}
	return refusalOf(c.running.Received(m, c.Spec().StreamType&connect.StreamTypeClient != 0))
}

// Send waits until a message may pass, and sends it.
func (c *handlerConn) Send(m any) error {
	if refused := c.running.Sending(m, c.Spec().StreamType&connect.StreamTypeServer != 0); refused != nil {
		return errorOf(refused)
	}
	if err := c.StreamingHandlerConn.Send(m); err != nil {
		return err
	}
	c.running.Sent(m)
	return nil
}
