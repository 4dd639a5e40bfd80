package quota_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/envoy/quota"
	"github.com/stintdev/stint/server/rules"
)

// While the store is away, nothing is assigned, and proxies do what they were configured to do when their
// assignments expire. What was used is charged when it is back.
func TestStoreAway(t *testing.T) {
	d := newDecider("100 per 1h fixed_window")
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		p := s.proxies[0]
		p.expired, p.expiredFor = blanket(typev3.RateLimitStrategy_DENY_ALL), time.Minute
		s.request(0, "v", 1)
		d.fail(errAway)
		s.log(0)
		if n := s.request(0, "v", 10); n != 10 {
			t.Errorf("%d allowed of what was assigned", n)
		}
		s.wait(21 * time.Second)
		s.want("away", s.log(0), "")
		if n := s.request(0, "v", 1); n != 0 {
			t.Error("allowed after the assignment expired")
		}
		d.fail(nil)
		s.wait(6 * time.Second)
		if n := s.request(0, "v", 1); n != 1 {
			t.Error("denied although the store is back")
		}
		s.wait(10 * time.Second)
		if have := int64(p.has(bucketID("k", "v"))); d.remaining("v")+have > 88 {
			t.Errorf("%d remain and the proxy has %d: 12 were used", d.remaining("v"), have)
		}
	})
}

// A proxy whose stream was cut keeps what it has until that expires, and gets more over another
// stream. Of what it had nothing is given back, because nobody knows what it used, and what it
// reports over the other stream is charged, because nobody knows that it had it.
func TestCutStream(t *testing.T) {
	d := newDecider("1000 per 1h fixed_window")
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		s.request(0, "v", 1)
		s.wires[0].cut()
		s.settle()
		if streams, buckets := s.service.Size(); streams != 0 || buckets != 0 {
			t.Errorf("%d streams, %d subscriptions are left", streams, buckets)
		}
		if n := s.request(0, "v", 600); n != 500 {
			t.Errorf("%d allowed of 500", n)
		}
		s.log(0)
		s.wait(6 * time.Second)
		if n := s.request(0, "v", 60); n != 0 || d.charged != 501 {
			t.Errorf("%d allowed and %d charged after %q", n, d.charged, s.log(0))
		}
	})
	d = newDecider("1000 per 1h fixed_window")
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		s.request(0, "v", 1)
		s.wires[0].cut()
		s.settle()
		s.request(0, "v", 100)
		s.wait(6 * time.Second)
		if n := s.request(0, "v", 100); n != 100 || d.charged != 101 || d.back != 0 {
			t.Errorf("%d allowed, %d charged, %d given back, after %q", n, d.charged, d.back, s.log(0))
		}
	})
}

func TestStop(t *testing.T) {
	d := newDecider("100 per 1m fixed_window")
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		s.request(0, "v", 1)
		s.service.Stop()
		<-s.wires[0].done
		if status.Code(s.wires[0].err) != codes.Unavailable {
			t.Error(s.wires[0].err)
		}
		w := dial(s.service, func() time.Duration { return 0 })
		<-w.done
		if status.Code(w.err) != codes.Unavailable {
			t.Errorf("a stream after Stop: %v", w.err)
		}
		s.settle()
		if n := s.request(0, "v", 60); n != 50 {
			t.Errorf("%d allowed of the 50 that the proxy has", n)
		}
	})
}

func TestBounds(t *testing.T) {
	d := newDecider("100 per 1m fixed_window")
	play(t, d, quota.Settings{MaxStreams: 2, MaxBuckets: 12}, 2, func(s *scene) {
		for i := range 10 {
			s.request(0, fmt.Sprint("a", i), 1)
		}
		if _, n := s.service.Size(); n != 3 {
			t.Errorf("one stream has %d subscriptions of 12", n)
		}
		if n := s.request(0, "a9", 5); n != 5 {
			t.Errorf("%d allowed: a bucket without an assignment is as it was configured", n)
		}
		s.request(1, "b", 1)
		w := dial(s.service, func() time.Duration { return 0 })
		<-w.done
		if status.Code(w.err) != codes.ResourceExhausted {
			t.Errorf("a third stream: %v", w.err)
		}
	})
}

