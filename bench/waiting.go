package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/stintdev/stint"
)

// A waitCase is one kind of waiting, done by several subjects in turn.
type waitCase struct {
	title, about string   // for -only, and for the page
	columns      []string // of the figures
	subjects     []waitSubject
	rounds       int // at most; 0: as many as the run has
}

// A waitSubject does all of a case once. It returns a figure for each column; NaN: it has none.
type waitSubject struct {
	name string
	do   func(e *waitEnv) ([]float64, error)
}

// waitEnv is where a case runs.
type waitEnv struct {
	redis *redisServer
	// scale is 1, or less in a short run: all times and numbers of callers are multiplied with it.
	scale float64
}

func (e *waitEnv) time(d time.Duration) time.Duration { return time.Duration(e.scale * float64(d)) }
func (e *waitEnv) callers(n int) int                  { return max(1, int(e.scale*float64(n))) }

// benchWaiting measures all cases and writes docs/benchmarks-waiting.md.
func benchWaiting(short bool, rounds int, only, out string, progress io.Writer) error {
	redis, err := startRedis()
	if err != nil {
		return err
	}
	defer redis.stop()
	stopWith(redis)
	e := &waitEnv{redis: redis, scale: 1}
	if short {
		e.scale = 0.02
	}
	start, m := time.Now(), thisMachine(redis, limiters)
	var b, cases bytes.Buffer
	for _, c := range slices.Concat(memoryWaits, redisWaits) {
		if !strings.HasPrefix(c.title, only) {
			continue
		}
		if err := c.measure(&cases, e, rounds); err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
		fmt.Fprintf(progress, "%s: %s\n", time.Since(start).Round(time.Second), c.title)
	}
	fmt.Fprintf(&b, `# Benchmarks of waiting

This page shows what callers of %s and its kin get. %s writes it; [benchmarks.md](benchmarks.md) compares decisions that do not wait.

Measured %s at commit %s: %s, %d shared processors (load %s to %s), %s, %s, Redis %s on loopback. Figures are medians of rounds, with least and most.

| case | limiter | figures |
|---|---|---|
`, "`Limiter.Wait`", "`make bench-waiting`", start.UTC().Format(time.DateOnly), m.Commit, m.CPU, m.Processors, m.LoadBefore, load(), m.System, m.Go, m.Redis)
	b.Write(cases.Bytes())
	return os.WriteFile(filepath.Join(out, "benchmarks-waiting.md"), b.Bytes(), 0o644)
}

func (c *waitCase) measure(w io.Writer, e *waitEnv, rounds int) error {
	if c.rounds > 0 {
		rounds = min(rounds, c.rounds)
	}
	all := make([][][]float64, len(c.subjects)) // by subject and column
	for round := range rounds {
		for j := range c.subjects {
			i := (j + round) % len(c.subjects)
			if err := e.redis.flush(); err != nil {
				return err
			}
			figures, err := c.subjects[i].do(e)
			if err != nil {
				return fmt.Errorf("%s: %w", c.subjects[i].name, err)
			}
			if all[i] == nil {
				all[i] = make([][]float64, len(figures))
			}
			for k, f := range figures {
				all[i][k] = append(all[i][k], f)
			}
		}
	}
	for i, subject := range c.subjects {
		name := "" // of the case, before its first subject
		if i == 0 {
			name = c.about
		}
		var cells []string
		for k, values := range all[i] {
			cells = append(cells, medianOf(values)+" "+c.columns[k])
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, strings.ReplaceAll(subject.name, "**", ""), strings.Join(cells, "; "))
	}
	return nil
}

// A waiter is a limiter of one key whose callers wait.
type waiter struct {
	wait      func(ctx context.Context, n int) error
	decisions *atomic.Int64 // nil: unknown
}

// stintWaiter is a Limiter over a store; nil: in memory.
func stintWaiter(store stint.Store, limit *stint.Limit) waiter {
	l := stint.NewLimiter(store)
	if store == nil {
		l = new(stint.Limiter)
	}
	var decisions atomic.Int64
	l.Observe = func(context.Context, *stint.Request, *stint.Answer) { decisions.Add(1) }
	return waiter{func(ctx context.Context, n int) error { return l.WaitN(ctx, "key", limit, int64(n)) }, &decisions}
}

