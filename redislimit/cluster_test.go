package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

func cluster(t *testing.T) *redislimit.Store {
	t.Helper()
	var hosts []string
	for _, s := range redistest.StartCluster(t, 3) {
		hosts = append(hosts, s.Addr)
	}
	s := open(t, "redis+cluster://"+strings.Join(hosts, ","))
	if !s.Server().Cluster {
		t.Fatal("the Store does not see that it is a Cluster")
	}
	return s
}

// Requests whose subjects lie in several slots are decided as in memory, and what
// a refused one took meanwhile is refunded.
func TestCluster(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	t.Run("as in memory", func(t *testing.T) { clusterAsMemory(t, s) })
	t.Run("concurrently", func(t *testing.T) { clusterConcurrently(t, s) })
	t.Run("each", func(t *testing.T) { clusterEach(t, s) })
	t.Run("paces", func(t *testing.T) { clusterPaces(t, s) })
	t.Run("bans", func(t *testing.T) { clusterBans(t, s) })
	t.Run("queues", func(t *testing.T) { clusterQueues(t, s) })
	t.Run("busy", func(t *testing.T) { clusterBusy(t, s) })
	t.Run("ban waits", func(t *testing.T) { clusterBanWaits(t, s) })
	t.Run("violations", func(t *testing.T) { clusterViolations(t, s) })
	t.Run("clear", func(t *testing.T) {
		if err := s.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		limit := stint.MustLimit("9 per 24h sliding_log")
		for i := range 20 {
			if d, err := stint.NewLimiter(s).Peek(t.Context(), fmt.Sprint("user", i), limit); err != nil || d.ResetAfter != 0 {
				t.Errorf("user%d is left: %+v, %v", i, d, err)
			}
		}
	})
}

func clusterAsMemory(t *testing.T, s *redislimit.Store) {
	ctx := t.Context()
	limits := []*stint.Limit{stint.MustLimit("5 per 10s"), stint.MustLimit("20 per 1s sliding_log"), stint.MustLimit("7 per 1s sliding_window"),
		stint.MustLimit("3 per 2s leaky_bucket"), stint.MustLimit("9 per 1s fixed_window")}
	brief := penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: 500 * time.Millisecond, ForgetAfter: time.Second})
	var memory stint.Memory
	r := rand.New(rand.NewPCG(1, 1))
	now := time.Now()
	steps := 3000
	if testing.Short() {
		steps = 500
	}
	for i := range steps {
		now = now.Add(time.Duration(r.IntN(200_000)) * time.Microsecond)
		q := stint.Request{At: now}
		queued := false // of two queues in two slots, a place in one is lost where the other refuses
		for _, k := range r.Perm(6)[:1+r.IntN(3)] {
			a := stint.Ask{Key: fmt.Sprint("k", k), Limit: limits[r.IntN(len(limits))]}
			stint.Internal(friend.Of{}).SetUnits(&a, int64(r.IntN(3)))
			if a.Limit.Spec().Algorithm == stint.LeakyBucket {
				if queued {
					continue
				}
				queued = true
			}
			q.Asks = append(q.Asks, a)
		}
		if i%10 == 0 {
			if err := s.Refund(ctx, &q); err != nil {
				t.Fatal(err)
			}
			_ = memory.Refund(ctx, &q)
			continue
		}
		if bad := (stint.Ask{Key: fmt.Sprint("bad", r.IntN(3)), Penalty: brief}); i%3 == 0 {
			if i%24 == 0 {
				violation := stint.Request{Asks: []stint.Ask{bad}, At: now}
				if _, err := s.Violate(ctx, &violation); err != nil {
					t.Fatal(err)
				}
				_, _ = memory.Violate(ctx, &violation)
			}
			q.Asks = slices.Insert(q.Asks, r.IntN(len(q.Asks)+1), bad)
		}
		got, want := make([]stint.Decision, len(q.Asks)), make([]stint.Decision, len(q.Asks))
		d, err := s.Take(ctx, &q, got)
		if err != nil {
			t.Fatal(err)
		}
		w, _ := memory.Take(ctx, &q, want)
		for j := range got {
			if !w.Allowed { // what was taken and refunded shows in the reset only
				got[j].ResetAfter, want[j].ResetAfter = 0, 0
			}
			if got[j] != want[j] {
				t.Fatalf("step %d, ask %d: %+v, want %+v", i, j, got[j], want[j])
			}
		}
		if d.Outcome != w.Outcome || d.RetryAfter != w.RetryAfter || d.Remaining != w.Remaining || d.Delay != w.Delay {
			t.Fatalf("step %d: %+v, want %+v", i, d, w)
		}
	}
}

