package envoy

import (
	"context"
	"errors"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// Service answers RateLimitService of envoy.service.ratelimit.v3. It may be used from many
// goroutines at once.
type Service struct {
	rls.UnimplementedRateLimitServiceServer
	decider  Decider
	settings *config.Envoy
	observer Observer    // may be nil
	loaded   func() bool // nil: always
}

// NewService returns a Service that decides by d. observer may be nil.
func NewService(d Decider, s *config.Envoy, observer Observer) *Service {
	return &Service{decider: d, settings: s, observer: observer}
}

// The errors of malformed calls, in the words of envoyproxy/ratelimit.
var (
	errNoDomain      = errors.New("rate limit domain must not be empty")
	errNoDescriptors = errors.New("rate limit descriptor list must not be empty")
	errNoConfig      = errors.New("no rate limit configuration loaded")
)

// ShouldRateLimit decides a call. A malformed call is the error INVALID_ARGUMENT. A call that
// could not be decided is UNAVAILABLE, unless the caller went away or its deadline passed.
func (s *Service) ShouldRateLimit(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	if s.observer == nil {
		out, err := s.decide(ctx, r)
		return out, statusOf(ctx, err)
	}
	start := time.Now()
	out, err := s.decide(ctx, r)
	if err != nil {
		s.observer.Failed(!isCallers(err))
		err = statusOf(ctx, err)
	}
	s.observer.Called("ShouldRateLimit", time.Since(start))
	return out, err
}

func (s *Service) decide(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	switch {
	case r.GetDomain() == "":
		return nil, errNoDomain
	case len(r.GetDescriptors()) == 0:
		return nil, errNoDescriptors
	case s.loaded != nil && !s.loaded():
		return nil, errNoConfig
	}
	call := new(call)
	call.read(r)
	call.descriptors.Each, call.descriptors.Quota = s.settings.Each, s.settings.QuotaMode
	v := &call.verdict
	var err error
	if *v, err = s.decider.Decide(ctx, &call.in, time.Time{}); err != nil {
		return nil, err
	}
	out, shadow := s.reply(r, &call.descriptors, v)
	if s.observer != nil {
		s.observer.Decided(&call.descriptors, v, shadow)
	}
	return out, nil
}

// isCallers reports whether err says that the call is malformed, or that there is no configuration to decide
// it.
func isCallers(err error) bool {
	return errors.Is(err, stint.ErrRequest) || errors.Is(err, errNoDomain) || errors.Is(err, errNoDescriptors) || errors.Is(err, errNoConfig)
}

// statusOf returns the status of gRPC for an error of decide.
func statusOf(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoConfig):
		return status.Error(codes.Unavailable, err.Error())
	case isCallers(err):
		return status.Error(codes.Code(server.KindMalformed.Code()), err.Error())
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Error(codes.Code(server.KindUndecided.Code()), err.Error())
}

// call is a RateLimitRequest in the form of the rules, with their verdict, in one allocation if it is small.
type call struct {
	in          rules.Input
	verdict     server.Verdict
	descriptors rules.Descriptors
	list        [2]rules.Descriptor
	entries     [4]rules.Entry
}

// maxCost is above any limit. A larger cost makes no difference.
const maxCost = 1 << 52

func (c *call) read(r *rls.RateLimitRequest) {
	from := r.GetDescriptors()
	list, entries := c.list[:0], c.entries[:0]
	if len(from) > len(c.list) {
		list = make([]rules.Descriptor, 0, len(from))
	}
	n := 0
	for _, d := range from {
		n += len(d.GetEntries())
	}
	if n > len(c.entries) {
		entries = make([]rules.Entry, 0, n)
	}
	for _, d := range from {
		start := len(entries)
		for _, e := range d.GetEntries() {
			entries = append(entries, rules.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		to := rules.Descriptor{Entries: entries[start:len(entries):len(entries)], GiveBack: d.GetIsNegativeHits()}
		to.Cost = max(1, int64(r.GetHitsAddend()))
		if d.GetHitsAddend() != nil {
			to.Cost = int64(min(maxCost, d.GetHitsAddend().GetValue()))
		}
		if l := d.GetLimit(); l != nil {
			to.Override = &rules.DescriptorLimit{
				Amount: int64(l.GetRequestsPerUnit()), Unit: secondsOf(int32(l.GetUnit())), Times: int64(l.GetUnitMultiplier().GetValue()),
			}
		}
		list = append(list, to)
	}
	c.descriptors = rules.Descriptors{Domain: r.GetDomain(), List: list}
	c.in.Descriptors = &c.descriptors
}

// secondsOf is a unit by its number in the protocol, which requests and responses share. An unknown number
// gives the zero Unit.
func secondsOf(unit int32) rules.Unit {
	for _, u := range units {
		if int32(u.number) == unit {
			return u.unit
		}
	}
	return 0
}

// unitOf is the unit of responses; UNKNOWN for none.
func unitOf(unit rules.Unit) rls.RateLimitResponse_RateLimit_Unit {
	for _, u := range units {
		if u.unit == unit {
			return u.number
		}
	}
	return rls.RateLimitResponse_RateLimit_UNKNOWN
}

var units = [...]struct {
	number rls.RateLimitResponse_RateLimit_Unit
	unit   rules.Unit
}{
	{rls.RateLimitResponse_RateLimit_SECOND, rules.Second},
	{rls.RateLimitResponse_RateLimit_MINUTE, rules.Minute},
	{rls.RateLimitResponse_RateLimit_HOUR, rules.Hour},
	{rls.RateLimitResponse_RateLimit_DAY, rules.Day},
	{rls.RateLimitResponse_RateLimit_MONTH, rules.Month},
	{rls.RateLimitResponse_RateLimit_YEAR, rules.Year},
	{rls.RateLimitResponse_RateLimit_WEEK, rules.Week},
}

var _ Decider = (*server.Server)(nil)
