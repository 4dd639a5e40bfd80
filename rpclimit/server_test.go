package rpclimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/rpclimit"
)

func everybody(context.Context, *rpclimit.Call) string { return "everybody" }

func unknown(error) code.Code { return code.Code_UNKNOWN }

// retryAfter returns the delay of the RetryInfo of r; -1: it has none.
func retryAfter(r *rpclimit.Refusal) time.Duration {
	if d, ok := rpclimit.RetryDelay(r.Code, r.Details); ok {
		return d
	}
	return -1
}

// stream begins a stream that receives messages.
func stream(t *testing.T, ctx context.Context, s rpclimit.Server) *rpclimit.Running {
	t.Helper()
	r, refused := s.Gate().Begin(ctx, &rpclimit.Call{Method: "/a/B"})
	if refused != nil {
		t.Fatal(refused)
	}
	return r
}

// A message that is refused waits for exactly its turn, within MessageWait and the deadline; else it is
// refused at once, and the stream stays refused.
func TestMessageWait(t *testing.T) {
	for name, c := range map[string]struct {
		wait, deadline time.Duration
		messages       int           // that pass
		took           time.Duration // until the first is refused, or the eighth has passed
		code           code.Code
	}{
		"none":               {0, 0, 2, 0, code.Code_RESOURCE_EXHAUSTED},
		"too short":          {9 * time.Second, 0, 2, 0, code.Code_RESOURCE_EXHAUSTED},
		"long enough":        {10 * time.Second, 0, 8, 60 * time.Second, code.Code_OK},
		"deadline":           {time.Hour, 35 * time.Second, 5, 30 * time.Second, code.Code_RESOURCE_EXHAUSTED},
		"deadline too short": {time.Hour, 9 * time.Second, 2, 0, code.Code_RESOURCE_EXHAUSTED},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				by := rpclimit.By(nil, stint.MustLimit("6 per 1m burst 2"), everybody)
				r := stream(t, ctx, rpclimit.Server{Received: by, MessageWait: c.wait})
				start := time.Now()
				for i := range 8 {
					refused := r.Received(i, true)
					if refused == nil {
						continue
					}
					if i != c.messages || refused.Code != c.code || retryAfter(refused) != 10*time.Second {
						t.Errorf("message %d: %v, retry after %s", i, refused, retryAfter(refused))
					}
					c.messages = -1
					break
				}
				if took := time.Since(start); took.Round(time.Millisecond) != c.took || c.messages != 8 && c.messages != -1 {
					t.Errorf("it took %s, want %s; %d", took, c.took, c.messages)
				}
				if c.code == code.Code_OK {
					return
				}
				time.Sleep(time.Hour)
				again, sending := r.Received(9, true), r.Sending(9, true)
				err := r.Run(unknown, func() error { return nil })
				if again == nil || again != sending || err != error(again) {
					t.Errorf("after a refusal: %v, %v, %v", again, sending, err)
				}
			})
		})
	}
}

// A message that waits stops waiting with its context.
func TestMessageWaitIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := stream(t, ctx, rpclimit.Server{Sent: rpclimit.By(nil, stint.MustLimit("1 per 1m"), everybody), MessageWait: time.Hour})
		if refused := r.Sending(1, true); refused != nil {
			t.Fatal(refused)
		}
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		refused := r.Sending(2, true)
		if refused == nil || refused.Code != code.Code_CANCELLED || time.Since(start) != time.Second {
			t.Errorf("%v after %s", refused, time.Since(start))
		}
	})
}

// A call that is delayed leaves at the pace of the bucket, one that would be delayed for too long is
// refused and takes no place, and one that is canceled ends.
func TestShape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := rpclimit.Server{Decide: rpclimit.Shape(nil, stint.MustLimit("1 per 4s leaky_bucket burst 9"), everybody)}.Gate()
		begin := func(ctx context.Context) (time.Duration, *rpclimit.Refusal) {
			start := time.Now()
			_, refused := gate.Begin(ctx, new(rpclimit.Call))
			return time.Since(start), refused
		}
		if took, refused := begin(t.Context()); took != 0 || refused != nil {
			t.Fatal(took, refused)
		}
		short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if took, refused := begin(short); took != 0 || refused == nil || refused.Code != code.Code_RESOURCE_EXHAUSTED {
			t.Error("a short deadline:", took, refused)
		}
		if took, refused := begin(t.Context()); took.Round(time.Millisecond) != 4*time.Second || refused != nil {
			t.Error("the second:", took, refused)
		}
		canceled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if took, refused := begin(canceled); took != time.Second || refused == nil || refused.Code != code.Code_CANCELLED {
			t.Error("canceled:", took, refused)
		}
	})
}

