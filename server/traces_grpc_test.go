package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	collected "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// grpcCollector is a receiver of OTLP over gRPC.
type grpcCollector struct {
	collected.UnimplementedTraceServiceServer
	collector
	address string
	md      []metadata.MD
}

func newGRPCCollector(t *testing.T, options ...grpc.ServerOption) *grpcCollector {
	t.Helper()
	c := new(grpcCollector)
	g := grpc.NewServer(options...)
	collected.RegisterTraceServiceServer(g, c)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = l.Addr().String()
	var done sync.WaitGroup
	done.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); done.Wait() })
	return c
}

// Export implements collected.TraceServiceServer.
func (c *grpcCollector) Export(ctx context.Context, r *collected.ExportTraceServiceRequest) (*collected.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	c.md = append(c.md, md)
	for _, rs := range r.ResourceSpans {
		c.resource = texts(rs.Resource.Attributes)
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
	return &collected.ExportTraceServiceResponse{}, nil
}

func (c *grpcCollector) key(i int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i >= len(c.md) || len(c.md[i]["x-key"]) != 1 {
		return ""
	}
	return c.md[i]["x-key"][0]
}

// Over gRPC, too, headers come from the file as it is now, and the endpoint from the environment.
func TestTracesOverGRPC(t *testing.T) {
	c := newGRPCCollector(t)
	file := filepath.Join(t.TempDir(), "headers")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("X-Key: one")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+c.address)
	s := newServer(t, tracedRules, func(c *server.Config) {
		c.Settings.Traces = &config.Traces{Sample: 1, Protocol: config.GRPC, HeadersFile: file, Service: "edge"}
	})
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	askOnce(checkAPI(s))
	await.Until(t, "the first spans arrive", func() bool { return len(c.got()) == 2 })
	write("X-Key: two")
	s.ReloadFiles()
	askOnce(checkAPI(s))
	s.Close()
	if n := len(c.got()); n != 4 || c.resource["service.name"] != "edge" {
		t.Errorf("%d spans of %v", n, c.resource)
	}
	if c.key(0) != "one" || c.key(1) != "two" {
		t.Errorf("headers %q and %q", c.key(0), c.key(1))
	}
}

func TestTracesOverGRPCWithTLS(t *testing.T) {
	t.Parallel()
	theirs, ours := newAuthority(t), newAuthority(t)
	shown := theirs.sign(t, "collector", dnsName("collector.internal"))
	pair, err := tls.X509KeyPair(shown.cert, shown.key)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(ours.cert)
	c := newGRPCCollector(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients})))
	files := ours.sign(t, "stint").write(t, theirs)
	for name, test := range map[string]struct {
		tls   *config.UpstreamTLS
		spans int
	}{
		"all":          {&config.UpstreamTLS{CA: files.ClientCA, Cert: files.Cert, Key: files.Key, ServerName: "collector.internal"}, 2},
		"no authority": {&config.UpstreamTLS{Cert: files.Cert, Key: files.Key, ServerName: "collector.internal"}, 0},
		"no cert":      {&config.UpstreamTLS{CA: files.ClientCA, ServerName: "collector.internal"}, 0},
	} {
		before := len(c.got())
		s := newServer(t, tracedRules, func(s *server.Config) {
			s.Settings.Traces = &config.Traces{Endpoint: "https://" + c.address, Sample: 1, Protocol: config.GRPC, TLS: test.tls}
		})
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		askOnce(checkAPI(s))
		closing := time.Now()
		s.Close()
		if took := time.Since(closing); took > 20*time.Second { // 2 s, and not the 30 s of an attempt
			t.Errorf("%s: Close took %v", name, took)
		}
		if n := len(c.got()) - before; n != test.spans {
			t.Errorf("%s: %d spans", name, n)
		}
	}
}
