package envoy

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// serviceName is the service of health checks in envoyproxy/ratelimit. The empty name is the
// server as a whole, and has the same status.
const serviceName = "ratelimit"

// healthEvery is how often health is checked for its watchers.
const healthEvery = time.Second

var errStopping = errors.New("stopping")

// health answers health checks by gRPC and HTTP. A check asks for the status of that moment.
type health struct {
	*grpchealth.Server
	why      func() error // nil: the service is healthy
	stopped  atomic.Bool
	watching context.Context // ends with the watchers
	end      context.CancelFunc
}

func newHealth(why func() error) *health {
	h := &health{Server: grpchealth.NewServer(), why: why}
	h.watching, h.end = context.WithCancel(context.Background())
	h.refresh()
	return h
}

// error returns why the service is not healthy.
func (h *health) error() error {
	if h.stopped.Load() {
		return errStopping
	}
	return h.why()
}

func (h *health) refresh() {
	now := grpc_health_v1.HealthCheckResponse_SERVING
	if h.error() != nil {
		now = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	h.SetServingStatus(serviceName, now)
	h.SetServingStatus("", now)
}

// follow notifies watchers of changes until ctx is done.
func (h *health) follow(ctx context.Context) {
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			h.refresh()
		}
	}
}

// stop makes the service unhealthy permanently.
func (h *health) stop() {
	h.stopped.Store(true)
	h.refresh()
}

// Check answers with the present status.
func (h *health) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	h.refresh()
	return h.Server.Check(ctx, r)
}

// Watch ends when the server stops, because a stop waits for streams.
func (h *health) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(h.watching, cancel)()
	return h.Server.Watch(r, watchStream{stream, ctx})
}

type watchStream struct {
	grpc_health_v1.Health_WatchServer
	ctx context.Context
}

func (s watchStream) Context() context.Context { return s.ctx }

func (h *health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if err := h.error(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte("OK"))
}
