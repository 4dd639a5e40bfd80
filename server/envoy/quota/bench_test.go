package quota_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/metadata"

	"github.com/stintdev/stint/server/envoy/quota"
)

// BenchmarkReport is the cost of one bucket in a report that needs no new assignment, and of one in a
// first report, which does.
func BenchmarkReport(b *testing.B) {
	for _, buckets := range []int{10, 10_000} {
		m := &rlqs.RateLimitQuotaUsageReports{Domain: "d"}
		for i := range buckets {
			m.BucketQuotaUsages = append(m.BucketQuotaUsages, &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: bucketID("k", fmt.Sprint(i), "env", "prod")})
		}
		for _, first := range []bool{false, true} {
			b.Run(fmt.Sprintf("buckets=%d/first=%t", buckets, first), func(b *testing.B) {
				b.ReportAllocs()
				for n := b.N; n > 0; {
					s, err := quota.New(newDecider("1000 per 1h"), quota.Settings{})
					if err != nil {
						b.Fatal(err)
					}
					p := &pump{m: m, left: 1}
					if !first {
						p.left = 1 + (n+buckets-1)/buckets
					}
					n -= buckets * max(1, p.left-1)
					_ = s.StreamRateLimitQuotas(p)
				}
			})
		}
	}
}

// pump is a stream that sends a report some times.
type pump struct {
	m    *rlqs.RateLimitQuotaUsageReports
	left int
	hold chan bool // the end of the stream waits until it is closed; nil: it does not
	sent atomic.Int64
}

func (p *pump) Recv() (*rlqs.RateLimitQuotaUsageReports, error) {
	if p.left == 0 {
		if p.hold != nil {
			<-p.hold
		}
		return nil, context.Canceled
	}
	p.left--
	return p.m, nil
}

func (p *pump) Send(*rlqs.RateLimitQuotaResponse) error { p.sent.Add(1); return nil }
func (p *pump) Context() context.Context                { return context.Background() }
func (p *pump) SetHeader(metadata.MD) error             { return nil }
func (p *pump) SendHeader(metadata.MD) error            { return nil }
func (p *pump) SetTrailer(metadata.MD)                  {}
func (p *pump) SendMsg(any) error                       { panic("not used") }
func (p *pump) RecvMsg(any) error                       { panic("not used") }
