package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/stintdev/stint/rpclimit"
)

// DialOptions returns options for a grpc.ClientConn whose calls are limited by c. ClientConns that get
// the same options share its limits.
//
// A call that is made again by the retry policy of a service config counts once.
//
// It panics if c.Messages is held.
func DialOptions(c rpclimit.Client) []grpc.DialOption {
	unary, stream := ClientInterceptors(c)
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(stream)}
}

// ClientInterceptors returns the interceptors of DialOptions, to chain them in other ways.
func ClientInterceptors(c rpclimit.Client) (grpc.UnaryClientInterceptor, grpc.StreamClientInterceptor) {
	i := clientInterceptor{c.Pacer(retryDelay)}
	return i.unary, i.stream
}

type clientInterceptor struct{ pacer *rpclimit.Pacer }

func (i clientInterceptor) unary(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c := outgoing(ctx, cc, method)
	c.Message = request
	return statusOf(i.pacer.Unary(ctx, &c, func() error {
		return invoke(ctx, method, request, reply, cc, opts...)
	}))
}

func (i clientInterceptor) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c := outgoing(ctx, cc, method)
	o, refused := i.pacer.Begin(ctx, &c)
	if refused != nil {
		return nil, &statusError{Refusal: refused}
	}
	// OnFinish is called however a stream ends, also by its context or if the ClientConn is closed. It
	// may not be called if an interceptor within refuses the stream.
	opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(err error) { o.End(err) }))
	s, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		o.End(err)
		return nil, err
	}
	return &clientStream{s, o, desc.ClientStreams}, nil
}

// outgoing returns a call of cc.
func outgoing(ctx context.Context, cc *grpc.ClientConn, method string) rpclimit.Call {
	return rpclimit.Call{Method: method, Target: cc.Target(), Metadata: func(name string) []string {
		md, _ := metadata.FromOutgoingContext(ctx)
		return md.Get(name)
	}}
}

// clientStream limits the messages that a stream sends.
type clientStream struct {
	grpc.ClientStream
	outgoing *rpclimit.Outgoing
	several  bool
}

// SendMsg waits until a message may be sent.
func (s *clientStream) SendMsg(m any) error {
	if refused := s.outgoing.Send(m, s.several); refused != nil {
		return &statusError{Refusal: refused}
	}
	return s.ClientStream.SendMsg(m)
}
