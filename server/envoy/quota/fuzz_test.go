package quota_test

import (
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/proto"

	"github.com/stintdev/stint/server/envoy/quota"
)

// No report makes the service panic, or send what Envoy would not accept, or keep a subscription after its stream.
func FuzzReports(f *testing.F) {
	usage := func(allowed, denied uint64, pairs ...string) []byte {
		m := &rlqs.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
			{BucketId: bucketID(pairs...), NumRequestsAllowed: allowed, NumRequestsDenied: denied},
			{BucketId: bucketID(pairs...), NumRequestsAllowed: denied},
		}}
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	f.Add(usage(1, 0, "k", "v"), usage(1<<63, 1<<63, "k", "v"), uint8(1))
	f.Add(usage(0, 0, "k", "v", "a", "b"), usage(5, 1, "k", "w"), uint8(200))
	f.Add(usage(0, 0), []byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, first, second []byte, wait uint8) {
		synctest.Test(t, func(t *testing.T) {
			s, err := quota.New(newDecider("100 per 10s fixed_window"), quota.Settings{MaxBuckets: 8})
			if err != nil {
				t.Fatal(err)
			}
			w := dial(s, func() time.Duration { return 0 })
			for _, b := range [][]byte{first, second, second} {
				m := new(rlqs.RateLimitQuotaUsageReports)
				if proto.Unmarshal(b, m) != nil {
					continue
				}
				_ = w.send(m)
				time.Sleep(time.Duration(wait) * 100 * time.Millisecond)
				synctest.Wait()
				for _, r := range w.arrived() {
					if err := r.m.ValidateAll(); err != nil {
						t.Errorf("%v: %v", err, r.m)
					}
				}
			}
			if streams, n := s.Size(); n > 2 || streams > 1 {
				t.Errorf("%d streams, %d subscriptions", streams, n)
			}
			w.cut()
			if streams, n := s.Size(); streams+n != 0 {
				t.Errorf("%d streams, %d subscriptions are left", streams, n)
			}
		})
	})
}