// A subscription takes the bytes that docs/bounds.md promises, and one with a long identifier
// as many for each bucket that it counts for.
func TestBytesOfASubscription(t *testing.T) {
	for _, length := range []int{10, 1000, stint.MaxKey - 10} {
		const room = 8000
		s, err := quota.New(newDecider("100 per 1h"), quota.Settings{MaxBuckets: room})
		if err != nil {
			t.Fatal(err)
		}
		m := &rlqs.RateLimitQuotaUsageReports{Domain: "d"}
		for i := range room / 4 {
			m.BucketQuotaUsages = append(m.BucketQuotaUsages, &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
				BucketId: bucketID("k", fmt.Sprintf("%0*d", length, i)), NumRequestsAllowed: 1,
			})
		}
		text, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		p := &pump{left: 1, hold: make(chan bool)}
		p.m = new(rlqs.RateLimitQuotaUsageReports)
		if err := proto.Unmarshal(text, p.m); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- s.StreamRateLimitQuotas(p) }()
		for p.sent.Load() < int64(min(room/4/(1+(length+4)/256), room/4)+499)/500 {
			time.Sleep(time.Millisecond)
		}
		p.m = nil
		_, n := s.Size()
		runtime.GC()
		runtime.ReadMemStats(&after)
		weight := n * (1 + (length+4)/256)
		if weight < room/8 || weight > room/4 {
			t.Errorf("%d subscriptions of %d bytes", n, length)
		}
		const others = 512 << 10 // what the rest of the process may take meanwhile
		if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc) - others) / int64(weight); each > 1200 && !attack.RaceDetector {
			t.Errorf("%d bytes for each bucket that a subscription of %d bytes counts for: the bounds say 1,200", each, length)
		} else {
			t.Logf("%d bytes: %d a bucket", length, each)
		}
		runtime.KeepAlive(text)
		close(p.hold)
		<-ended
	}
}

func TestMalformedReports(t *testing.T) {
	usage := func(id *rlqs.BucketId) []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage {
		return []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{{BucketId: id, NumRequestsAllowed: 1}}
	}
	long := strings.Repeat("x", stint.MaxKey)
	many := bucketID()
	for i := range 65 {
		many.Bucket[fmt.Sprint(i)] = "v"
	}
	for _, test := range []struct {
		reports []*rlqs.RateLimitQuotaUsageReports
		want    string // empty: it is well formed
	}{
		{[]*rlqs.RateLimitQuotaUsageReports{{}}, "the first report must have a domain"},
		{[]*rlqs.RateLimitQuotaUsageReports{{Domain: "d"}, {Domain: "e"}}, `the domain of the stream is "d" and cannot change: open another stream`},
		{[]*rlqs.RateLimitQuotaUsageReports{{Domain: long}}, "domain of 4096 bytes: at most 1024"},
		{[]*rlqs.RateLimitQuotaUsageReports{{Domain: "d", BucketQuotaUsages: usage(nil)}}, "bucket_id must not be empty"},
		{[]*rlqs.RateLimitQuotaUsageReports{{Domain: "d", BucketQuotaUsages: usage(bucketID("k", ""))}}, "bucket_id must not have an empty key or value"},
		{[]*rlqs.RateLimitQuotaUsageReports{{Domain: "d", BucketQuotaUsages: usage(bucketID("k", long))}}, "bucket_id of 4097 bytes: at most 4096"},
		{[]*rlqs.RateLimitQuotaUsageReports{{Domain: "d", BucketQuotaUsages: usage(many)}}, "bucket_id has 65 entries: at most 64"},
		// Envoy sends these: no buckets, the domain again, no time.
		{[]*rlqs.RateLimitQuotaUsageReports{{Domain: "d"}, {Domain: "d"}, {}, {BucketQuotaUsages: usage(bucketID("k", "v"))}}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, err := quota.New(newDecider("100 per 1m"), quota.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			w := dial(s, func() time.Duration { return 0 })
			for _, m := range test.reports {
				_ = w.send(m)
				synctest.Wait()
			}
			switch {
			case test.want == "" && w.ctx.Err() != nil:
				t.Errorf("%v: %v", test.reports, w.err)
			case test.want != "" && (status.Code(w.err) != codes.InvalidArgument || status.Convert(w.err).Message() != test.want):
				t.Errorf("%v, want %q", w.err, test.want)
			}
			w.cut()
		})
	}
}

