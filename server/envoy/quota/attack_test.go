package quota_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server/envoy/quota"
)

// One address leaves streams for another, however many connections it has.
func TestAttackStreamsOfOneAddress(t *testing.T) {
	s := compose(t, nil, quota.Settings{MaxStreams: 8})
	open := func(address string) error {
		_, err := s.streamFrom(t, address, 1).Recv()
		return err
	}
	n := 0
	for {
		if err := open("127.0.0.1"); err != nil {
			if status.Code(err) != codes.ResourceExhausted {
				t.Fatal(err)
			}
			break
		}
		n++
	}
	if n != 6 {
		t.Errorf("one address has %d streams of 8", n)
	}
	if err := open("127.0.0.2"); err != nil {
		t.Errorf("another address: %v", err)
	}
}

// One address leaves buckets for another, however many streams it has.
func TestAttackBucketsOfOneAddress(t *testing.T) {
	var crowded atomic.Bool
	log := slog.New(warns{slog.DiscardHandler, &crowded})
	s := compose(t, nil, quota.Settings{MaxBuckets: 40, Log: log})
	for i := range 4 {
		stream := s.streamFrom(t, "127.0.0.1", 10)
		if i < 3 {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
	}
	await.Until(t, "a bucket is refused, or there are 40", func() bool {
		_, n := s.quota.Size()
		return crowded.Load() || n == 40
	})
	other := s.streamFrom(t, "127.0.0.2", 1)
	came := make(chan error, 1)
	go func() {
		_, err := other.Recv()
		came <- err
	}()
	select {
	case err := <-came:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("another address gets no assignment")
	}
	if _, n := s.quota.Size(); n != 31 {
		t.Errorf("%d buckets, want 30 of one address and 1 of another", n)
	}
}

// warns notes that there was a warning.
type warns struct {
	slog.Handler
	was *atomic.Bool
}

func (w warns) Enabled(context.Context, slog.Level) bool { return true }

func (w warns) Handle(context.Context, slog.Record) error {
	w.was.Store(true)
	return nil
}

// streamFrom opens a stream from an address of this machine, by a connection of its own, and reports
// buckets of its own.
func (s *instance) streamFrom(t *testing.T, address string, buckets int) rlqs.RateLimitQuotaService_StreamRateLimitQuotasClient {
	t.Helper()
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return from.DialContext(ctx, "tcp", to) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := rlqs.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := &rlqs.RateLimitQuotaUsageReports{Domain: "d"}
	for i := range buckets {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: bucketID("free", fmt.Sprintf("%p %d", stream, i))})
	}
	_ = stream.Send(m) // Recv has the error
	return stream
}
