package redislimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// deafFor bounds for how long one that does not hear may believe that it does: 3 seconds
// after a hello, of which there is one each second, and something for slow machines.
const deafFor = 6 * time.Second

// listener listens through a store, and knows which of the resets of an undoer it has
// heard of.
type listener struct {
	hears atomic.Bool
	mu    sync.Mutex
	heard map[string]bool
	began time.Time     // when it last missed something in the belief that it hears
	deaf  time.Duration // for how long it has at most
}

func listens(t *testing.T, s *redislimit.Store) *listener {
	l := &listener{heard: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		_ = s.Notify(ctx, fleet.Listener{Connected: func(yes bool) { l.hears.Store(yes) }, Invalidated: func(key string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.heard[key] = true
		}})
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	return l
}

// undoes resets keys through a store for a while, and notes for how long each listener has
// believed in vain that it hears of that.
func undoes(t *testing.T, s *redislimit.Store, ls []*listener, until func() bool) {
	t.Helper()
	limit := stint.MustLimit("1 per 1h")
	for i := 0; !until(); i++ {
		key := fmt.Sprint("undone", i)
		believed := make([]bool, len(ls))
		for j, l := range ls {
			believed[j] = l.hears.Load()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := s.Reset(ctx, &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit}}})
		cancel()
		time.Sleep(100 * time.Millisecond)
		if err != nil {
			continue
		}
		for j, l := range ls {
			l.mu.Lock()
			switch missed := believed[j] && l.hears.Load() && !l.heard[key]; {
			case !missed:
				l.began = time.Time{}
			case l.began.IsZero():
				l.began = time.Now()
			default:
				l.deaf = max(l.deaf, time.Since(l.began))
			}
			l.mu.Unlock()
		}
	}
}

// deafest is for how long one of them believed in vain that it hears.
func deafest(t *testing.T, ls []*listener) {
	t.Helper()
	var most time.Duration
	for i, l := range ls {
		l.mu.Lock()
		most = max(most, l.deaf)
		if l.deaf > deafFor {
			t.Errorf("listener %d missed what was undone for %s, and believed that it hears", i, l.deaf)
		}
		l.mu.Unlock()
	}
	t.Logf("somebody missed what was undone, and believed that it hears, for at most %s", most)
}

// listening is n listeners at a server, each through a Store of its own, once all hear.
func listening(t *testing.T, url string, n int) []*listener {
	t.Helper()
	var ls []*listener
	for range n {
		ls = append(ls, listens(t, open(t, url)))
	}
	allHear(t, ls)
	return ls
}

func allHear(t *testing.T, ls []*listener) {
	t.Helper()
	for _, l := range ls {
		await.Until(t, "all hear", l.hears.Load)
	}
}

// After a node of a Cluster was removed, those who listened there notice, and listen
// elsewhere.
func TestListenRemovedNode(t *testing.T) {
	if brief() {
		t.Skip("a failover takes seconds")
	}
	c := redistest.StartReplicated(t, 3, 1)
	ls, other := listening(t, c.URL(), 12), open(t, c.URL())
	undoes(t, other, ls, after(time.Second))
	var out *redistest.Server
	most := int64(0)
	for _, s := range c.All() {
		if n := subscribers(t, s); n > most {
			out, most = s, n
		}
	}
	c.Remove(t, out)
	undoes(t, other, ls, after(2*deafFor))
	deafest(t, ls)
	allHear(t, ls)
	t.Logf("%d listened at the node that was removed", most)
}

// subscribers is how many listen at a server.
func subscribers(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	reply, err := s.Do(t, "PUBSUB", "NUMSUB", "stint:{invalidated}").ToArray()
	if err != nil || len(reply) != 2 {
		t.Fatal(reply, err)
	}
	n, _ := reply[1].AsInt64()
	return n
}

// after tells whether a time has passed since now.
func after(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().After(end) }
}

// Around a failover that Sentinels make, planned or not, nobody believes for long in vain
// that it hears.
func TestListenSentinelFailover(t *testing.T) {
	if brief() {
		t.Skip("a failover takes seconds")
	}
	w := redistest.StartWatched(t, 1, 1)
	ls, other := listening(t, w.URL(), 4), open(t, w.URL())
	var failover sync.WaitGroup
	failover.Go(func() { w.Failover(t) })
	undoes(t, other, ls, after(3*deafFor))
	failover.Wait()
	deafest(t, ls)
	allHear(t, ls)
}

// A connection that says nothing more is left, though nobody closes it and its server
// would be silent for a minute before it is given up.
func TestListenFrozenConnection(t *testing.T) {
	if brief() {
		t.Skip("it takes seconds to notice")
	}
	server := redistest.Start(t)
	old := redistest.StartProxy(t, server.Addr)
	name := redistest.StartProxy(t, old.Addr)
	l := listens(t, open(t, name.URL()+"?timeout=1m&connections=1"))
	await.Until(t, "it hears", l.hears.Load)
	old.Set(redistest.Toxic{Deafen: true})
	name.Point(server.Addr)
	began := time.Now()
	await.Until(t, "it knows that it does not hear", func() bool { return !l.hears.Load() })
	if took := time.Since(began); took > deafFor {
		t.Errorf("noticed after %s", took)
	}
}

// A Store that is closed on purpose does not complain that it hears no more.
func TestListenClosed(t *testing.T) {
	t.Parallel()
	for _, parameters := range []string{"", "?connections=1"} {
		server := redistest.Start(t)
		for range 2 {
			var log journal
			s, err := redislimit.Connect(t.Context(), server.URL()+parameters, redislimit.Options{Background: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			l := listens(t, s)
			await.Until(t, "it hears", l.hears.Load)
			s.Close()
			await.Until(t, "it knows that it does not hear", func() bool { return !l.hears.Load() })
			time.Sleep(20 * time.Millisecond) // for what would be logged after that
			if text := log.String(); text != "" {
				t.Errorf("%q: the log says %s", parameters, text)
			}
		}
	}
}