// The order of entries is that of their keys, and no two buckets have one name.
func TestBucketsAreTold(t *testing.T) {
	var seen []string
	d := newDecider("100 per 1m fixed_window")
	play(t, d, quota.Settings{}, 1, func(s *scene) {
		rec := &recorder{decider: d, seen: &seen}
		var err error
		if s.service, err = quota.New(rec, quota.Settings{}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []*rlqs.BucketId{bucketID("b", "2", "a", "1", "c", "3"), bucketID("a", "1", "b", "2"), bucketID("a", "1b", "2", "c")} {
			s.proxies[0].request(id)
			s.settle()
		}
		if _, n := s.service.Size(); n != 3 {
			t.Errorf("%d buckets", n)
		}
	})
	if want := "a=1 b=2 c=3"; !slices.Contains(seen, want) {
		t.Errorf("decided %q, want %q", seen, want)
	}
}

type recorder struct {
	*decider
	seen *[]string
}

func (r *recorder) Decide(ctx context.Context, in *rules.Input, at time.Time) (server.Verdict, error) {
	var all []string
	for _, e := range in.Descriptors.List[0].Entries {
		all = append(all, e.Key+"="+e.Value)
	}
	r.mu.Lock()
	*r.seen = append(*r.seen, strings.Join(all, " "))
	r.mu.Unlock()
	return r.decider.Decide(ctx, in, at)
}

func TestSettings(t *testing.T) {
	for _, test := range []struct {
		settings quota.Settings
		want     string
	}{
		{quota.Settings{}, ""},
		{quota.Settings{TTL: 1500 * time.Millisecond}, "quota: TTL 1.5s: must be whole seconds from 4s to 1h"},
		{quota.Settings{TTL: 90 * time.Second, Idle: time.Minute}, "quota: Idle 1m0s: must be at least the TTL, 1m30s"},
		{quota.Settings{MaxBuckets: -1}, "quota: MaxStreams 1000, MaxBuckets -1: must not be negative"},
	} {
		_, err := quota.New(newDecider("1 per 1s"), test.settings)
		if got := fmt.Sprint(err); test.want == "" && err != nil || test.want != "" && got != test.want {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
	var s quota.Shares
	if err := s.UnmarshalText([]byte("equal")); err != nil || s != quota.Equally || s.String() != "equal" {
		t.Error(s, err)
	}
	if err := s.UnmarshalText([]byte("fair")); err == nil {
		t.Error("no error")
	}
}

// panics decides nothing.
type panics struct{ *decider }

func (p panics) Decide(context.Context, *rules.Input, time.Time) (server.Verdict, error) {
	panic("of a rule")
}

// A panic about one of many buckets reaches the goroutine of the stream, which can contain it. In
// another goroutine it would end the process.
func TestAttackPanicOfABucket(t *testing.T) {
	s, err := quota.New(panics{newDecider("10 per 1m")}, quota.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	report := new(rlqs.RateLimitQuotaUsageReports)
	report.Domain = "d"
	for _, value := range []string{"a", "b", "c"} {
		report.BucketQuotaUsages = append(report.BucketQuotaUsages, &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId: &rlqs.BucketId{Bucket: map[string]string{"k": value}},
		})
	}
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "of a rule") {
			t.Errorf("%v", p)
		}
		if streams, buckets := s.Size(); streams != 0 || buckets != 0 {
			t.Errorf("%d streams, %d buckets are left", streams, buckets)
		}
	}()
	_ = s.StreamRateLimitQuotas(&oneReport{wire: wire{ctx: t.Context()}, report: report})
}

// oneReport is a stream with one report.
type oneReport struct {
	wire
	report *rlqs.RateLimitQuotaUsageReports
}

// Recv returns the report, and then waits.
func (o *oneReport) Recv() (*rlqs.RateLimitQuotaUsageReports, error) {
	if r := o.report; r != nil {
		o.report = nil
		return r, nil
	}
	<-o.ctx.Done()
	return nil, o.ctx.Err()
}