func rateWaiter(perSecond, burst int) waiter {
	l := rate.NewLimiter(rate.Limit(perSecond), burst)
	return waiter{func(ctx context.Context, n int) error { return l.WaitN(ctx, n) }, nil}
}

// perTurn is NaN where decisions are not known.
func (w waiter) perTurn(turns int64) float64 {
	if w.decisions == nil {
		return nan
	}
	return float64(w.decisions.Load()) / float64(max(1, turns))
}

const rateRow = "x/time/rate"

// besideRate are Stint, in memory, and x/time/rate with the same limit.
func besideRate(perSecond, burst int, do func(*waitEnv, waiter) ([]float64, error)) []waitSubject {
	limit := stint.MustLimit(fmt.Sprintf("%d per 1s burst %d", perSecond, burst))
	return []waitSubject{
		{"**Stint**", func(e *waitEnv) ([]float64, error) { return do(e, stintWaiter(nil, limit)) }},
		{rateRow, func(e *waitEnv) ([]float64, error) { return do(e, rateWaiter(perSecond, burst)) }},
	}
}

var memoryWaits = []waitCase{
	{
		title:    "A thousand callers for one key, in memory",
		about:    "1,000 goroutines wait once each, `500 per 1s burst 1`; ideal 2 s",
		columns:  []string{"decisions a turn", "of the ideal time"},
		rounds:   5,
		subjects: besideRate(500, 1, waitOnceEach),
	},
	{
		title:    "Several units beside callers of one, in memory",
		about:    "20 goroutines wait for one unit of `100 per 1s burst 10`; one waits for 10, in order of arrival 0.3 s",
		columns:  []string{"of 0.3 s", "refusals"},
		rounds:   5,
		subjects: besideRate(100, 10, waitForTen),
	},
	{
		title:    "Deadlines that can be met, in memory",
		about:    "20 goroutines wait for 4 s, `50 per 1s burst 5`, deadline 1 s; in order of arrival 0.4 s",
		columns:  []string{"% failed", "of 0.4 s at longest"},
		rounds:   5,
		subjects: besideRate(50, 5, waitWithDeadlines),
	},
	{
		title:   "A thousand callers for 10 places in flight, in memory",
		about:   "1,000 goroutines hold one of 10 places for 5 ms; ideal 500 ms",
		columns: []string{"of the ideal time"},
		rounds:  5,
		subjects: []waitSubject{
			{"**Stint, AcquireWait**", func(e *waitEnv) ([]float64, error) {
				l, limit := new(stint.Limiter), stint.MustLimit("10 in_flight")
				return holdOnceEach(e, func() (func(), error) { return l.AcquireWait(context.Background(), "key", limit) })
			}},
			{"semaphore.Weighted", func(e *waitEnv) ([]float64, error) {
				s := semaphore.NewWeighted(10)
				return holdOnceEach(e, func() (func(), error) {
					return func() { s.Release(1) }, s.Acquire(context.Background(), 1)
				})
			}},
		},
	},
	{
		title:   "Nothing to wait for",
		about:   "One caller, allowed at once",
		columns: []string{"ns", "allocations"},
		rounds:  10,
		subjects: []waitSubject{
			{"**Stint, Wait**", loneInMemory(func(ctx context.Context, l *stint.Limiter, limit *stint.Limit) error {
				return l.Wait(ctx, "key", limit)
			})},
			{"Stint, Allow", loneInMemory(allowOnce)},
			{"x/time/rate, Wait", func(e *waitEnv) ([]float64, error) {
				l := rate.NewLimiter(1e9, 1e9)
				return lone(e.callers(1_000_000), func() error { return l.Wait(context.Background()) })
			}},
			{"**Stint through Redis, Wait**", loneThroughRedis(func(ctx context.Context, l *stint.Limiter, limit *stint.Limit) error {
				return l.Wait(ctx, "key", limit)
			})},
			{"Stint through Redis, Allow", loneThroughRedis(allowOnce)},
		},
	},
}