// Calls that end while they wait give their turns to the next.
func TestTurnsOfEndedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := rpclimit.Server{Decide: rpclimit.Shape(nil, stint.MustLimit("10 per 1s leaky_bucket burst 50"), everybody)}.Gate()
		begin := func(ctx context.Context) *rpclimit.Refusal {
			_, refused := gate.Begin(ctx, new(rpclimit.Call))
			return refused
		}
		if refused := begin(t.Context()); refused != nil {
			t.Fatal(refused)
		}
		gone, end := context.WithCancel(t.Context())
		for range 20 {
			go begin(gone)
			synctest.Wait()
		}
		time.Sleep(50 * time.Millisecond)
		end()
		synctest.Wait()
		start := time.Now()
		if refused := begin(t.Context()); refused != nil || time.Since(start) != 50*time.Millisecond {
			t.Errorf("the next passed after %s (%v)", time.Since(start), refused)
		}
	})
}

// No more calls are delayed than MaxDelayed, of which one client has three quarters. Others are refused
// at once, and take no place in the bucket's queue.
func TestMaxDelayed(t *testing.T) {
	for most, want := range map[int]int{4: 3, 400: 10, -1: 0} {
		synctest.Test(t, func(t *testing.T) {
			gate := rpclimit.Server{MaxDelayed: most, MaxDelay: time.Hour, Decide: rpclimit.Shape(nil, stint.MustLimit("1 per 1s leaky_bucket burst 100"), everybody)}.Gate()
			if _, refused := gate.Begin(t.Context(), new(rpclimit.Call)); refused != nil {
				t.Fatal(refused)
			}
			var passed, failed atomic.Int64
			var all sync.WaitGroup
			start := time.Now()
			for range 10 {
				all.Go(func() {
					_, refused := gate.Begin(t.Context(), new(rpclimit.Call))
					switch {
					case refused == nil:
						passed.Add(1)
					case time.Since(start) == 0:
						failed.Add(1)
					}
				})
			}
			all.Wait()
			if passed.Load() != int64(want) || failed.Load() != int64(10-want) || time.Since(start).Round(time.Millisecond) != time.Duration(want)*time.Second {
				t.Errorf("MaxDelayed %d: %d passed, %d failed at once, after %s", most, passed.Load(), failed.Load(), time.Since(start))
			}
		})
	}
}

// A call that cannot be delayed for as long as Decide says is refused, and one that leaves ends. Both
// refund their units.
func TestDelayedCallsRefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refunds := 0
		gate := rpclimit.Server{MaxDelay: 2 * time.Second, Decide: func(context.Context, *rpclimit.Call, time.Duration) (rpclimit.Answer, error) {
			d := stint.Decision{Allowed: true, Outcome: stint.Allowed, Delay: 5 * time.Second, Limit: stint.MustLimit("1 per 5s leaky_bucket")}
			return rpclimit.Answer{Decision: d, Shape: true, Refund: func(ctx context.Context) {
				if ctx.Err() != nil {
					t.Error(ctx.Err())
				}
				refunds++
			}}, nil
		}}
		start := time.Now()
		_, refused := gate.Gate().Begin(t.Context(), new(rpclimit.Call))
		if refused == nil || refused.Code != code.Code_RESOURCE_EXHAUSTED || retryAfter(refused) != 3*time.Second || time.Since(start) != 0 || refunds != 1 {
			t.Error(refused, time.Since(start), refunds)
		}
		gate.MaxDelay = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, refused = gate.Gate().Begin(ctx, new(rpclimit.Call))
		if refused == nil || refused.Code != code.Code_CANCELLED || time.Since(start) != time.Second || refunds != 2 {
			t.Error(refused, time.Since(start), refunds)
		}
	})
}

// A Decide that panics, and a handler that does, leave no place taken.
func TestPanicsLeaveNothing(t *testing.T) {
	boom := true
	gate := rpclimit.Server{MaxInFlight: 1, Decide: func(context.Context, *rpclimit.Call, time.Duration) (rpclimit.Answer, error) {
		if boom {
			panic("a bug")
		}
		return rpclimit.Answer{Unlimited: true}, nil
	}}.Gate()
	panics := func(f func()) {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		f()
	}
	panics(func() { gate.Begin(t.Context(), new(rpclimit.Call)) })
	boom = false
	for range 2 {
		r, refused := gate.Begin(t.Context(), new(rpclimit.Call))
		if refused != nil {
			t.Fatal(refused)
		}
		if _, refused := gate.Begin(t.Context(), new(rpclimit.Call)); refused == nil || refused.Code != code.Code_UNAVAILABLE {
			t.Error("two at once:", refused)
		}
		panics(func() { _ = r.Run(unknown, func() error { panic("another bug") }) })
	}
}

