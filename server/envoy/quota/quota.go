// Package quota answers Envoy's rate limit quota service (RLQS,
// envoy.service.rate_limit_quota.v3): proxies open a stream, report how many requests each of their
// buckets let through and denied, and receive assignments by which they decide on their own.
//
// A bucket finds its rule as a descriptor of Envoy's rate limit service does: the entries of its
// identifier, sorted by key, walk the files of Envoy's form. Each unit of an assignment was taken from the
// limit beforehand: an assignment is a token bucket that is full once and not refilled while it lasts.
// Reported units that no assignment covers are charged afterwards.
package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/room"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/envoy/internal/caller"
	"github.com/stintdev/stint/server/rules"
)

// Decider is the part of a *server.Server that package quota uses. It is called from many goroutines at once.
type Decider interface {
	// Decide decides a call; see server.Server.Decide.
	Decide(ctx context.Context, in *rules.Input, at time.Time) (server.Verdict, error)
	// Rules are the rules in force.
	Rules() *rules.Set
}

// Shares says how streams that subscribe to one bucket share its limit. The zero Shares is ByDemand.
type Shares uint8

const (
	// ByDemand gives each stream what its recent requests need; if less remains, it divides the rest in
	// proportion.
	ByDemand Shares = iota
	// Equally gives no stream more than the limit divided by the number of streams.
	Equally
)

var sharesNames = [...]string{"demand", "equal"}

// String is "demand" or "equal".
func (s Shares) String() string {
	if int(s) < len(sharesNames) {
		return sharesNames[s]
	}
	return "unknown"
}

// UnmarshalText reads "demand" or "equal".
func (s *Shares) UnmarshalText(text []byte) error {
	for i, name := range sharesNames {
		if string(text) == name {
			*s = Shares(i)
			return nil
		}
	}
	return fmt.Errorf("shares %q: must be demand or equal", limittext.Clip(string(text)))
}

// The defaults of Settings.
const (
	DefaultTTL        = 20 * time.Second
	DefaultIdle       = 2 * time.Minute
	DefaultMaxStreams = 1_000
	DefaultMaxBuckets = 100_000
)

// MinTTL is the shortest Settings.TTL.
const MinTTL = 4 * time.Second

// Settings are the settings of a Service. The zero Settings are the defaults.
type Settings struct {
	// Shares says how streams share a limit.
	Shares Shares
	// TTL is how long an assignment lasts, in whole seconds; the service replaces it after three quarters of
	// that at the latest. If the service is gone, a proxy follows its expired_assignment_behavior after TTL.
	// It is at least MinTTL. 0: DefaultTTL.
	TTL time.Duration
	// Idle is after how long without requests the service abandons a bucket. 0: DefaultIdle.
	Idle time.Duration
	// MaxStreams is how many streams may be open at once; further ones are refused. One caller's address gets
	// at most three quarters, and less while others have many. 0: DefaultMaxStreams.
	MaxStreams int
	// MaxBuckets is how many subscriptions all streams together may have; one stream may have a quarter of
	// them, and one address three quarters, as with MaxStreams. A bucket counts once more for each 256 bytes
	// of its identifier. Further buckets get no assignment, so proxies follow their no_assignment_behavior.
	// 0: DefaultMaxBuckets.
	MaxBuckets int
	// Shadow makes every bucket allow everything. Reported units are charged.
	Shadow bool
	// Loaded reports whether there are rules. Until then nothing is assigned. nil: always.
	Loaded func() bool
	// Instances returns how many instances share the store, for shares. nil: there is one.
	Instances func() int
	// Log receives failures. nil: nothing is logged.
	Log *slog.Logger
}

func (s *Settings) instances() float64 {
	if s.Instances == nil {
		return 1
	}
	return float64(max(1, s.Instances()))
}

// check returns s with its defaults.
func (s Settings) check() (Settings, error) {
	s.TTL, s.Idle = cmp.Or(s.TTL, DefaultTTL), cmp.Or(s.Idle, DefaultIdle)
	s.MaxStreams, s.MaxBuckets = cmp.Or(s.MaxStreams, DefaultMaxStreams), cmp.Or(s.MaxBuckets, DefaultMaxBuckets)
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case s.TTL < MinTTL || s.TTL > time.Hour || s.TTL%time.Second != 0:
		return s, fmt.Errorf("quota: TTL %s: must be whole seconds from %s to 1h", s.TTL, MinTTL)
	case s.Idle < s.TTL:
		return s, fmt.Errorf("quota: Idle %s: must be at least the TTL, %s", s.Idle, s.TTL)
	case s.MaxStreams < 0 || s.MaxBuckets < 0:
		return s, fmt.Errorf("quota: MaxStreams %d, MaxBuckets %d: must not be negative", s.MaxStreams, s.MaxBuckets)
	case int(s.Shares) >= len(sharesNames):
		return s, fmt.Errorf("quota: Shares %d: unknown", s.Shares)
	}
	return s, nil
}

