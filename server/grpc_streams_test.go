package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// longStream is a stream in both directions.
var longStream = grpc.StreamDesc{StreamName: "Run", ServerStreams: true, ClientStreams: true}

// longUpstream serves streams by run, and returns its address and a function that cuts all its
// connections.
func longUpstream(t *testing.T, run func(grpc.ServerStream) error) (*url.URL, func()) {
	t.Helper()
	s := grpc.NewServer()
	stream := longStream
	stream.Handler = func(_ any, s grpc.ServerStream) error { return run(s) }
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Long", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{stream}}, nil)
	l := &cuttable{Listener: listen(t)}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	u, err := config.ParseUpstream("h2c://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return u, l.cut
}

type cuttable struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cuttable) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
	}
	return conn, err
}

func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
}

// streamsThrough opens a stream through a gateway with rules before an upstream.
func streamsThrough(t *testing.T, rules string, u *url.URL, more ...func(*server.Config)) func(pairs ...string) (grpc.ClientStream, context.CancelFunc) {
	t.Helper()
	more = append(more, routes(config.Route{Path: "/", Upstream: u}))
	client := grpcClient(t, start(t, newServer(t, rules, more...)).gateway, insecure.NewCredentials())
	return func(pairs ...string) (grpc.ClientStream, context.CancelFunc) {
		t.Helper()
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), pairs...), 2*time.Minute)
		t.Cleanup(cancel)
		stream, err := client.NewStream(ctx, &longStream, "/test.Long/Run")
		if err != nil {
			t.Fatal(err)
		}
		return stream, cancel
	}
}

func sendText(s interface{ SendMsg(any) error }, text string) error {
	return s.SendMsg(wrapperspb.String(text))
}

func receiveText(s interface{ RecvMsg(any) error }) (string, error) {
	m := new(wrapperspb.StringValue)
	err := s.RecvMsg(m)
	return m.Value, err
}

// The upstream knows the client's deadline, its metadata as it was sent, and when it has left.
func TestGRPCClientLeaves(t *testing.T) {
	left, began := make(chan error, 1), make(chan metadata.MD, 1)
	var deadline time.Time
	u, _ := longUpstream(t, func(s grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(s.Context())
		deadline, _ = s.Context().Deadline()
		began <- md
		_ = s.SendHeader(metadata.Pairs("x-list", "a", "x-list", "b", "x-bytes-bin", "\x00\xff"))
		<-s.Context().Done()
		left <- s.Context().Err()
		return s.Context().Err()
	})
	stream, cancel := streamsThrough(t, generous, u)("x-list", "1", "x-list", "2", "x-bytes-bin", "\x00\xfe")
	md := <-began
	if got := md.Get("x-list"); !slices.Equal(got, []string{"1", "2"}) || md.Get("x-bytes-bin")[0] != "\x00\xfe" || time.Until(deadline) > 2*time.Minute || time.Until(deadline) < time.Second {
		t.Errorf("the upstream got %v, until %v", md, deadline)
	}
	header, err := stream.Header()
	if err != nil || !slices.Equal(header.Get("x-list"), []string{"a", "b"}) || header.Get("x-bytes-bin")[0] != "\x00\xff" {
		t.Errorf("the client got %v, %v", header, err)
	}
	cancel()
	select {
	case err := <-left:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the upstream saw %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the upstream does not know that the client has left")
	}
}

