package connectlimit

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"github.com/stintdev/stint/rpclimit"
)

// Client returns an interceptor that limits the calls of clients by c. Clients that get the same
// interceptor share its limits. It does nothing to the calls of handlers. rpclimit.Call.Target is the
// host of the client's URL, with its port if that is given.
//
// A stream waits for its turn when its request would be sent: at the first Send, or at CloseRequest. A
// stream ends when Receive returns an error, when the response is closed or when its context ends.
//
// It panics if c.Messages is held.
func Client(c rpclimit.Client) connect.Interceptor { return client{c.Pacer(retryDelay)} }

type client struct{ pacer *rpclimit.Pacer }

// WrapUnary limits unary calls.
func (c client) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (response connect.AnyResponse, err error) {
		if !request.Spec().IsClient {
			return next(ctx, request)
		}
		call := outgoing(request.Spec(), request.Peer(), request.Header())
		call.Message = request.Any()
		err = c.pacer.Unary(ctx, &call, func() (err error) {
			response, err = next(ctx, request)
			return err
		})
		if err != nil {
			return nil, errorOf(err)
		}
		return response, nil
	}
}

// WrapStreamingClient limits streams and the messages that they send.
func (c client) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec) // nothing is sent before the first Send
		return &clientConn{StreamingClientConn: conn, ctx: ctx, pacer: c.pacer, begun: make(chan struct{})}
	}
}

// WrapStreamingHandler does nothing.
func (c client) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func outgoing(spec connect.Spec, peer connect.Peer, header http.Header) rpclimit.Call {
	return rpclimit.Call{Method: spec.Procedure, Target: peer.Addr, Metadata: header.Values}
}

// clientConn is a stream that begins when its request would first be sent.
type clientConn struct {
	connect.StreamingClientConn
	ctx   context.Context
	pacer *rpclimit.Pacer

	once     sync.Once
	begun    chan struct{} // closed when the fields below are set
	outgoing *rpclimit.Outgoing
	stop     func() bool // the function that ends the stream with its context
	refused  error
}

// end ends a stream that has begun.
func (c *clientConn) end(err error) {
	c.stop()
	c.outgoing.End(err)
}

// begin waits until the stream may begin.
func (c *clientConn) begin() error {
	c.once.Do(func() {
		defer close(c.begun)
		call := outgoing(c.Spec(), c.Peer(), c.RequestHeader())
		o, refused := c.pacer.Begin(c.ctx, &call)
		if refused != nil {
			c.refused = errorOf(refused)
			return
		}
		c.outgoing = o
		c.stop = context.AfterFunc(c.ctx, func() { o.End(nil) })
	})
	return c.refused
}

// wait waits until the stream has begun. Otherwise a refused stream would wait for a response.
func (c *clientConn) wait() error {
	select {
	case <-c.begun:
		return c.refused
	case <-c.ctx.Done():
		err := c.ctx.Err()
		return connect.NewError(connect.Code(codeOf(err)), err)
	}
}

// Send waits until the stream may begin and the message may be sent.
func (c *clientConn) Send(m any) error {
	if err := c.begin(); err != nil {
		return err
	}
	if m != nil { // nil sends the headers alone
		if refused := c.outgoing.Send(m, c.Spec().StreamType&connect.StreamTypeClient != 0); refused != nil {
			return errorOf(refused)
		}
	}
	return c.StreamingClientConn.Send(m)
}

// CloseRequest waits until the stream may begin: it sends the headers.
func (c *clientConn) CloseRequest() error {
	if err := c.begin(); err != nil {
		return err
	}
	return c.StreamingClientConn.CloseRequest()
}

// Receive ends the stream if it returns an error.
func (c *clientConn) Receive(m any) error {
	if err := c.wait(); err != nil {
		return err
	}
	err := c.StreamingClientConn.Receive(m)
	if err != nil {
		c.end(err)
	}
	return err
}

// ResponseHeader is empty if the stream was refused.
func (c *clientConn) ResponseHeader() http.Header {
	if c.wait() != nil {
		return make(http.Header)
	}
	return c.StreamingClientConn.ResponseHeader()
}

// ResponseTrailer is empty if the stream was refused.
func (c *clientConn) ResponseTrailer() http.Header {
	if c.wait() != nil {
		return make(http.Header)
	}
	return c.StreamingClientConn.ResponseTrailer()
}

// CloseResponse ends the stream.
func (c *clientConn) CloseResponse() error {
	c.once.Do(func() { // it never began
		c.refused = connect.NewError(connect.CodeCanceled, errClosed)
		close(c.begun)
	})
	if c.refused != nil {
		return nil
	}
	defer c.end(nil)
	return c.StreamingClientConn.CloseResponse()
}

var errClosed = errors.New("the response was closed before the request was sent")
