package quota_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// proxy does what Envoy's filter rate_limit_quota does (source/extensions/filters/http/rate_limit_quota):
// one stream for all buckets, a report of a new bucket at once and of all buckets in each interval,
// counters that are cleared when a report is made, whether it can be sent or not; assignments by
// token bucket and by blanket rule; and expiry in whole seconds. requests_per_time_unit is ignored, as Envoy
// does. It is not safe for concurrent use.
type proxy struct {
	t        testing.TB
	domain   string
	interval time.Duration
	// literal makes it send a report whenever an assignment is applied, as the protocol says and
	// Envoy does not.
	literal bool
	// noAssignment is the strategy before the first assignment; nil: allow. expired is the one
	// after an assignment expired, for expiredFor; nil: noAssignment.
	noAssignment, expired *typev3.RateLimitStrategy
	expiredFor            time.Duration

	// connect opens a stream; nil: it fails. send sends on it; an error closes it.
	connect func() (send func(*rlqs.RateLimitQuotaUsageReports) error)
	send    func(*rlqs.RateLimitQuotaUsageReports) error

	buckets map[string]*proxyBucket
	next    time.Time // report
	opened  int       // streams
	log     []string
}

type proxyBucket struct {
	id              *rlqs.BucketId
	allowed, denied uint64
	lastReport      time.Time

	assigned *typev3.RateLimitStrategy // nil: noAssignment
	fallback bool                      // assigned is expired
	expires  time.Time                 // zero: never
	tokens   *tokens
}

// tokens is Envoy's AtomicTokenBucketImpl.
type tokens struct {
	most, have float64
	perSecond  float64
	at         time.Time
	grantedAt  time.Time // when the service sent it, for the tests
}

func (k *tokens) fill() {
	now := time.Now()
	k.have = min(k.most, k.have+now.Sub(k.at).Seconds()*k.perSecond)
	k.at = now
}

func newTokens(to *typev3.TokenBucket, old *tokens) *tokens {
	seconds := to.GetFillInterval().GetSeconds() // Envoy drops the nanoseconds
	if seconds == 0 {
		panic("a fill interval below a second fills without bound in Envoy")
	}
	k := &tokens{most: float64(to.GetMaxTokens()), at: time.Now()}
	k.perSecond = max(float64(to.GetTokensPerFill().GetValue())/float64(seconds), 1.0/(365*24*60*60))
	k.have = k.most
	if old != nil {
		old.fill()
		k.have = float64(uint64(k.most * (old.have / old.most)))
	}
	return k
}

// equalTokens compares as Envoy does: without the seconds of the interval.
func equalTokens(a, b *typev3.TokenBucket) bool {
	return a.GetMaxTokens() == b.GetMaxTokens() && a.GetTokensPerFill().GetValue() == b.GetTokensPerFill().GetValue() &&
		a.GetFillInterval().GetNanos() == b.GetFillInterval().GetNanos()
}

func bucketID(pairs ...string) *rlqs.BucketId {
	id := &rlqs.BucketId{Bucket: make(map[string]string)}
	for i := 0; i < len(pairs); i += 2 {
		id.Bucket[pairs[i]] = pairs[i+1]
	}
	return id
}

func idText(id *rlqs.BucketId) string {
	var text string
	for _, key := range slices.Sorted(maps.Keys(id.GetBucket())) {
		text += fmt.Sprintf("%q=%q ", key, id.GetBucket()[key])
	}
	return text
}

// request decides a request of a bucket.
func (p *proxy) request(id *rlqs.BucketId) bool {
	name := idText(id)
	b := p.buckets[name]
	if b == nil {
		return p.first(name, id)
	}
	by := b.assigned
	if by == nil {
		by = p.noAssignment
	}
	allowed := true
	switch s := by.GetStrategy().(type) {
	case *typev3.RateLimitStrategy_BlanketRule_:
		allowed = s.BlanketRule == typev3.RateLimitStrategy_ALLOW_ALL
	case *typev3.RateLimitStrategy_TokenBucket:
		b.tokens.fill()
		if allowed = b.tokens.have >= 1; allowed {
			b.tokens.have--
		}
	}
	if allowed {
		b.allowed++
	} else {
		b.denied++
	}
	return allowed
}

