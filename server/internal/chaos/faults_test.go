package chaos

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
)

// fault is trouble, and what it is brought upon.
type fault struct {
	name    string
	away    bool          // some is decided without the store
	briefly bool          // some may be, but not much
	takes   time.Duration // of an answer, on its way, where that is within the deadline
	missed  int           // of a hundred calls may miss the deadline, though the store is there
	loses   int           // times that all counts are lost
	long    bool          // it takes seconds
	brief   bool          // it is proved with -short, too
	kind    string        // "", "cluster" or "sentinel"
	args    []string      // of the server
	trouble func(*testing.T, *world)
}

// stays tells whether the store is there all the while, so that it decides all that
// the machine lets it decide in time.
func (f *fault) stays() bool { return !f.away && !f.briefly }

// build starts what the fault is brought upon, and returns its address.
func (f *fault) build(t *testing.T, w *world) string {
	switch f.kind {
	case "cluster":
		w.cluster = redistest.StartReplicated(t, 3, 1)
		return w.cluster.URL()
	case "sentinel":
		w.watched = redistest.StartWatched(t, 2, 3)
		return w.watched.URL()
	}
	w.server = redistest.Start(t, f.args...)
	w.proxy = redistest.StartProxy(t, w.server.Addr)
	return w.proxy.URL()
}

// steady has the proxy do something all the while.
func steady(x redistest.Toxic) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) {
		w.proxy.Set(x)
		time.Sleep(spell())
		w.proxy.Set(redistest.Toxic{})
	}
}

// often does something again and again, at random times.
func often(pause time.Duration, do func(*testing.T, *world)) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		for end := time.Now().Add(spell()); time.Now().Before(end); time.Sleep(rand.N(pause)) {
			do(t, w)
		}
		if w.proxy != nil {
			w.proxy.Set(redistest.Toxic{})
		}
	}
}

// command has the server be in a state that one command begins and another ends.
func command(begin, end []string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		w.server.Do(t, begin...)
		time.Sleep(spell())
		w.server.Do(t, end...)
	}
}

// lies are replies that no server should give.
var lies = []func([]byte) []byte{
	func(b []byte) []byte { return append(b, "+OK\r\n"...) },
	func([]byte) []byte { return []byte("$1099511627776\r\n") },
	func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") },
	func([]byte) []byte { return []byte(":1\r\n") },
	func(b []byte) []byte { return b[:len(b)-1] },
	func([]byte) []byte { return []byte("-NOSCRIPT\r\n") },
	func([]byte) []byte { return []byte("-UNHEARD of\r\n") },
}

