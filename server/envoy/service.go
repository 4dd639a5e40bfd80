package envoy

import (
	"context"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stintdev/stint/rules"
)

// Service answers RateLimitService of envoy.service.ratelimit.v3. It may be used from many
// goroutines at once.
type Service struct {
	rls.UnimplementedRateLimitServiceServer
	decider  Decider
	settings *Settings
	observer Observer // nil: nobody is told
}

// NewService returns a Service that decides by d. observer may be nil.
func NewService(d Decider, s *Settings, observer Observer) *Service {
	return &Service{decider: d, settings: s, observer: observer}
}

// ShouldRateLimit decides a call.
func (s *Service) ShouldRateLimit(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	v, err := s.decider.Decide(ctx, &rules.Input{Descriptors: descriptorsOf(r)}, time.Time{})
	if err != nil {
		return nil, err
	}
	code := rls.RateLimitResponse_OK
	if !v.Allowed {
		code = rls.RateLimitResponse_OVER_LIMIT
	}
	return &rls.RateLimitResponse{OverallCode: code}, nil
}

func descriptorsOf(r *rls.RateLimitRequest) *rules.Descriptors {
	d := &rules.Descriptors{Domain: r.GetDomain(), List: make([]rules.Descriptor, len(r.GetDescriptors()))}
	for i, one := range r.GetDescriptors() {
		to := &d.List[i]
		to.Cost = max(1, int64(r.GetHitsAddend()))
		for _, e := range one.GetEntries() {
			to.Entries = append(to.Entries, rules.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
	}
	return d
}
