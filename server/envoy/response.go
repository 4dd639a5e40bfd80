package envoy

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// response is a RateLimitResponse with room for the status of one descriptor, so that one allocation
// is enough for most calls.
type response struct {
	rls.RateLimitResponse
	pointers [1]*rls.RateLimitResponse_DescriptorStatus
	room     [1]descriptorStatus
}

type descriptorStatus struct {
	rls.RateLimitResponse_DescriptorStatus
	limit rls.RateLimitResponse_RateLimit
	reset durationpb.Duration
}

// reply is the response to r by the decision v. shadow: the global shadow mode turned a refusal into OK.
func (s *Service) reply(r *rls.RateLimitRequest, calls *rules.Descriptors, v *server.Verdict) (_ *rls.RateLimitResponse, shadow bool) {
	out := new(response)
	n := len(calls.List)
	out.Statuses = out.pointers[:0]
	room := out.room[:]
	if n > len(room) {
		out.Statuses, room = make([]*rls.RateLimitResponse_DescriptorStatus, 0, n), make([]descriptorStatus, n)
	}
	for i := range calls.List {
		one := &room[i]
		one.fill(&calls.List[i], v, i)
		out.Statuses = append(out.Statuses, &one.RateLimitResponse_DescriptorStatus)
	}
	out.OverallCode = codeOf(v.Allowed)
	if s.settings.ResponseHeaders {
		out.ResponseHeadersToAdd = headersOf(&s.settings.HeaderNames, closest(out.Statuses, calls, v))
	}
	if !v.Allowed && s.settings.Shadow {
		out.OverallCode, shadow = rls.RateLimitResponse_OK, true
	}
	if s.settings.DynamicMetadata {
		out.DynamicMetadata = metadataOf(r, out.Statuses, v)
	}
	return &out.RateLimitResponse, shadow
}

func codeOf(allowed bool) rls.RateLimitResponse_Code {
	if allowed {
		return rls.RateLimitResponse_OK
	}
	return rls.RateLimitResponse_OVER_LIMIT
}

// fill makes the status of descriptor i.
func (s *descriptorStatus) fill(call *rules.Descriptor, v *server.Verdict, i int) {
	s.Code = rls.RateLimitResponse_OK
	if len(v.Descriptors) == 0 { // a list or a manual ban decided the call as a whole, or the rules are switched off
		s.Code = codeOf(v.Allowed)
		if !v.Allowed && v.RetryAfter != stint.Never {
			s.resetAfter(v.RetryAfter)
		}
		return
	}
	m := &v.Descriptors[i]
	if m.Rule != nil && m.Rule.Descriptor.Unlimited && !m.Replaced {
		s.LimitRemaining = math.MaxUint32
		return
	}
	d := decisionOf(call, m, v)
	if d.Outcome == 0 || d.By == stint.ByPolicy { // no count is known
		return
	}
	if !d.Allowed && m.Rule.Mode == rules.Enforce {
		s.Code = rls.RateLimitResponse_OVER_LIMIT
	}
	if d.By == stint.ByLocal { // numbers of this instance's share would look like the limit's
		return
	}
	if s.Code == rls.RateLimitResponse_OVER_LIMIT {
		if v.Outcome == stint.Banned && v.Rule == m.Rule && v.Key == m.Key { // a ban that begins with this call
			d.RetryAfter = max(d.RetryAfter, v.BanLeft)
		}
	}
	s.showLimit(m.Limit)
	if m.Limit.Amount > 0 {
		// A burst may be above the amount, but Envoy's clients must not see more left than the limit.
		s.LimitRemaining = uint32(min(d.Remaining, m.Limit.Amount, math.MaxUint32))
	}
	s.resetAfter(untilReset(&d))
}

// decisionOf is the decision about a descriptor; zero: there was none. If an operator gave the key several
// limits, it is the strictest's.
func decisionOf(call *rules.Descriptor, m *rules.DescriptorMatch, v *server.Verdict) stint.Decision {
	each := v.Each
	if m.GiveBack {
		each = v.GivenBack
	}
	if m.Rule == nil || m.Replaced || m.Ask < 0 || each == nil {
		return stint.Decision{}
	}
	end := m.Ask + 1
	for !m.GiveBack && call.Override == nil && end < len(each) && v.Rules[end] == m.Rule && each[end].Key == m.Key {
		end++
	}
	if end == m.Ask+1 {
		return each[m.Ask]
	}
	return stint.Strictest(each[m.Ask:end])
}

// showLimit sets the current limit; nil: there is none to show.
func (s *descriptorStatus) showLimit(l *rules.DescriptorLimit) {
	if l == nil {
		return
	}
	s.limit.Name, s.limit.RequestsPerUnit, s.limit.Unit = l.Name, uint32(min(l.Amount, math.MaxUint32)), unitOf(l.Unit)
	if l.Times > 1 {
		s.limit.UnitMultiplier = wrapperspb.UInt32(uint32(l.Times))
	}
	s.CurrentLimit = &s.limit
}

// resetAfter sets the time until the reset, in whole seconds, because Envoy does not read fractions.
func (s *descriptorStatus) resetAfter(d time.Duration) {
	if d <= 0 {
		return
	}
	s.reset.Seconds = int64((d + time.Second - 1) / time.Second)
	s.DurationUntilReset = &s.reset
}

// untilReset is the reset time for callers: how long the remaining units must last; for a window without a
// count yet, the time until its end.
func untilReset(d *stint.Decision) time.Duration {
	if d.Limit == nil && d.RetryAfter == stint.Never { // a ban that does not end
		return 0
	}
	wait := stint.Internal(friend.Of{}).Lasts(d)
	if wait == 0 && d.Limit != nil && d.Limit.Spec().Algorithm == stint.FixedWindow {
		now := time.Now()
		_, end := d.Limit.Window(now)
		wait = end.Sub(now)
	}
	return wait
}

// closest is the status for the headers: of those with a limit the one with the least remaining, or the last
// that refused the call. nil: there is none.
func closest(all []*rls.RateLimitResponse_DescriptorStatus, calls *rules.Descriptors, v *server.Verdict) *rls.RateLimitResponse_DescriptorStatus {
	var found *rls.RateLimitResponse_DescriptorStatus
	least := uint32(math.MaxUint32)
	for i, s := range all {
		if s.CurrentLimit == nil {
			continue
		}
		refused := s.Code == rls.RateLimitResponse_OVER_LIMIT && !calls.Quota && !v.Descriptors[i].Rule.Descriptor.Quota
		if refused || s.LimitRemaining < least {
			found, least = s, s.LimitRemaining
		}
		if refused {
			least = 0
		}
	}
	return found
}

// headersOf returns the headers about s; nil: none.
func headersOf(h *config.EnvoyHeaders, s *rls.RateLimitResponse_DescriptorStatus) []*core.HeaderValue {
	if s == nil {
		return nil
	}
	return []*core.HeaderValue{
		{Key: h.Limit, Value: strconv.FormatUint(uint64(s.CurrentLimit.RequestsPerUnit), 10)},
		{Key: h.Remaining, Value: strconv.FormatUint(uint64(s.LimitRemaining), 10)},
		{Key: h.Reset, Value: strconv.FormatInt(s.DurationUntilReset.GetSeconds(), 10)},
	}
}
