package rpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rpclimit"
)

// refusedFor is the error of a server that asks to wait.
type refusedFor time.Duration

func (refusedFor) Error() string { return "not now" }

func delayOf(err error) (time.Duration, bool) {
	var r refusedFor
	ok := errors.As(err, &r)
	return time.Duration(r), ok
}

// A refused call is made again exactly when the server allows it, and others of its method and key wait
// for the same instant.
func TestPacerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := rpclimit.Client{Key: rpclimit.Metadata("x-user")}.Pacer(delayOf)
		start := time.Now()
		open := start.Add(5 * time.Second)
		at := make(chan string, 20)
		call := func(method, user string) {
			c := rpclimit.Call{Method: method, Metadata: func(string) []string { return []string{user} }}
			err := pacer.Unary(t.Context(), &c, func() error {
				at <- method + " " + user + " " + strconv.Itoa(int(time.Since(start)/time.Second))
				if wait := time.Until(open); wait > 0 && method == "/a/B" && user == "ann" {
					return refusedFor(wait)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		go call("/a/B", "ann")
		time.Sleep(time.Second)
		for range 3 {
			go call("/a/B", "ann")
		}
		synctest.Wait()
		call("/a/C", "ann")
		call("/a/B", "bob")
		time.Sleep(time.Minute)
		synctest.Wait()
		close(at)
		got := map[string]int{}
		for a := range at {
			got[a]++
		}
		if len(got) != 4 || got["/a/B ann 0"] != 1 || got["/a/B ann 5"] != 4 || got["/a/C ann 1"] != 1 || got["/a/B bob 1"] != 1 {
			t.Errorf("%v", got)
		}
	})
}

// A server that asks for too long holds calls back for no longer than MaxRetryDelay.
func TestPacerBoundsServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := rpclimit.Client{MaxRetryDelay: 10 * time.Second}.Pacer(delayOf)
		sent := 0
		call := func() error {
			return pacer.Unary(t.Context(), new(rpclimit.Call), func() error { sent++; return refusedFor(1000 * time.Hour) })
		}
		start := time.Now()
		if err := call(); !errors.Is(err, refusedFor(1000*time.Hour)) || time.Since(start) != 0 {
			t.Error(err, time.Since(start))
		}
		if err := call(); err == nil || time.Since(start) != 10*time.Second || sent != 2 {
			t.Error(err, time.Since(start), sent)
		}
	})
}

// However many methods servers refuse, the memory is bounded, and pauses that are over make room.
func TestPausesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := rpclimit.Client{Refuse: true}.Pacer(delayOf)
		call := func(method int) (sent bool) {
			_ = pacer.Unary(t.Context(), &rpclimit.Call{Method: strconv.Itoa(method)}, func() error { sent = true; return refusedFor(time.Second) })
			return sent
		}
		const most = 10_000
		for i := range most + 100 {
			call(i)
		}
		for _, i := range []int{0, most - 1} {
			if call(i) {
				t.Errorf("method %d was not held back", i)
			}
		}
		if !call(most) {
			t.Error("more are remembered than there is room for")
		}
		time.Sleep(2 * time.Second)
		call(most + 1)
		if call(most + 1) {
			t.Error("what is over makes no room")
		}
	})
}

