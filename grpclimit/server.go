package grpclimit

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint/rpclimit"
)

// ServerOptions returns options for a grpc.Server whose calls are limited by s. The interceptors run
// in the order of the options: put those that authenticate the caller, and those that recover from
// panics, before these. A message that s refuses ends its stream, even if the handler or an
// interceptor within returns no error.
//
// It panics if s.Dialect combines dialects that exclude each other.
func ServerOptions(s rpclimit.Server) []grpc.ServerOption {
	unary, stream := Interceptors(s)
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(unary), grpc.ChainStreamInterceptor(stream)}
}

// Interceptors returns the interceptors of ServerOptions, to chain them in other ways. They share the
// MaxDelayed and MaxInFlight of s.
func Interceptors(s rpclimit.Server) (grpc.UnaryServerInterceptor, grpc.StreamServerInterceptor) {
	i := interceptor{s.Gate()}
	return i.unary, i.stream
}

type interceptor struct{ gate *rpclimit.Gate }

func (i interceptor) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	c := incoming(ctx, info.FullMethod)
	c.Message = request
	running, refused := i.gate.Begin(ctx, &c)
	if refused != nil {
		_ = grpc.SetTrailer(ctx, lower(refused.Trailer)) // fails only if the call is over
		return nil, statusOf(refused)
	}
	err = running.Run(codeOf, func() (err error) {
		if running.Header != nil {
			_ = grpc.SetHeader(ctx, lower(running.Header))
		}
		response, err = handler(running.Context, request)
		if err == nil {
			running.Answered(response)
		}
		return err
	})
	return response, statusOf(err)
}

func (i interceptor) stream(server any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := ss.Context()
	c := incoming(ctx, info.FullMethod)
	running, refused := i.gate.Begin(ctx, &c)
	if refused != nil {
		ss.SetTrailer(lower(refused.Trailer))
		return &statusError{refused, true}
	}
	err := running.Run(codeOf, func() error {
		if running.Header != nil {
			_ = ss.SetHeader(lower(running.Header))
		}
		return handler(server, &serverStream{ss, running, info})
	})
	if refused, ok := err.(*rpclimit.Refusal); ok { // of a message
		ss.SetTrailer(lower(refused.Trailer))
		return &statusError{refused, true}
	}
	return err
}

// incoming returns the call of a context.
func incoming(ctx context.Context, method string) rpclimit.Call {
	c := rpclimit.Call{Method: method, Metadata: func(name string) []string {
		return metadata.ValueFromIncomingContext(ctx, strings.ToLower(name))
	}}
	if p, ok := peer.FromContext(ctx); ok {
		c.Peer = address(p.Addr)
	}
	return c
}

// address returns the IP address of a; zero: it has none.
func address(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	if a == nil {
		return netip.Addr{}
	}
	p, err := netip.ParseAddrPort(a.String()) // for example of a ServeHTTP transport
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr().Unmap()
}

// lower returns the headers h as metadata.
func lower(h http.Header) metadata.MD {
	md := make(metadata.MD, len(h))
	for name, values := range h {
		md[strings.ToLower(name)] = values
	}
	return md
}

// codeOf returns the code of the status that a client gets for an error of a handler.
func codeOf(err error) code.Code {
	if s, ok := status.FromError(err); ok {
		return code.Code(s.Code())
	}
	return code.Code(status.FromContextError(err).Code())
}

// serverStream decides the messages of a stream.
type serverStream struct {
	grpc.ServerStream
	running *rpclimit.Running
	info    *grpc.StreamServerInfo
}

// Context returns the context for the handler.
func (s *serverStream) Context() context.Context { return s.running.Context }

// RecvMsg receives a message, and waits until it may pass.
func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if refused := s.running.Received(m, s.info.IsClientStream); refused != nil {
		return &statusError{refused, true}
	}
	return nil
}

// SendMsg waits until a message may pass, and sends it.
func (s *serverStream) SendMsg(m any) error {
	if refused := s.running.Sending(m, s.info.IsServerStream); refused != nil {
		return &statusError{refused, true}
	}
	if err := s.ServerStream.SendMsg(m); err != nil {
		return err
	}
	s.running.Sent(m)
	return nil
}
