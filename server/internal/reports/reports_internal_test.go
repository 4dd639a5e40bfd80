package reports

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

func open(t *testing.T, url string) Reports {
	t.Helper()
	s, err := redislimit.Connect(t.Context(), url, redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.Documents()
}

// Redis and Memory give the same answers to the same random calls, while parts and claims end.
func TestTwins(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	memory := &Memory{now: func() time.Time { return server.Now(t) }}
	twins(t, memory, open(t, server.URL()), func(by time.Duration) { clock.Jump(t, by) })
}

// A Cluster gives the same answers as Memory.
func TestTwinsOfCluster(t *testing.T) {
	t.Parallel()
	var hosts []string
	for _, s := range redistest.StartCluster(t, 3) {
		hosts = append(hosts, s.Addr)
	}
	twins(t, new(Memory), open(t, "redis+cluster://"+strings.Join(hosts, ",")), func(time.Duration) {})
}

func twins(t *testing.T, memory, redis Reports, jump func(time.Duration)) {
	ctx := t.Context()
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	// Times differ by minutes, so that the microseconds between the two calls change nothing.
	keep := func() time.Duration { return time.Duration(10+20*r.IntN(6)) * time.Minute }
	ended, held := 0, 0
	for i := range 1500 {
		name := pick("live", "seen-12", "a_b")
		switch r.IntN(8) {
		case 0, 1, 2:
			part, text, k := pick("i", "j", "k", "\x00é}{"), fmt.Append(nil, strings.Repeat("\xff\n", r.IntN(4)), i), keep()
			if r.IntN(20) == 0 {
				text = nil
			}
			if e1, e2 := memory.Report(ctx, name, part, text, k), redis.Report(ctx, name, part, text, k); e1 != nil || e2 != nil {
				t.Fatal(e1, e2)
			}
		case 3, 4:
			who, k := pick("i", "j"), keep()
			has1, e1 := memory.Claim(ctx, name, who, k)
			has2, e2 := redis.Claim(ctx, name, who, k)
			if has1 != has2 || e1 != nil || e2 != nil {
				t.Fatalf("step %d: claim: %t, %v; in Redis %t, %v", i, has1, e1, has2, e2)
			}
			if !has1 {
				held++
			}
		case 5:
			by := 20 * time.Minute * time.Duration(r.IntN(3))
			before, _ := memory.Reported(ctx, name)
			jump(by)
			after, _ := memory.Reported(ctx, name)
			ended += len(before) - len(after)
		default:
			same(t, memory, redis, name)
		}
	}
	if _, has := memory.(*Memory); has && memory.(*Memory).now != nil && ended < 50 || held < 50 {
		t.Errorf("only %d parts ended, and %d claims were refused: the test tests little", ended, held)
	}
}

func same(t *testing.T, memory, redis Reports, name string) {
	t.Helper()
	want, e1 := memory.Reported(t.Context(), name)
	got, e2 := redis.Reported(t.Context(), name)
	if e1 != nil || e2 != nil || !maps.EqualFunc(want, got, bytes.Equal) {
		t.Fatalf("%s: %d parts %.200q, %v; in Redis %d parts %.200q, %v", name, len(want), want, e1, len(got), got, e2)
	}
}

// A report keeps the 1,000 parts that end last, and large ones arrive whole.
func TestManyParts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	memory, redis := new(Memory), open(t, server.URL())
	both := func(part string, text []byte, keep time.Duration) {
		t.Helper()
		for _, to := range []Reports{memory, redis} {
			if err := to.Report(t.Context(), "many", part, text, keep); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range MaxParts + 30 {
		// The first to be written are not the first to end.
		both(fmt.Sprint(i), bytes.Repeat([]byte{byte(i)}, 2000), time.Hour+time.Duration(i*7919%(MaxParts+30))*time.Minute)
	}
	same(t, memory, redis, "many")
	both("first", nil, time.Minute) // ends before all others
	same(t, memory, redis, "many")
	for i := range 20 {
		both(fmt.Sprint("large", i), bytes.Repeat([]byte{byte(i), 0}, MaxText/2), 1000*time.Hour)
	}
	same(t, memory, redis, "many")
	all, _ := memory.Reported(t.Context(), "many")
	if len(all) != MaxParts || all["first"] != nil || len(all["large3"]) != MaxText {
		t.Errorf("%d parts", len(all))
	}
}

// All of a report, and a claim, expire in Redis.
func TestExpiry(t *testing.T) {
	server := redistest.Start(t)
	redis := open(t, server.URL())
	for part, keep := range map[string]time.Duration{"a": time.Hour, "b": 3 * time.Hour, "c": 2 * time.Hour} {
		if err := redis.Report(t.Context(), "live", part, []byte("x"), keep); err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := redis.Claim(t.Context(), "live", "i", 3*time.Hour); !ok || err != nil {
		t.Fatal(ok, err)
	}
	keys, err := server.Do(t, "KEYS", "*").AsStrSlice()
	slices.Sort(keys)
	if want := []string{"stint:{claim:live}", "stint:{report:live}ends", "stint:{report:live}texts"}; err != nil || !slices.Equal(keys, want) {
		t.Fatalf("keys %q, %v", keys, err)
	}
	for _, key := range keys {
		left, err := server.Do(t, "PTTL", key).AsInt64()
		if got := time.Duration(left) * time.Millisecond; err != nil || got < 2*time.Hour || got > 3*time.Hour {
			t.Errorf("%s expires in %s, %v", key, got, err)
		}
	}
}

// Of many claimants, one gets true at each time.
func TestOneClaimant(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, all := range [][]Reports{{new(Memory)}, {open(t, server.URL()), open(t, server.URL())}} {
		for round := range 20 {
			var got atomic.Int64
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					ok, err := all[i%len(all)].Claim(t.Context(), fmt.Sprint("round", round), fmt.Sprint(i), time.Hour)
					if err != nil {
						t.Error(err)
					}
					if ok {
						got.Add(1)
					}
				})
			}
			wg.Wait()
			if got.Load() != 1 {
				t.Fatalf("round %d: %d claimants", round, got.Load())
			}
		}
	}
}