// A Pacer holds a unit while a call runs, also if it panics, and not while it waits for the server.
func TestPacerHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, limit := new(stint.Limiter), stint.MustLimit("own: 1 in_flight")
		pacer := rpclimit.Client{Limit: limit, Limiter: limiter, Key: everybody, Refuse: true}.Pacer(delayOf)
		held := func() int64 {
			d, err := limiter.Peek(t.Context(), "everybody", limit)
			if err != nil {
				t.Fatal(err)
			}
			return d.Held
		}
		err := pacer.Unary(t.Context(), new(rpclimit.Call), func() error {
			var refused *rpclimit.Refusal
			if err := pacer.Unary(t.Context(), new(rpclimit.Call), func() error { return nil }); !errors.As(err, &refused) || refused.Code != code.Code_RESOURCE_EXHAUSTED || held() != 1 {
				t.Error(err, held())
			}
			return nil
		})
		if err != nil || held() != 0 {
			t.Error(err, held())
		}
		func() {
			defer func() { _ = recover() }()
			_ = pacer.Unary(t.Context(), new(rpclimit.Call), func() error { panic("a bug") })
		}()
		if held() != 0 {
			t.Error("a panic holds", held())
		}
		waits := rpclimit.Client{Limit: limit, Limiter: limiter, Key: everybody}.Pacer(delayOf)
		go func() {
			first := true
			_ = waits.Unary(t.Context(), new(rpclimit.Call), func() error {
				if first {
					first = false
					return refusedFor(time.Second)
				}
				return nil
			})
		}()
		synctest.Wait()
		if held() != 0 {
			t.Error("it holds while it waits")
		}
		time.Sleep(2 * time.Second)
	})
}

// slow is a Store whose server does not answer in time.
type slow struct{ stint.Memory }

func (*slow) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, fmt.Errorf("redis: %w", context.DeadlineExceeded)
}

// A timeout of the Store is not the deadline of the call.
func TestPacerWithoutTheStore(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		pacer := rpclimit.Client{Limit: stint.MustLimit("own: 1 per 1m"), Limiter: stint.NewLimiter(new(slow)), Key: everybody, Refuse: refuse}.Pacer(delayOf)
		if _, refused := pacer.Begin(t.Context(), new(rpclimit.Call)); refused == nil || refused.Code != code.Code_UNAVAILABLE || !errors.Is(refused, context.DeadlineExceeded) {
			t.Error(refused)
		}
	}
}

// A Pacer that waits in line for an in-flight limit gets its turn, and stops with its context.
func TestPacerStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pacer := rpclimit.Client{Limit: stint.MustLimit("own: 1 in_flight"), Key: everybody}.Pacer(delayOf)
		o, refused := pacer.Begin(t.Context(), new(rpclimit.Call))
		if refused != nil {
			t.Fatal(refused)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		if _, refused = pacer.Begin(ctx, new(rpclimit.Call)); refused == nil || refused.Code != code.Code_CANCELLED {
			t.Error(refused)
		}
		time.AfterFunc(time.Minute, func() { o.End(nil) })
		second, refused := pacer.Begin(t.Context(), new(rpclimit.Call))
		if refused != nil {
			t.Fatal(refused)
		}
		second.End(nil)
	})
}

// Whatever a server writes into a RetryInfo, the delay is not negative, and only two codes have one.
func FuzzRetryDelay(f *testing.F) {
	f.Add(int32(8), int64(1), int32(500))
	f.Add(int32(14), int64(math.MaxInt64), int32(math.MaxInt32))
	f.Add(int32(8), int64(-1), int32(1))
	f.Add(int32(5), int64(1), int32(0))
	f.Fuzz(func(t *testing.T, c int32, seconds int64, nanos int32) {
		d := &durationpb.Duration{Seconds: seconds, Nanos: nanos}
		got, ok := rpclimit.RetryDelay(code.Code(c), []proto.Message{&errdetails.QuotaFailure{}, &errdetails.RetryInfo{RetryDelay: d}})
		valid := seconds >= 0 && seconds <= 315_576_000_000 && nanos >= 0 && nanos < 1e9 && (c == 8 || c == 14)
		if ok != valid || ok && (got < 0 || seconds < 1e9 && got != time.Duration(seconds)*time.Second+time.Duration(nanos)) {
			t.Errorf("%d, %v: %s, %t", c, d, got, ok)
		}
		if _, ok := rpclimit.RetryDelay(code.Code(c), []proto.Message{new(errdetails.RetryInfo)}); ok {
			t.Error("a RetryInfo without a delay")
		}
	})
}