// No limit is exceeded, and in the end each key is charged for what was admitted.
func clusterConcurrently(t *testing.T, s *redislimit.Store) {
	limit := stint.MustLimit("100 per 24h sliding_log")
	l := stint.NewLimiter(s)
	var admitted [4]atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(g)))
			for range 100 {
				p := r.Perm(4)
				q := stint.Request{Asks: []stint.Ask{
					{Key: fmt.Sprint("c", p[0]), Limit: limit, Cost: 1}, {Key: fmt.Sprint("c", p[1]), Limit: limit, Cost: 1}}}
				d, err := l.Take(context.Background(), &q, nil)
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					admitted[p[0]].Add(1)
					admitted[p[1]].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for i := range admitted {
		d, err := l.Peek(t.Context(), fmt.Sprint("c", i), limit)
		if err != nil || admitted[i].Load() > 100 || 100-d.Remaining != admitted[i].Load() {
			t.Errorf("c%d: %d admitted, %d charged, %v", i, admitted[i].Load(), 100-d.Remaining, err)
		}
	}
}

func clusterEach(t *testing.T, s *redislimit.Store) {
	limit := stint.MustLimit("9 per 24h sliding_log")
	var rs []stint.Request
	for i := range 2000 {
		q := stint.Request{Asks: []stint.Ask{{Key: fmt.Sprint("user", i%20), Limit: limit, Cost: 1}}}
		if i%100 == 0 {
			q.Asks = append(q.Asks, stint.Ask{Key: "everyone", Limit: limit, Peek: true})
		}
		rs = append(rs, q)
	}
	answers := make([]stint.Answer, len(rs))
	stint.NewLimiter(s).TakeBatch(t.Context(), rs, answers)
	allowed := 0
	for i, a := range answers {
		if a.Err != nil {
			t.Fatalf("request %d: %v", i, a.Err)
		}
		if a.Allowed {
			allowed++
		}
	}
	if allowed != 20*9 {
		t.Errorf("%d allowed, want 9 for each of 20 users", allowed)
	}
}

// A place in a queue is given once, also where requests are refused in another slot
// meanwhile; and those take no place.
func clusterPaces(t *testing.T, s *redislimit.Store) {
	pace, none := stint.MustLimit("10 per 1s leaky_bucket burst 1000"), stint.MustLimit("1 per 24h")
	at := time.Now()
	if d, err := s.Take(t.Context(), &stint.Request{At: at, Asks: []stint.Ask{{Key: "over", Limit: none, Cost: 1}}}, nil); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	var mu sync.Mutex
	delays := map[time.Duration]int{}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for range 50 {
				q := stint.Request{At: at, Asks: []stint.Ask{{Key: "queue", Limit: pace, Cost: 1}}}
				if g%2 == 0 {
					q.Asks = append(q.Asks, stint.Ask{Key: "over", Limit: none, Cost: 1})
				}
				d, err := s.Take(t.Context(), &q, nil)
				if err != nil || d.Allowed == (g%2 == 0) {
					t.Errorf("%+v, %v", d, err)
					return
				}
				if d.Allowed {
					mu.Lock()
					delays[d.Delay]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	for i := range 200 {
		if n := delays[time.Duration(i)*100*time.Millisecond]; n != 1 {
			t.Errorf("place %d was given %d times", i, n)
		}
	}
}

func clusterBans(t *testing.T, s *redislimit.Store) {
	p, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 2, BanFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	limit := stint.MustLimit("1 per 24h")
	l := stint.NewLimiter(s)
	q := stint.Request{Asks: []stint.Ask{{Key: "good", Limit: stint.MustLimit("50 per 24h"), Cost: 1}, {Key: "bad", Limit: limit, Cost: 1, Penalty: p}}}
	each := make([]stint.Decision, 2)
	for i, want := range []stint.Outcome{stint.Allowed, stint.Limited, stint.Banned, stint.Banned} {
		d, err := l.Take(t.Context(), &q, each)
		if err != nil || d.Outcome != want {
			t.Errorf("request %d: %+v, %v, want %s", i, d, err, want)
		}
		if running := d.Limit == nil; want == stint.Banned && (d.Penalty != p || d.BanLeft == 0 || running != (i == 3)) {
			t.Errorf("request %d: %+v", i, d)
		}
		if want == stint.Banned && d.RetryAfter <= d.BanLeft {
			t.Errorf("request %d may come back in %s, and its limit takes a day", i, d.RetryAfter)
		}
	}
	if d, _ := l.Peek(t.Context(), "good", q.Asks[0].Limit); d.Remaining != 49 {
		t.Errorf("the refused requests left %d of 49", d.Remaining)
	}
	// While a ban runs, nothing is counted against anyone else in the request.
	victim := stint.Ask{Key: "victim", Limit: limit, Cost: 1, Penalty: p}
	if _, err := l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{victim}}, nil); err != nil {
		t.Error(err)
	}
	for range 3 {
		if d, err := l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{q.Asks[1], victim}}, nil); err != nil || d.Outcome != stint.Banned || d.Key != "bad" {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if d, err := l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{victim}}, nil); err != nil || d.Outcome != stint.Limited {
		t.Errorf("the victim: %+v, %v", d, err)
	}
	if found, err := l.Pardon(t.Context(), "bad", p); !found || err != nil {
		t.Error(found, err)
	}
	if d, err := l.Take(t.Context(), &q, nil); err != nil || d.Outcome != stint.Limited {
		t.Errorf("after the pardon: %+v, %v", d, err)
	}
}

