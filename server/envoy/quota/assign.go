package quota

import (
	"context"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// work is a task for a subscription, and its result.
type work struct {
	subscription *subscription
	giveBack     int64
	renew        bool
	abandon      bool

	assign bool          // send its strategy
	lasts  time.Duration // the assignment
}

// do performs w. It may be called for several subscriptions at once.
func (s *Service) do(ctx context.Context, w *work) {
	sub := w.subscription
	set := s.decider.Rules()
	if sub.rules != set {
		sub.free = false
	}
	if w.giveBack > 0 {
		// If it fails, the units stay taken: until the window ends, or they come back by themselves.
		became := s.metrics.returned
		if _, err := s.decide(ctx, sub.bucket, rules.Descriptor{Cost: w.giveBack, GiveBack: true}, false); err != nil {
			became = s.metrics.lost
		}
		s.metrics.end(became, w.giveBack)
		w.giveBack = 0
	}
	s.charge(ctx, sub)
	if w.abandon || !w.renew {
		return
	}
	s.renew(ctx, w, set)
}

// charge charges units used without an assignment, whether they fit or not.
func (s *Service) charge(ctx context.Context, sub *subscription) {
	n := sub.owed
	if sub.free || n == 0 {
		sub.owed = 0
		return
	}
	v, err := s.decide(ctx, sub.bucket, rules.Descriptor{Cost: n}, false)
	if err != nil {
		return // sub still owes it
	}
	sub.owed = 0
	if fits := min(n, v.Remaining); !v.Allowed && fits > 0 && !chargesRefused(&v) {
		_, _ = s.decide(ctx, sub.bucket, rules.Descriptor{Cost: fits}, true)
	}
}

// allowsNothing reports whether the rule of the bucket has requests_per_unit: 0.
func allowsNothing(v *server.Verdict) bool {
	for i := range v.Descriptors {
		if m := &v.Descriptors[i]; m.Ask >= 0 && m.Limit != nil && m.Limit.Amount == 0 {
			return true
		}
	}
	return false
}

func chargesRefused(v *server.Verdict) bool {
	for i := range v.Descriptors {
		if r := v.Descriptors[i].Rule; r != nil && r.Descriptor != nil && r.Descriptor.ChargeRefused {
			return true
		}
	}
	return false
}

// renew decides the proxy's next assignment.
func (s *Service) renew(ctx context.Context, w *work, set *rules.Set) {
	sub, now := w.subscription, time.Now()
	if !sub.reported.IsZero() && now.Sub(sub.reported) >= s.settings.Idle+3*sub.interval {
		w.abandon = true // the proxy has forgotten the bucket, or cannot report
		return
	}
	v, err := s.decide(ctx, sub.bucket, rules.Descriptor{}, true)
	if err != nil {
		// The assignment expires, and the proxy falls back to its configuration.
		sub.due, sub.waiting = now.Add(time.Second), now.Add(time.Second)
		return
	}
	must := sub.strategy != units || sub.rules != set || !now.Before(sub.due)
	sub.rules, sub.free = set, len(v.Each) == 0 && v.Allowed
	switch {
	case s.settings.Shadow:
		s.assign(w, now, allowAll, s.settings.TTL)
		return
	case !v.Allowed:
		s.assign(w, now, denyAll, v.RetryAfter)
		return
	case v.Limit == nil:
		s.assign(w, now, allowAll, s.settings.TTL)
		return
	case allowsNothing(&v):
		s.assign(w, now, denyAll, s.settings.TTL)
		return
	}
	n := sub.share(&s.settings, v.Limit, v.Remaining)
	if n > 0 && n <= sub.left() && !must {
		sub.waiting = now.Add(max(soonest, sub.interval/4))
		return
	}
	if n > 0 {
		v, n = s.take(ctx, sub.bucket, v, n)
	}
	if n == 0 {
		s.starve(w, now, &v)
		return
	}
	w.assign = true
	w.lasts, sub.due = sub.term(now, &v, s.settings.TTL)
	sub.replace(units, n)
	sub.waiting = time.Time{}
}

// take takes up to n units, and returns how many. v is the last decision.
func (s *Service) take(ctx context.Context, b *bucket, v server.Verdict, n int64) (server.Verdict, int64) {
	for range 3 { // others may take units at the same time
		next, err := s.decide(ctx, b, rules.Descriptor{Cost: n}, true)
		switch {
		case err != nil:
			return v, 0
		case next.Limit == nil && next.Allowed: // by new rules
			return next, 0
		case next.Allowed:
			return next, n
		}
		v = next
		if n = min(n-1, v.Remaining); n <= 0 {
			break
		}
	}
	return v, 0
}

// starve is renew for a limit with nothing left. A proxy keeps its units until its assignment is about to
// expire.
func (s *Service) starve(w *work, now time.Time, v *server.Verdict) {
	sub, wait := w.subscription, retry(now, v)
	last := sub.expires.Add(-700 * time.Millisecond)
	sub.waiting = now.Add(wait)
	if sub.strategy == units && now.Before(last) {
		sub.due = now.Add(min(wait, last.Sub(now)))
		return
	}
	s.assign(w, now, denyAll, wait)
}

// assign assigns a strategy other than units, or keeps the same one while it lasts long enough. It is checked
// again after wait.
func (s *Service) assign(w *work, now time.Time, to strategy, wait time.Duration) {
	sub, ttl := w.subscription, s.settings.TTL
	expires := sub.expires
	if sub.strategy != to || expires.Sub(now) < ttl/2 {
		w.assign, w.lasts, expires = true, ttl, now.Add(ttl)
		sub.replace(to, 0)
	}
	sub.due = now.Add(min(max(wait, soonest/10), expires.Add(-ttl/4).Sub(now)))
}

// count counts the messages sent for w.
func (w *work) count(m *metrics) {
	switch {
	case w.abandon:
		m.abandoned.Inc()
	case !w.assign:
	case w.subscription.strategy == allowAll:
		m.allowedAll.Inc()
	case w.subscription.strategy == denyAll:
		m.deniedAll.Inc()
	default:
		m.assignedUnits.Inc()
	}
}

type action = rlqs.RateLimitQuotaResponse_BucketAction

// actions are the actions to send for w, in order.
func (w *work) actions(to []*action) []*action {
	sub := w.subscription
	switch {
	case w.abandon:
		return append(to, &action{BucketId: sub.id, BucketAction: &rlqs.RateLimitQuotaResponse_BucketAction_AbandonAction_{
			AbandonAction: new(rlqs.RateLimitQuotaResponse_BucketAction_AbandonAction),
		}})
	case !w.assign:
		return to
	case sub.strategy == allowAll:
		return append(to, w.assignment(blanket(typev3.RateLimitStrategy_ALLOW_ALL)))
	case sub.strategy == denyAll:
		return append(to, w.assignment(blanket(typev3.RateLimitStrategy_DENY_ALL)))
	}
	// A token bucket equal to the former one would just go on, and Envoy fills a different one only as far as
	// the former was full. After any other strategy it is full. Both actions take effect at once.
	return append(to, w.assignment(blanket(typev3.RateLimitStrategy_DENY_ALL)), w.assignment(w.bucketOfUnits()))
}

func (w *work) assignment(by *typev3.RateLimitStrategy) *action {
	return &action{BucketId: w.subscription.id, BucketAction: &rlqs.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
		QuotaAssignmentAction: &rlqs.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
			AssignmentTimeToLive: durationpb.New(w.lasts),
			RateLimitStrategy:    by,
		},
	}}
}

func blanket(rule typev3.RateLimitStrategy_BlanketRule) *typev3.RateLimitStrategy {
	return &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: rule}}
}

// fillInterval is the time until a token comes back. A year is the longest that Envoy accepts.
const fillInterval = 365 * 24 * time.Hour

// bucketOfUnits is a token bucket that is full once.
func (w *work) bucketOfUnits() *typev3.RateLimitStrategy {
	return &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_TokenBucket{TokenBucket: &typev3.TokenBucket{
		MaxTokens:     uint32(w.subscription.size),
		TokensPerFill: wrapperspb.UInt32(1),
		FillInterval:  durationpb.New(fillInterval),
	}}}
}