// Watch bans clients whose calls end with a code.
func TestWatch(t *testing.T) {
	penalty, err := stint.NewPenalty(stint.PenaltySpec{Name: "guess", BanAfter: 3, BanFor: time.Hour, ForgetAfter: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	gate := rpclimit.Server{Decide: rpclimit.Watch(nil, nil, everybody, penalty, code.Code_UNAUTHENTICATED)}.Gate()
	wrong := errors.New("wrong password")
	for i, e := range []error{nil, wrong, nil, wrong, wrong} {
		r, refused := gate.Begin(t.Context(), new(rpclimit.Call))
		if refused != nil {
			t.Fatalf("call %d: %v", i, refused)
		}
		if got := r.Run(func(error) code.Code { return code.Code_UNAUTHENTICATED }, func() error { return e }); !errors.Is(got, e) {
			t.Error(got)
		}
	}
	_, refused := gate.Begin(t.Context(), new(rpclimit.Call))
	if refused == nil || refused.Code != code.Code_RESOURCE_EXHAUSTED || retryAfter(refused) < 59*time.Minute || !strings.Contains(refused.Message, "Banned") {
		t.Fatalf("%+v", refused)
	}
	q, ok := refused.Details[1].(*errdetails.QuotaFailure)
	if !ok || len(q.GetViolations()) != 1 || q.GetViolations()[0].GetSubject() != "penalty:guess" {
		t.Error(q)
	}
}

// A refusal of several limits names those that refused, with what they count. Without headers it names
// none.
func TestQuotaFailure(t *testing.T) {
	requests, tokens := stint.MustLimit("requests: 10 per 1m"), stint.MustLimit("500 per 1h fixed_window")
	each := []stint.Decision{
		{Allowed: true, Outcome: stint.Allowed, Limit: requests, Remaining: 3},
		{Outcome: stint.Limited, Limit: tokens, Key: "secret", RetryAfter: 1500 * time.Microsecond},
	}
	for dialect, violations := range map[httplimit.Dialect]int{0: 1, httplimit.Draft11: 1, httplimit.NoHeaders: 0} {
		gate := rpclimit.Server{Dialect: dialect, Decide: func(context.Context, *rpclimit.Call, time.Duration) (rpclimit.Answer, error) {
			return rpclimit.Answer{Decision: each[1], Each: each, Units: []string{"", "tokens"}, ID: "42"}, nil
		}}.Gate()
		_, refused := gate.Begin(t.Context(), new(rpclimit.Call))
		if refused.Trailer.Get("Stint-Decision") != "42" || retryAfter(refused) != 2*time.Millisecond {
			t.Errorf("%+v", refused)
		}
		found := 0
		for _, d := range refused.Details {
			q, ok := d.(*errdetails.QuotaFailure)
			if !ok {
				continue
			}
			for _, v := range q.GetViolations() {
				found++
				if v.GetSubject() != "limit:500 per 1h fixed_window" || v.GetQuotaMetric() != "tokens" || v.GetQuotaValue() != 500 || v.GetDescription() != "The limit is 500 per 1h fixed_window." {
					t.Error(v)
				}
			}
		}
		if found != violations {
			t.Errorf("%s: %d violations, want %d", dialect, found, violations)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("dialects that exclude each other")
		}
	}()
	rpclimit.Server{Dialect: httplimit.XRateLimit | httplimit.NoHeaders}.Gate()
}

// Hints to retry differ by chance, and are at most half longer.
func TestBusyHintsDiffer(t *testing.T) {
	gate := rpclimit.Server{Decide: func(context.Context, *rpclimit.Call, time.Duration) (rpclimit.Answer, error) {
		return rpclimit.Answer{Decision: stint.Decision{Outcome: stint.Limited, Busy: true, RetryAfter: time.Minute, Limit: stint.MustLimit("2 in_flight")}}, nil
	}}.Gate()
	seen := map[time.Duration]bool{}
	for range 50 {
		_, refused := gate.Begin(t.Context(), new(rpclimit.Call))
		d := retryAfter(refused)
		if d < time.Minute || d > 90*time.Second {
			t.Fatal(d)
		}
		seen[d] = true
	}
	if len(seen) < 40 {
		t.Errorf("%d different hints of 50", len(seen))
	}
}

// Whatever a Decide answers, a refusal can be sent: its texts are UTF-8, its details can be encoded, its
// metadata is printable, and the times in it agree.
func FuzzRefusal(f *testing.F) {
	f.Add("api", "slow down", "tokens", "id", int64(1_500_000_000), uint64(1))
	f.Add("", "\xff", "\x00", "\n", int64(-1), uint64(2))
	f.Add("ü", "", "", "", int64(stint.Never), uint64(3))
	f.Fuzz(func(t *testing.T, name, message, unit, cause string, retry int64, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		limit, err := stint.NewLimit(stint.Spec{Name: name, Amount: 1 + random.Int64N(100), Period: time.Minute})
		if err != nil {
			limit = stint.MustLimit("1 per 1m")
		}
		d := stint.Decision{Outcome: stint.Limited, Limit: limit, RetryAfter: max(0, time.Duration(retry)), Busy: random.IntN(4) == 0 && retry < int64(time.Hour)}
		a := rpclimit.Answer{Decision: d, Each: []stint.Decision{d}, Units: []string{unit}, Message: message, Cause: cause, Blocked: random.IntN(8) == 0}
		dialects := []httplimit.Dialect{0, httplimit.Draft11, httplimit.NoHeaders, httplimit.OpenAI | httplimit.Anthropic}
		gate := rpclimit.Server{Dialect: dialects[random.IntN(len(dialects))], Decide: func(context.Context, *rpclimit.Call, time.Duration) (rpclimit.Answer, error) {
			return a, nil
		}}.Gate()
		_, refused := gate.Begin(context.Background(), new(rpclimit.Call))
		if refused == nil || strings.ToValidUTF8(refused.Message, "") != refused.Message {
			t.Fatalf("%+v", refused)
		}
		for _, m := range refused.Details {
			packed, err := anypb.New(m)
			if err == nil {
				_, err = proto.Marshal(packed)
			}
			if err != nil {
				t.Errorf("%v: %v", m, err)
			}
		}
		for name, values := range refused.Trailer {
			for _, v := range values {
				if strings.ContainsFunc(name+v, func(r rune) bool { return r < ' ' || r > '~' }) {
					t.Errorf("%q: %q", name, v)
				}
			}
		}
		if a.Blocked {
			return
		}
		got, ok := rpclimit.RetryDelay(refused.Code, refused.Details)
		if want := d.RetryAfter != stint.Never && d.RetryAfter > 0 || d.Busy; ok != want {
			t.Errorf("RetryInfo %s, %t", got, ok)
		}
		if ok && (got < d.RetryAfter-1 || got%time.Millisecond != 0) && d.RetryAfter < stint.Never-time.Second {
			t.Errorf("RetryInfo %s, but %s", got, d.RetryAfter)
		}
	})
}

// A request or call that would be delayed for too long is refused by the limit with the delay, and not by
// the strictest one, whatever Decide said.
func TestTooLongDelayNamesItsLimit(t *testing.T) {
	few, slow := stint.MustLimit("few: 5 per 1h"), stint.MustLimit("slow: 60 per 1m leaky_bucket burst 30")
	each := []stint.Decision{
		{Allowed: true, Limit: few, Remaining: 1},
		{Allowed: true, Limit: slow, Remaining: 20, Delay: 10 * time.Second},
	}
	whole := stint.Decision{Allowed: true, Limit: few, Remaining: 1, Delay: 10 * time.Second}
	_, refused := rpclimit.Server{MaxDelay: time.Second, Decide: func(context.Context, *rpclimit.Call, time.Duration) (rpclimit.Answer, error) {
		return rpclimit.Answer{Decision: whole, Each: each, Shape: true}, nil
	}}.Gate().Begin(t.Context(), &rpclimit.Call{Method: "/a/B"})
	if refused == nil {
		t.Fatal("the call passes")
	}
	w := httptest.NewRecorder()
	httplimit.Middleware{MaxDelay: time.Second, Decide: func(*http.Request, time.Duration) (httplimit.Answer, error) {
		return httplimit.Answer{Decision: whole, Each: each, Shape: true}, nil
	}}.Wrap(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining"} {
		want := map[string]string{"X-RateLimit-Limit": "30", "X-RateLimit-Remaining": "20"}[name]
		if call, request := refused.Trailer.Get(name), w.Header().Get(name); call != want || request != want {
			t.Errorf("%s: %q for a call, %q for a request, want %s", name, call, request, want)
		}
	}
}