// first is the first request of a bucket: it is reported at once.
func (p *proxy) first(name string, id *rlqs.BucketId) bool {
	allowed := p.noAssignment.GetBlanketRule() != typev3.RateLimitStrategy_DENY_ALL
	b := &proxyBucket{id: id, lastReport: time.Now()}
	if allowed {
		b.allowed = 1
	} else {
		b.denied = 1
	}
	if p.buckets == nil {
		p.buckets = make(map[string]*proxyBucket)
	}
	if p.opened == 0 { // the first bucket opens the stream
		p.reopen()
		p.next = time.Now().Add(p.interval)
	}
	p.buckets[name] = b
	p.sendReport(p.report(b))
	return allowed
}

func (p *proxy) reopen() {
	p.opened++
	p.send = nil
	if p.connect != nil {
		p.send = p.connect()
	}
}

// tick does what is due: a report of all buckets, and expiries.
func (p *proxy) tick() {
	now := time.Now()
	for _, b := range p.buckets {
		if !b.expires.IsZero() && !now.Before(b.expires) {
			p.expire(b)
		}
	}
	if p.opened == 0 || now.Before(p.next) {
		return
	}
	p.next = now.Add(p.interval)
	all := make([]*proxyBucket, 0, len(p.buckets))
	for _, name := range slices.Sorted(maps.Keys(p.buckets)) {
		all = append(all, p.buckets[name])
	}
	m := p.report(all...) // before it looks whether there is a stream
	if p.send == nil {
		p.reopen()
	}
	p.sendReport(m)
}

func (p *proxy) expire(b *proxyBucket) {
	b.expires = time.Time{}
	if b.fallback || p.expired == nil {
		b.assigned, b.tokens, b.fallback = nil, nil, false
		return
	}
	b.assigned, b.fallback, b.tokens = p.expired, true, nil
	b.expires = time.Now().Add(p.expiredFor)
}

func (p *proxy) report(of ...*proxyBucket) *rlqs.RateLimitQuotaUsageReports {
	m := &rlqs.RateLimitQuotaUsageReports{Domain: p.domain}
	for _, b := range of {
		now := time.Now()
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId:           b.id,
			TimeElapsed:        &durationpb.Duration{Seconds: int64(now.Sub(b.lastReport) / time.Second)},
			NumRequestsAllowed: b.allowed,
			NumRequestsDenied:  b.denied,
		})
		b.allowed, b.denied, b.lastReport = 0, 0, now
	}
	return m
}

func (p *proxy) sendReport(m *rlqs.RateLimitQuotaUsageReports) {
	if p.send == nil {
		return // Envoy drops what it has counted
	}
	if err := p.send(m); err != nil {
		p.send = nil
	}
}

// closed says that the stream has ended.
func (p *proxy) closed() { p.send = nil }

// apply applies a response. It returns how many requests were counted in buckets that it abandons.
func (p *proxy) apply(m *rlqs.RateLimitQuotaResponse, sent time.Time) (erased uint64) {
	if err := m.ValidateAll(); err != nil {
		p.t.Errorf("invalid response: %v", err)
	}
	for _, a := range m.GetBucketAction() {
		name := idText(a.GetBucketId())
		b := p.buckets[name]
		if b == nil {
			continue
		}
		if a.GetAbandonAction() != nil {
			p.note("abandon")
			erased += b.allowed
			delete(p.buckets, name)
			continue
		}
		q := a.GetQuotaAssignmentAction()
		by := q.GetRateLimitStrategy()
		var k *tokens
		switch by.GetStrategy().(type) {
		case *typev3.RateLimitStrategy_BlanketRule_:
			p.note(by.GetBlanketRule().String())
		case *typev3.RateLimitStrategy_TokenBucket:
			to := by.GetTokenBucket()
			if old := b.assigned.GetTokenBucket(); old != nil && b.tokens != nil && equalTokens(old, to) {
				k = b.tokens
				p.note("same")
			} else {
				k = newTokens(to, b.tokens)
				k.grantedAt = sent
				p.note(fmt.Sprint(to.GetMaxTokens()))
			}
		default:
			p.t.Errorf("Envoy does not know the strategy %v", by)
			continue
		}
		b.assigned, b.tokens, b.fallback = by, k, false
		b.expires = time.Now().Add(time.Duration(q.GetAssignmentTimeToLive().GetSeconds()) * time.Second) // none: at once
		if p.literal {
			p.sendReport(p.report(b))
		}
	}
	return erased
}

func (p *proxy) note(what string) {
	if len(p.log) < 1000 {
		p.log = append(p.log, what)
	}
}

// has is how many tokens the proxy has for a bucket.
func (p *proxy) has(id *rlqs.BucketId) float64 {
	if b := p.buckets[idText(id)]; b != nil && b.tokens != nil {
		return b.tokens.have
	}
	return 0
}

func clone[M proto.Message](m M) M { return proto.Clone(m).(M) }
