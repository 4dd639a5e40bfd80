package traces

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// newGRPCClient returns the client of a gRPC collector. It does not use a proxy.
func newGRPCClient(endpoint string, h *headers, current func() (*tls.Config, error)) otlptrace.Client {
	o := []otlptracegrpc.Option{
		otlptracegrpc.WithEndpointURL(endpoint),
		otlptracegrpc.WithTimeout(retryTimeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 10 * time.Second, MaxElapsedTime: retryTimeout}),
		otlptracegrpc.WithDialOption(
			grpc.WithNoProxy(),
			grpc.WithPerRPCCredentials(h),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(longestResponse)),
		),
	}
	if strings.HasPrefix(endpoint, "https:") {
		o = append(o, otlptracegrpc.WithTLSCredentials(&currentTLS{TransportCredentials: credentials.NewTLS(nil), current: current}))
	}
	return otlptracegrpc.NewClient(o...)
}

// currentTLS makes each connection with the certificates that are in force when it begins.
type currentTLS struct {
	credentials.TransportCredentials
	current func() (*tls.Config, error)
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *currentTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := c.current()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (c *currentTLS) Clone() credentials.TransportCredentials { return c }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (h *headers) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	md := map[string]string{}
	for name, values := range *h.now.Load() {
		md[strings.ToLower(name)] = strings.Join(values, ",")
	}
	return md, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: ST020 is about headers that
// are sent unencrypted.
func (h *headers) RequireTransportSecurity() bool { return false }