// Both refuse the same arguments.
func TestInvalidReports(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	long := strings.Repeat("x", 201)
	for what, r := range map[string]Reports{"memory": new(Memory), "redis": open(t, server.URL())} {
		for i, err := range []error{
			r.Report(t.Context(), "Live", "i", nil, time.Hour),
			r.Report(t.Context(), "", "i", nil, time.Hour),
			r.Report(t.Context(), strings.Repeat("x", 65), "i", nil, time.Hour),
			r.Report(t.Context(), "live", "", nil, time.Hour),
			r.Report(t.Context(), "live", long, nil, time.Hour),
			r.Report(t.Context(), "live", "i", nil, 0),
			r.Report(t.Context(), "live", "i", nil, -1),
			r.Report(t.Context(), "live", "i", nil, 367*24*time.Hour),
			r.Report(t.Context(), "live", "i", make([]byte, MaxText+1), time.Hour),
			claimed(r, "a b", "i", time.Hour), claimed(r, "a", "", time.Hour), claimed(r, "a", long, time.Hour), claimed(r, "a", "i", 0),
			second(r.Reported(t.Context(), "a}")),
		} {
			if err == nil {
				t.Errorf("%s: no error for call %d", what, i)
			}
		}
		if err := r.Report(t.Context(), "live", long[:200], make([]byte, MaxText), time.Nanosecond); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func claimed(r Reports, name, who string, keep time.Duration) error {
	return second(r.Claim(context.Background(), name, who, keep))
}

func second[T any](_ T, err error) error { return err }

// Reports that cannot be read or written give errors that say why.
func TestBrokenReports(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	redis := open(t, server.URL())
	server.Do(t, "SET", "stint:{report:live}ends", "x")
	server.Do(t, "LPUSH", "stint:{claim:live}", "x")
	for _, err := range []error{
		redis.Report(t.Context(), "live", "i", nil, time.Hour),
		second(redis.Reported(t.Context(), "live")),
		claimed(redis, "live", "i", time.Hour),
	} {
		if err == nil || !strings.Contains(err.Error(), "another type of value") {
			t.Errorf("a key of another type: %v", err)
		}
	}
	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	if err := redis.Report(t.Context(), "other", "i", nil, time.Hour); err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("without memory: %v", err)
	}
}
