package server_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
)

// serveEnvoy serves Envoy's listeners over TLS with the certificates of s, which were opened.
func serveEnvoy(t *testing.T, s *server.Server, files *config.TLSFiles, san string) (address string) {
	t.Helper()
	return startEnvoy(t, s, &config.Envoy{Listen: "127.0.0.1:0", TLS: files, ClientName: san}).Addr("gRPC").String()
}

// startEnvoy serves Envoy's listeners of these settings until the test ends.
func startEnvoy(t *testing.T, s *server.Server, settings *config.Envoy) *envoy.Server {
	t.Helper()
	e := envoy.New(envoy.Config{
		Decider: s, Settings: settings, Certificate: s.Certificate, WatchHTTP2: s.WatchHTTP2, Trace: s.CallTracer(),
		StopTimeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err := e.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return e
}

// askEnvoy makes a call over a connection of its own.
func askEnvoy(t *testing.T, address string, c *tls.Config) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(c)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = rls.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
		Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "k"}}}},
	})
	return err
}

// Only a client whose certificate has the name, by the authority, may call Envoy's service.
func TestEnvoyClientCertificates(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	files := ca.sign(t, "server").write(t, ca)
	s := newServer(t, generous)
	byDNS, byURI := serveEnvoy(t, s, files, "envoy.example"), serveEnvoy(t, s, files, "spiffe://example/envoy")
	for _, c := range []struct {
		what     string
		address  string
		own      []pair
		accepted bool
	}{
		{"its name", byDNS, []pair{ca.sign(t, "x", dnsName("envoy.example"))}, true},
		{"its URI", byURI, []pair{ca.sign(t, "x", uri("spiffe://example/envoy"))}, true},
		{"another name", byDNS, []pair{ca.sign(t, "envoy.example", dnsName("other.example"))}, false},
		{"another URI", byURI, []pair{ca.sign(t, "x", uri("spiffe://example/envoy2"))}, false},
		{"a name for a URI", byURI, []pair{ca.sign(t, "x", dnsName("envoy.example"))}, false},
		{"its name, by a stranger", byDNS, []pair{stranger.sign(t, "x", dnsName("envoy.example"))}, false},
		{"no certificate", byDNS, nil, false},
	} {
		err := askEnvoy(t, c.address, ca.trusting(t, c.own...))
		if c.accepted && err != nil || !c.accepted && status.Code(err) != grpccodes.Unavailable {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if err := envoy.New(envoy.Config{Decider: s, Certificate: s.Certificate, Settings: &config.Envoy{
		Listen: "127.0.0.1:0", TLS: &config.TLSFiles{Cert: files.Cert, Key: files.Key}, ClientName: "x",
	}}).Listen(); err == nil || !strings.Contains(err.Error(), "authority") {
		t.Errorf("a name without an authority: %v", err)
	}
}

// The certificate of Envoy's listener is reloaded and has its metric, like others.
func TestEnvoyCertificateReloaded(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	files := before.sign(t, "server").write(t, nil)
	s := newServer(t, generous)
	address := serveEnvoy(t, s, files, "")
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	if err := askEnvoy(t, address, before.trusting(t)); err != nil {
		t.Error(err)
	}
	next := after.sign(t, "server")
	put(t, files.Cert, next.cert)
	put(t, files.Key, next.key)
	s.ReloadFiles()
	if err := askEnvoy(t, address, after.trusting(t)); err != nil {
		t.Error(err)
	}
	if err := askEnvoy(t, address, before.trusting(t)); status.Code(err) != grpccodes.Unavailable {
		t.Errorf("the old certificate: %v", err)
	}
	w := httptest.NewRecorder()
	s.Probes().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if text, _ := io.ReadAll(w.Body); !strings.Contains(string(text), `listener="envoy"`) {
		t.Error("no metric of the certificate")
	}
}