// Service answers RateLimitQuotaService of envoy.service.rate_limit_quota.v3. New makes it. It may be used
// from many goroutines at once.
type Service struct {
	rlqs.UnimplementedRateLimitQuotaServiceServer
	decider  Decider
	settings Settings
	buckets  *table
	metrics  *metrics
	stopped  chan struct{}
	stop     sync.Once
	crowded  sampled // too many buckets
	failed   sampled // no decision
}

// New returns a Service that decides by d. The error says which setting is wrong.
func New(d Decider, s Settings) (*Service, error) {
	s, err := s.check()
	if err != nil {
		return nil, err
	}
	buckets := newTable(&s)
	return &Service{decider: d, settings: s, buckets: buckets, metrics: newMetrics(buckets), stopped: make(chan struct{})}, nil
}

// Register registers s at r, such as a *grpc.Server.
func (s *Service) Register(r grpc.ServiceRegistrar) { rlqs.RegisterRateLimitQuotaServiceServer(r, s) }

// Stop ends all streams with the code Unavailable, and refuses new ones. Proxies keep their
// assignments until those expire, and connect again. Call it before grpc.Server.GracefulStop, which
// waits for streams to end.
func (s *Service) Stop() { s.stop.Do(func() { close(s.stopped) }) }

// Size returns how many streams are open, and how many subscriptions to buckets they have.
func (s *Service) Size() (streams, subscriptions int) { return s.buckets.size() }

// Metrics are those of s; docs/metrics.md describes them. They have no label that a proxy can choose.
func (s *Service) Metrics() prometheus.Collector { return s.metrics }

// StreamRateLimitQuotas answers a stream until it ends.
func (s *Service) StreamRateLimitQuotas(stream rlqs.RateLimitQuotaService_StreamRateLimitQuotasServer) error {
	place, refused := s.buckets.streams.Enter(nil, caller.Of(stream.Context()))
	if refused != room.None {
		s.metrics.noStream.Inc()
	}
	switch refused {
	case room.Full:
		return status.Errorf(codes.ResourceExhausted, "%d streams are open: at most %d", s.settings.MaxStreams, s.settings.MaxStreams)
	case room.Share:
		return status.Error(codes.ResourceExhausted, "too many streams of this address are open: the rest is for others")
	}
	defer s.buckets.streams.Leave(place)
	c := &conversation{service: s, stream: stream, subscriptions: make(map[string]*subscription)}
	defer c.close()
	return c.run(stream.Context())
}

// errStopping ends the streams of a Service that was stopped.
var errStopping = status.Error(codes.Unavailable, "the service is shutting down")

var errNotLoaded = errors.New("no rate limit configuration loaded")

// sampled limits a log line to one in ten seconds.
type sampled struct {
	mu   sync.Mutex
	last time.Time
}

func (s *sampled) warn(log *slog.Logger, text string, args ...any) {
	s.mu.Lock()
	now := time.Now()
	due := s.last.IsZero() || now.Sub(s.last) >= 10*time.Second
	if due {
		s.last = now
	}
	s.mu.Unlock()
	if due {
		log.Warn(text, args...)
	}
}

// decide decides about one bucket. ahead is rules.Descriptors.Ahead.
func (s *Service) decide(ctx context.Context, b *bucket, d rules.Descriptor, ahead bool) (server.Verdict, error) {
	if s.settings.Loaded != nil && !s.settings.Loaded() {
		s.metrics.undecided.Inc()
		s.failed.warn(s.settings.Log, "rate limit quota: nothing is assigned, because no configuration is loaded", "domain", b.domain)
		return server.Verdict{}, errNotLoaded
	}
	d.Entries = b.entries
	in := rules.Input{Descriptors: &rules.Descriptors{Domain: b.domain, List: []rules.Descriptor{d}, Ahead: ahead}}
	v, err := s.decider.Decide(ctx, &in, time.Time{})
	switch {
	case err != nil:
	case d.GiveBack:
		b.gaveBack(d.Cost)
	case v.Limit != nil && v.Allowed:
		b.decided(&v, d.Cost, s.settings.instances())
	case v.Limit != nil:
		b.decided(&v, 0, s.settings.instances())
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		s.metrics.undecided.Inc()
		s.failed.warn(s.settings.Log, "rate limit quota: nothing was decided about a bucket, whose assignment is not renewed", "domain", b.domain, "error", err)
	}
	return v, err
}
