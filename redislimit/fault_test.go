package redislimit_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// patient is how long the callers of these tests wait for an answer.
const patient = 250 * time.Millisecond

// Trouble on the way to the server delays nobody past their deadline, charges
// nothing twice, and is forgotten soon.
func TestFaultyNetwork(t *testing.T) {
	steady := func(x redistest.Toxic) func(*redistest.Proxy) {
		return func(p *redistest.Proxy) { p.Set(x); time.Sleep(spell()) }
	}
	// often does something again and again, at random times.
	often := func(pause time.Duration, do func(*redistest.Proxy)) func(*redistest.Proxy) {
		return func(p *redistest.Proxy) {
			for end := time.Now().Add(spell()); time.Now().Before(end); time.Sleep(rand.N(pause)) {
				do(p)
			}
		}
	}
	for _, c := range []struct {
		name    string
		trouble func(*redistest.Proxy)
	}{
		{"nothing", steady(redistest.Toxic{})},
		{"latency 5 ms", steady(redistest.Toxic{Latency: 5 * time.Millisecond})},
		{"latency 50 ms", steady(redistest.Toxic{Latency: 50 * time.Millisecond})},
		{"latency 500 ms", steady(redistest.Toxic{Latency: 500 * time.Millisecond})},
		{"jitter 100 ± 100 ms", steady(redistest.Toxic{Latency: 100 * time.Millisecond, Jitter: 100 * time.Millisecond})},
		{"bandwidth 1 KB/s", steady(redistest.Toxic{Bandwidth: 1000})},
		{"reset", often(40*time.Millisecond, (*redistest.Proxy).Reset)},
		{"refused", func(p *redistest.Proxy) { p.Set(redistest.Toxic{Refuse: true}); p.Reset(); time.Sleep(spell()) }},
		{"slow close", often(40*time.Millisecond, func(p *redistest.Proxy) {
			p.Set(redistest.Toxic{SlowClose: 200 * time.Millisecond, Cut: 400 + rand.IntN(4000)})
		})},
		{"cut mid-reply", often(20*time.Millisecond, func(p *redistest.Proxy) { p.Set(redistest.Toxic{Cut: 300 + rand.IntN(2000)}) })},
		{"black hole", steady(redistest.Toxic{Stall: true})},
		{"black hole now and then", often(300*time.Millisecond, func(p *redistest.Proxy) { p.Set(redistest.Toxic{Stall: rand.IntN(2) == 0}) })},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t)
			p := redistest.StartProxy(t, server.Addr)
			during(t, c.name, p.URL(), server.URL(), patient, true, func() {
				c.trouble(p)
				p.Set(redistest.Toxic{})
			})
		})
	}
}