func waitOnceEach(e *waitEnv, w waiter) ([]float64, error) {
	n := e.callers(1000)
	errs := make([]error, n)
	start := time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = w.wait(context.Background(), 1) })
	}
	all.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return []float64{w.perTurn(int64(n)), took.Seconds() / (float64(max(1, n-1)) / 500)}, nil
}

// loop makes callers wait for one unit again and again until ctx is done, and counts their turns.
func loop(ctx context.Context, callers int, wait func(context.Context) error) (turns *atomic.Int64, end func()) {
	var all sync.WaitGroup
	turns = new(atomic.Int64)
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				if wait(ctx) == nil {
					turns.Add(1)
				}
			}
		})
	}
	return turns, all.Wait
}

func waitForTen(e *waitEnv, w waiter) ([]float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	_, end := loop(ctx, 20, func(ctx context.Context) error { return w.wait(ctx, 1) })
	defer end()
	defer cancel()
	time.Sleep(e.time(500 * time.Millisecond))
	in, done := context.WithTimeout(ctx, e.time(5*time.Second))
	defer done()
	start, refused := time.Now(), 0.0
	if err := w.wait(in, 10); err != nil {
		refused = 1
	}
	return []float64{time.Since(start).Seconds() / 0.3, refused}, nil
}

func waitWithDeadlines(e *waitEnv, w waiter) ([]float64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var asked, failed, longest atomic.Int64
	_, end := loop(ctx, 20, func(ctx context.Context) error {
		in, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		start := time.Now()
		err := w.wait(in, 1)
		took := int64(time.Since(start))
		asked.Add(1)
		if err != nil {
			failed.Add(1)
			<-in.Done() // a worker that is refused at once comes back after the deadline
			return err
		}
		for was := longest.Load(); took > was && !longest.CompareAndSwap(was, took); was = longest.Load() {
		}
		return nil
	})
	time.Sleep(e.time(4 * time.Second))
	cancel()
	end()
	return []float64{100 * float64(failed.Load()) / float64(asked.Load()), time.Duration(longest.Load()).Seconds() / 0.4}, nil
}

func holdOnceEach(e *waitEnv, acquire func() (func(), error)) ([]float64, error) {
	const held = 5 * time.Millisecond
	n := e.callers(1000)
	var failed atomic.Int64
	start := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			release, err := acquire()
			if err != nil {
				failed.Add(1)
				return
			}
			time.Sleep(held)
			release()
		})
	}
	all.Wait()
	if failed.Load() > 0 {
		return nil, fmt.Errorf("%d of %d had no place", failed.Load(), n)
	}
	return []float64{float64(time.Since(start)) / (float64(held) * float64(n) / 10)}, nil
}

type loneCall func(context.Context, *stint.Limiter, *stint.Limit) error

func allowOnce(ctx context.Context, l *stint.Limiter, limit *stint.Limit) error {
	_, err := l.Allow(ctx, "key", limit)
	return err
}

var neverReached = stint.MustLimit("1000000000 per 1h")

func loneInMemory(call loneCall) func(*waitEnv) ([]float64, error) {
	return func(e *waitEnv) ([]float64, error) {
		l := new(stint.Limiter)
		return lone(e.callers(1_000_000), func() error { return call(context.Background(), l, neverReached) })
	}
}

func loneThroughRedis(call loneCall) func(*waitEnv) ([]float64, error) {
	return func(e *waitEnv) ([]float64, error) {
		s, end, err := redisStore(place{redis: e.redis.addr})
		if err != nil {
			return nil, err
		}
		defer end()
		l := stint.NewLimiter(s)
		return lone(e.callers(5000), func() error { return call(context.Background(), l, neverReached) })
	}
}

// lone calls n times, one after another.
func lone(n int, call func() error) ([]float64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range n {
		if err := call(); err != nil {
			return nil, err
		}
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	// The runtime's own allocations are less than a hundredth of an allocation for each call.
	allocs := float64((after.Mallocs-before.Mallocs)*10/uint64(n)) / 10
	return []float64{float64(took.Nanoseconds()) / float64(n), allocs}, nil
}
