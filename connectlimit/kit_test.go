package connectlimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rpclimit"
)

// text is the message of the tests' service.
type text = wrapperspb.StringValue

const (
	unaryPath  = "/test.v1.Test/Unary"
	upPath     = "/test.v1.Test/Up"
	downPath   = "/test.v1.Test/Down"
	duplexPath = "/test.v1.Test/Duplex"
)

// service answers as its functions say; nil: it echoes.
type service struct {
	unary  func(context.Context, *connect.Request[text]) (*connect.Response[text], error)
	duplex func(context.Context, *connect.BidiStream[text, text]) error
}

func echo(_ context.Context, s *connect.BidiStream[text, text]) error {
	for {
		m, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.Send(m)
		}
		if err != nil {
			return err
		}
	}
}

// serve runs s on a port of loopback, over HTTP/1 and HTTP/2 without TLS, until the test ends.
func serve(t testing.TB, s service, options ...connect.HandlerOption) (url string) {
	t.Helper()
	if s.unary == nil {
		s.unary = func(_ context.Context, r *connect.Request[text]) (*connect.Response[text], error) {
			return connect.NewResponse(r.Msg), nil
		}
	}
	if s.duplex == nil {
		s.duplex = echo
	}
	mux := http.NewServeMux()
	mux.Handle(unaryPath, connect.NewUnaryHandler(unaryPath, s.unary, options...))
	mux.Handle(upPath, connect.NewClientStreamHandler(upPath, func(_ context.Context, s *connect.ClientStream[text]) (*connect.Response[text], error) {
		last := new(text)
		for s.Receive() {
			last = s.Msg()
		}
		return connect.NewResponse(last), s.Err()
	}, options...))
	mux.Handle(downPath, connect.NewServerStreamHandler(downPath, func(_ context.Context, r *connect.Request[text], s *connect.ServerStream[text]) error {
		for range 3 {
			if s.Send(r.Msg) != nil {
				break // whatever the handler makes of it
			}
		}
		return nil
	}, options...))
	mux.Handle(duplexPath, connect.NewBidiStreamHandler(duplexPath, s.duplex, options...))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: mux, Protocols: protocols(), ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	return "http://" + l.Addr().String()
}

func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// client calls the methods of a server.
type client struct {
	unary, up, down, duplex *connect.Client[text, text]
	transport               *http.Transport
}

// wire is a protocol of connect.
type wire struct {
	name    string
	options []connect.ClientOption
}

var wires = []wire{{"connect", nil}, {"grpc", []connect.ClientOption{connect.WithGRPC()}}, {"grpc-web", []connect.ClientOption{connect.WithGRPCWeb()}}}

// each runs a test in each protocol.
func each(t *testing.T, f func(*testing.T, wire)) {
	for _, w := range wires {
		t.Run(w.name, func(t *testing.T) { f(t, w) })
	}
}

func dial(t testing.TB, w wire, url string, options ...connect.ClientOption) *client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: p}
	t.Cleanup(transport.CloseIdleConnections)
	options = append(options, w.options...)
	make := func(path string) *connect.Client[text, text] {
		return connect.NewClient[text, text](&http.Client{Transport: transport}, url+path, options...)
	}
	return &client{make(unaryPath), make(upPath), make(downPath), make(duplexPath), transport}
}

// call makes a unary call for a user.
func (c *client) call(ctx context.Context, user string) (*connect.Response[text], error) {
	r := connect.NewRequest(wrapperspb.String("hello"))
	if user != "" {
		r.Header().Set("X-User", user)
	}
	return c.unary.CallUnary(ctx, r)
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// codeOf is 0 without an error.
func codeOf(err error) connect.Code {
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

func wantCode(t testing.TB, err error, want connect.Code) {
	t.Helper()
	if got := codeOf(err); got != want {
		t.Fatalf("%v: %s, want %s", err, got, want)
	}
}

// detail returns the first detail of err that is a T.
func detail[T any](err error) (found T) {
	var e *connect.Error
	if errors.As(err, &e) {
		for _, d := range e.Details() {
			if v, err := d.Value(); err == nil {
				if m, ok := v.(T); ok {
					return m
				}
			}
		}
	}
	return found
}

// retryAfter returns the delay of the RetryInfo of err; -1: it has none.
func retryAfter(err error) time.Duration {
	if info := detail[*errdetails.RetryInfo](err); info != nil {
		return info.GetRetryDelay().AsDuration()
	}
	return -1
}

// meta returns the last value of a name in the metadata of err, which has headers and then trailers.
func meta(err error, name string) string {
	var e *connect.Error
	if errors.As(err, &e) {
		if values := e.Meta().Values(name); len(values) > 0 {
			return values[len(values)-1]
		}
	}
	return ""
}

func held(t testing.TB, l *stint.Limiter, limit *stint.Limit, key string) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), key, limit)
	if err != nil {
		t.Fatal(err)
	}
	return d.Held
}

func everybody(context.Context, *rpclimit.Call) string { return "everybody" }