// So does trouble of the server's own.
func TestFaultyServer(t *testing.T) {
	durable := []string{"--appendonly", "yes", "--appendfsync", "always"}
	for _, c := range []struct {
		name    string
		args    []string
		trouble func(*testing.T, *redistest.Server)
	}{
		{"frozen", nil, func(t *testing.T, s *redistest.Server) {
			s.Pause(t)
			time.Sleep(spell())
			s.Resume()
		}},
		{"killed and started", durable, func(t *testing.T, s *redistest.Server) {
			for range 3 {
				s.Kill()
				time.Sleep(spell() / 3)
				s.Begin(t)
				time.Sleep(spell() / 3)
			}
		}},
		{"scripts flushed", nil, func(t *testing.T, s *redistest.Server) {
			c := s.Client(t)
			for end := time.Now().Add(spell()); time.Now().Before(end); {
				if err := c.Do(t.Context(), c.B().ScriptFlush().Build()).Error(); err != nil {
					t.Error(err)
				}
			}
			c.Close()
		}},
		{"READONLY", nil, func(t *testing.T, s *redistest.Server) {
			s.Do(t, "REPLICAOF", "127.0.0.1", "1")
			time.Sleep(spell())
			s.Do(t, "REPLICAOF", "NO", "ONE")
		}},
		{"MASTERDOWN", []string{"--replica-serve-stale-data", "no"}, func(t *testing.T, s *redistest.Server) {
			s.Do(t, "REPLICAOF", "127.0.0.1", "1")
			time.Sleep(spell())
			s.Do(t, "REPLICAOF", "NO", "ONE")
		}},
		{"LOADING", []string{"--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024"}, func(t *testing.T, s *redistest.Server) {
			for i := range 400 {
				s.Do(t, "SET", "filler"+strconv.Itoa(i), "some value of some length, so that the file has some")
			}
			s.Do(t, "CONFIG", "SET", "key-load-delay", strconv.FormatInt(spell().Microseconds()/400, 10))
			s.Do(t, "DEBUG", "RELOAD")
		}},
		{"BUSY", []string{"--lua-time-limit", "20"}, func(t *testing.T, s *redistest.Server) {
			c := s.Client(t)
			var busy sync.WaitGroup
			busy.Go(func() {
				_ = c.Do(context.Background(), c.B().Eval().Script("while true do end").Numkeys(0).Build()).Error()
			})
			time.Sleep(spell())
			if _, err := s.Try("SCRIPT", "KILL"); err != nil {
				t.Error(err)
			}
			busy.Wait()
			c.Close()
		}},
		{"OOM", nil, func(t *testing.T, s *redistest.Server) {
			s.Do(t, "CONFIG", "SET", "maxmemory", "1")
			time.Sleep(spell())
			s.Do(t, "CONFIG", "SET", "maxmemory", "0")
		}},
		{"connections killed", nil, func(t *testing.T, s *redistest.Server) {
			for end := time.Now().Add(spell()); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				_, _ = s.Try("CLIENT", "KILL", "TYPE", "normal")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t, c.args...)
			during(t, c.name, server.URL(), server.URL(), patient, true, func() { c.trouble(t, server) })
		})
	}
}

// Ten thousand calls a second of a server that is frozen hold little memory, and
// every goroutine comes back while it is frozen. What a machine that has paused did not send in
// 50 ms, or would send while 2,000 calls have not ended, is not sent.
func TestFrozenUnderLoad(t *testing.T) {
	const perSecond, mostGrowth = 10_000, 100 << 20
	lasts := time.Minute
	if brief() {
		lasts = 3 * time.Second
	}
	server := redistest.Start(t)
	warm := open(t, server.URL())
	warm.Close()
	before := runtime.NumGoroutine()
	s := open(t, server.URL())
	l := stint.NewLimiter(s)
	limit := stint.MustLimit("1000000 per 1h")
	if _, err := l.Allow(t.Context(), "a", limit); err != nil {
		t.Fatal(err)
	}
	held := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Sys - m.HeapReleased
	}
	runtime.GC()
	at, most, goroutines := held(), uint64(0), 0
	server.Freeze(t)
	var wg sync.WaitGroup
	var calling, latest atomic.Int64
	began := time.Now()
	sent, skipped := 0, 0
	for now := range time.Tick(10 * time.Millisecond) {
		if now.Sub(began) > lasts {
			break
		}
		due := int(time.Since(began).Seconds() * perSecond)
		skipped = max(skipped, due-sent-perSecond/20)
		for ; sent+skipped < due && calling.Load() < 2000; sent++ {
			calling.Add(1)
			wg.Go(func() {
				defer calling.Add(-1)
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				defer cancel()
				_, err := l.Allow(ctx, "a", limit)
				deadline, _ := ctx.Deadline()
				latest.Store(max(latest.Load(), int64(time.Since(deadline))))
				if err == nil {
					t.Error("a frozen server answered")
				}
			})
		}
		most, goroutines = max(most, held()), max(goroutines, runtime.NumGoroutine())
	}
	wg.Wait()
	growth := int64(most) - int64(at)
	t.Logf("%d calls in %s: memory grew by %d MiB, %d goroutines at most, an answer about %s after its deadline", sent, lasts, growth>>20, goroutines, time.Duration(latest.Load()).Round(time.Millisecond))
	if growth > mostGrowth {
		t.Errorf("memory grew by %d MiB", growth>>20)
	}
	server.Resume()
	await.Until(t, "it decides again after the thaw", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		_, err := l.Allow(ctx, "a", limit)
		return err == nil
	})
	s.Close()
	settles(t, before)
}