// Violations of several slots are as in memory, and the bans of all nodes are told.
func clusterViolations(t *testing.T, s *redislimit.Store) {
	var penalties []*stint.Penalty
	for i := range 3 {
		penalties = append(penalties, penalty(t, stint.PenaltySpec{Name: fmt.Sprint("found", i), WarnAfter: 1 + int64(i)/2, BanAfter: 2 + int64(i),
			BanFor: time.Duration(i+1) * time.Second, Growth: 2, MaxBan: time.Duration(i+9) * time.Second, ForgetAfter: time.Minute}))
	}
	var memory stint.Memory
	r := rand.New(rand.NewPCG(5, 1))
	now := time.Now()
	seen := map[stint.Outcome]int{}
	for i := range 2000 {
		now = now.Add(time.Duration(r.IntN(2_000_000)) * time.Microsecond)
		q := stint.Request{At: now}
		for _, k := range r.Perm(6)[:1+r.IntN(3)] {
			q.Asks = append(q.Asks, stint.Ask{Key: fmt.Sprint("v", k), Penalty: penalties[r.IntN(3)]})
		}
		got, err := s.Violate(t.Context(), &q)
		want, _ := memory.Violate(t.Context(), &q)
		if err != nil || got != want {
			t.Fatalf("step %d: %+v, %v, want %+v", i, got, err, want)
		}
		seen[got.Outcome]++
	}
	if len(seen) != 3 {
		t.Errorf("only %v were met", seen)
	}
	if err := s.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 1, BanFor: time.Hour})
	for i := range 300 {
		violate(t, s, time.Time{}, stint.Banned, stint.Ask{Key: fmt.Sprint("banned", i), Penalty: p})
	}
	if all := bans(t, s); len(all) != 300 || all["banned7 p"].Bans != 1 {
		t.Errorf("%d bans told, want 300", len(all))
	}
	if record, err := s.Record(t.Context(), "banned7", p); err != nil || record.Bans != 1 || record.BanLeft < 59*time.Minute {
		t.Errorf("%+v, %v", record, err)
	}
	only, err := redislimit.New(t.Context(), doer{}, redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := only.Banned(t.Context(), func(stint.Record) bool { return true }); !errors.Is(err, stint.ErrUnsupported) {
		t.Errorf("a client that sees one node of many: %v", err)
	}
}

// doer is a Client that says it speaks to a Cluster, and has no nodes.
type doer struct{}

func (doer) Do(context.Context, ...string) (any, error) {
	return "redis_version:7.0.0\r\ncluster_enabled:1\r\n", nil
}

// A Store connects to a Cluster although a master is dead, and the others decide about their keys.
func TestConnectWithDeadMaster(t *testing.T) {
	t.Parallel()
	c := redistest.StartReplicated(t, 3, 0)
	for _, s := range c.Masters {
		s.Do(t, "CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	c.Masters[1].Kill()
	tries := 30
	if testing.Short() {
		tries = 10
	}
	for i := range tries {
		s, err := redislimit.Connect(t.Context(), c.URL(), redislimit.Options{})
		if err != nil {
			t.Fatalf("try %d: %v", i, err)
		}
		for k := range 10 {
			key := fmt.Sprint(k)
			owner := c.Owner(c.Slot(t, fmt.Sprintf("stint:{%d:%s}", len(key), key)))
			_, err := stint.NewLimiter(s).Allow(t.Context(), key, stint.MustLimit("1000000 per 1h"))
			if (err == nil) != (owner != 1) {
				t.Errorf("try %d: a key of master %d: %v", i, owner, err)
			}
		}
		s.Close()
	}
}