// An upstream that answers before the client has sent all is heard, also where it reads nothing.
func TestGRPCAnswersEarly(t *testing.T) {
	u, _ := longUpstream(t, func(s grpc.ServerStream) error {
		s.SetTrailer(metadata.Pairs("x-late", "1"))
		return status.Error(grpccodes.FailedPrecondition, "not now")
	})
	stream, _ := streamsThrough(t, generous, u)()
	big := strings.Repeat("x", 100_000)
	var err error
	for range 1000 {
		if err = sendText(stream, big); err != nil {
			break
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("the client can send on: %v", err)
	}
	if _, err := receiveText(stream); status.Code(err) != grpccodes.FailedPrecondition || stream.Trailer().Get("x-late") == nil {
		t.Errorf("%v, %v", err, stream.Trailer())
	}
}

// A client that is refused while it sends gets the refusal.
func TestGRPCRefusedWhileItSends(t *testing.T) {
	u, _ := longUpstream(t, func(s grpc.ServerStream) error { return nil })
	open := streamsThrough(t, `rules: [{name: none, key: '"all"', cost: 9, limits: [1 per 1h]}]`, u)
	for range 5 {
		stream, _ := open()
		big := strings.Repeat("x", 100_000)
		var err error
		for range 1000 {
			if err = sendText(stream, big); err != nil {
				break
			}
		}
		if _, got := receiveText(stream); !errors.Is(err, io.EOF) || status.Code(got) != grpccodes.ResourceExhausted {
			t.Errorf("%v, %v", err, got)
		}
	}
}

// If an upstream dies in a stream, the client gets a status with which it may try again elsewhere.
func TestGRPCUpstreamDies(t *testing.T) {
	u, cut := longUpstream(t, func(s grpc.ServerStream) error {
		_ = sendText(s, "first")
		<-s.Context().Done()
		return nil
	})
	stream, _ := streamsThrough(t, generous, u)()
	if text, err := receiveText(stream); text != "first" || err != nil {
		t.Fatal(text, err)
	}
	cut()
	if _, err := receiveText(stream); status.Code(err) != grpccodes.Unavailable {
		t.Errorf("after the upstream died: %v", err)
	}
}

// Large messages and many streams of one connection pass.
func TestGRPCManyStreams(t *testing.T) {
	u, _ := longUpstream(t, func(s grpc.ServerStream) error {
		for {
			text, err := receiveText(s)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil || sendText(s, text) != nil {
				return err
			}
		}
	})
	open := streamsThrough(t, "rules: []", u)
	big := strings.Repeat("y", 3<<20)
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			stream, _ := open()
			text := "small"
			if i%50 == 0 {
				text = big
			}
			for range 3 {
				if err := sendText(stream, text); err != nil {
					t.Error(err)
					return
				}
				if got, err := receiveText(stream); got != text || err != nil {
					t.Errorf("%d bytes, %v", len(got), err)
					return
				}
			}
			_ = stream.CloseSend()
			if _, err := receiveText(stream); !errors.Is(err, io.EOF) {
				t.Errorf("the end: %v", err)
			}
		})
	}
	all.Wait()
}

// With upstream_timeout of its route, a call may wait for long until the upstream answers.
func TestGRPCSilentUpstream(t *testing.T) {
	t.Parallel()
	u, _ := longUpstream(t, func(s grpc.ServerStream) error {
		time.Sleep(500 * time.Millisecond)
		return sendText(s, "late")
	})
	for timeout, want := range map[time.Duration]grpccodes.Code{0: grpccodes.OK, 50 * time.Millisecond: grpccodes.Unavailable} {
		s := newServer(t, generous, routes(config.Route{Path: "/", Upstream: u, UpstreamTimeout: &timeout}), func(c *server.Config) { c.Settings.UpstreamTimeout = 100 * time.Millisecond })
		client := grpcClient(t, start(t, s).gateway, insecure.NewCredentials())
		stream, err := client.NewStream(t.Context(), &longStream, "/test.Long/Run")
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.CloseSend()
		if text, err := receiveText(stream); status.Code(err) != want || want == grpccodes.OK && text != "late" {
			t.Errorf("%s: %q, %v", timeout, text, err)
		}
	}
}

// A client that is silent for longer than body_timeout gets a status.
func TestGRPCSilentClient(t *testing.T) {
	u, _ := longUpstream(t, func(s grpc.ServerStream) error {
		_, err := receiveText(s)
		return err
	})
	stream, _ := streamsThrough(t, generous, u, func(c *server.Config) { c.Settings.BodyTimeout = 100 * time.Millisecond })()
	if _, err := receiveText(stream); status.Code(err) != grpccodes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
}

// A stream is in flight until it ends.
func TestGRPCInFlight(t *testing.T) {
	u, _ := longUpstream(t, func(s grpc.ServerStream) error {
		text, err := receiveText(s)
		if err == nil {
			err = sendText(s, text)
		}
		if err == nil {
			_, err = receiveText(s)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	open := streamsThrough(t, `rules: [{name: streams, key: client.ip, limits: [2 in_flight]}]`, u)
	run := func() (grpc.ClientStream, error) {
		stream, _ := open()
		if err := sendText(stream, "x"); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		_, err := receiveText(stream)
		return stream, err
	}
	first, err := run()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(); err != nil {
		t.Fatal(err)
	}
	if _, err := run(); status.Code(err) != grpccodes.ResourceExhausted {
		t.Fatalf("a third stream: %v", err)
	}
	_ = first.CloseSend()
	if _, err := receiveText(first); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if !await.So(func() bool { _, err := run(); return err == nil }) {
		t.Error("no stream passes after one has ended")
	}
}