var faults = []fault{
	{name: "none", brief: true, trouble: steady(redistest.Toxic{})},
	{name: "slow, 10 ms", trouble: steady(redistest.Toxic{Latency: 10 * time.Millisecond}), takes: 10 * time.Millisecond, long: true},
	{name: "slow, 20 ± 20 ms", away: true, trouble: steady(redistest.Toxic{Latency: 20 * time.Millisecond, Jitter: 20 * time.Millisecond})},
	{name: "slow, 500 ms", away: true, trouble: steady(redistest.Toxic{Latency: 500 * time.Millisecond})},
	{name: "frozen", brief: true, away: true, trouble: func(t *testing.T, w *world) {
		w.server.Pause(t)
		time.Sleep(spell())
		w.server.Resume()
	}},
	{name: "nothing passes", away: true, trouble: steady(redistest.Toxic{Stall: true})},
	{name: "refused", away: true, trouble: func(_ *testing.T, w *world) {
		w.proxy.Set(redistest.Toxic{Refuse: true})
		w.proxy.Reset()
		time.Sleep(spell())
		w.proxy.Set(redistest.Toxic{})
	}},
	{name: "reset", away: true, trouble: often(40*time.Millisecond, func(_ *testing.T, w *world) { w.proxy.Reset() })},
	{name: "cut mid-reply", away: true, trouble: often(20*time.Millisecond, func(_ *testing.T, w *world) {
		w.proxy.Set(redistest.Toxic{Cut: 300 + rand.IntN(2000)})
	})},
	{name: "killed and started", brief: true, away: true, loses: 1, trouble: func(t *testing.T, w *world) {
		w.server.Kill()
		time.Sleep(spell())
		w.server.Begin(t)
	}},
	{name: "flushed", brief: true, loses: 1, trouble: func(t *testing.T, w *world) { w.server.Do(t, "FLUSHALL") }},
	{name: "scripts flushed", trouble: often(10*time.Millisecond, func(t *testing.T, w *world) { w.server.Do(t, "SCRIPT", "FLUSH") })},
	{name: "READONLY", away: true, trouble: command([]string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"})},
	{name: "OOM", away: true, trouble: command([]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"})},
	{name: "LOADING", away: true, args: []string{"--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024"}, trouble: func(t *testing.T, w *world) {
		for i := range 400 {
			w.server.Do(t, "SET", "filler"+strconv.Itoa(i), "some value of some length, so that the file has some")
		}
		w.server.Do(t, "CONFIG", "SET", "key-load-delay", strconv.FormatInt(spell().Microseconds()/400, 10))
		w.server.Do(t, "DEBUG", "RELOAD")
	}},
	{name: "BUSY", away: true, args: []string{"--lua-time-limit", "20"}, trouble: func(t *testing.T, w *world) {
		c := w.server.Client(t)
		var busy sync.WaitGroup
		busy.Go(func() {
			_ = c.Do(context.Background(), c.B().Eval().Script("while true do end").Numkeys(0).Build()).Error()
		})
		time.Sleep(spell())
		w.server.Do(t, "SCRIPT", "KILL")
		busy.Wait()
		c.Close()
	}},
	{name: "lies", brief: true, away: true, trouble: func(_ *testing.T, w *world) {
		for _, lie := range lies {
			w.proxy.Set(redistest.Toxic{Lie: lie})
			time.Sleep(spell() / time.Duration(len(lies)))
		}
		w.proxy.Set(redistest.Toxic{})
		w.proxy.Reset() // a byte less leaves a connection that waits for it
	}},
	{name: "Cluster, slots moved", kind: "cluster", long: true, missed: 2, trouble: func(t *testing.T, w *world) {
		slot := w.cluster.Slot(t, "stint:{4:hot0}")
		owner := w.cluster.Owner(slot)
		for end := time.Now().Add(spell()); time.Now().Before(end); owner = (owner + 1) % 3 {
			w.cluster.MoveSlot(t, slot, owner, (owner+1)%3, 5*time.Millisecond)
		}
	}},
	{name: "Cluster, CLUSTERDOWN", kind: "cluster", long: true, away: true, trouble: func(t *testing.T, w *world) {
		for _, s := range []*redistest.Server{w.cluster.Masters[0], w.cluster.Replicas[0]} {
			s.Pause(t)
			defer s.Resume()
		}
		time.Sleep(2 * spell())
	}},
	{name: "Cluster, master killed", kind: "cluster", loses: 1, long: true, away: true, trouble: func(t *testing.T, w *world) {
		w.cluster.Masters[0].Kill()
		w.cluster.AwaitMaster(t, w.cluster.Replicas[0])
	}},
	{name: "Sentinel, failover", kind: "sentinel", loses: 1, long: true, briefly: true, trouble: func(t *testing.T, w *world) { w.watched.Failover(t) }},
	{name: "Sentinel, master killed", kind: "sentinel", loses: 1, long: true, away: true, trouble: func(t *testing.T, w *world) {
		w.watched.Master.Kill()
		w.watched.AwaitMaster(t)
	}},
	{name: "Sentinel, master frozen", kind: "sentinel", loses: 1, long: true, away: true, trouble: func(t *testing.T, w *world) {
		w.watched.Master.Pause(t)
		w.watched.AwaitMaster(t)
		w.watched.Master.Resume()
	}},
}
