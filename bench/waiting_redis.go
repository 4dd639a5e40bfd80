package main

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

var nan = math.NaN()

var redisWaits = []waitCase{
	{
		title:    "Thousands of callers for one key, through Redis",
		about:    "3,000 goroutines wait for 5 s, `100 per 1s`, through `fleet.Fallback` and Redis; 4 callers use other keys",
		columns:  []string{"of the turns due", "decisions a turn", "% of other keys decided without Redis", "of their time without waiters"},
		rounds:   5,
		subjects: []waitSubject{{"**Stint**", crowd}},
	},
	{
		title:    "A leaky bucket whose answers come late, through Redis",
		about:    "The same with a `leaky_bucket`; a quarter of the time, answers are up to 200 ms late",
		columns:  []string{"of the turns due", "decisions a turn"},
		rounds:   10,
		subjects: []waitSubject{{"**Stint**", lateAnswers}},
	},
	{
		title:   "Callers that leave a leaky bucket",
		about:   "60 goroutines wait, `10 per 1s leaky_bucket`, and are cancelled after 100 ms; then one waits",
		columns: []string{"ms"},
		rounds:  5,
		subjects: []waitSubject{
			{"**Stint in memory**", func(e *waitEnv) ([]float64, error) { return leavers(e, new(stint.Memory)) }},
			{"**Stint through Redis**", func(e *waitEnv) ([]float64, error) {
				s, end, err := redisStore(place{redis: e.redis.addr})
				if err != nil {
					return nil, err
				}
				defer end()
				return leavers(e, s)
			}},
		},
	},
	{
		title:    "Three instances with lines of 1, 10 and 1,000",
		about:    "Three instances share Redis for 10 s, `100 per 1s`, with 1, 10 and 1,000 goroutines; in proportion they would get 1, 10 and 989 turns",
		columns:  []string{"of the turns due", "turns for 1 goroutine", "for 10", "for 1,000", "decisions a turn"},
		rounds:   5,
		subjects: []waitSubject{{"**Stint**", threeLines}},
	},
}

// guarded is a Redis with a Fallback around it, as in an instance of a fleet.
func guarded(addr string) (*fleet.Fallback, func(), error) {
	s, end, err := redisStore(place{redis: addr})
	if err != nil {
		return nil, nil, err
	}
	f := &fleet.Fallback{Store: s, Called: func(time.Duration, error) {}}
	return f, func() { f.Close(); end() }, nil
}

// drain uses up the burst of the key that all wait for.
func drain(store stint.Store, limit *stint.Limit, burst int64) error {
	_, err := stint.NewLimiter(store).AllowN(context.Background(), "key", limit, burst)
	return err
}

func crowd(e *waitEnv) ([]float64, error) {
	f, end, err := guarded(e.redis.addr)
	if err != nil {
		return nil, err
	}
	defer end()
	limit := stint.MustLimit("100 per 1s")
	_, before := askOthers(f, e.time(time.Second), func() {})
	if err := drain(f, limit, 100); err != nil {
		return nil, err
	}
	w := stintWaiter(f, limit)
	var turns int64
	length := e.time(5 * time.Second)
	local, mean := askOthers(f, length, func() {
		turns = waitFor(length, e.callers(3000), w)
	})
	return []float64{float64(turns) / (100 * length.Seconds()), w.perTurn(turns), local, mean / before}, nil
}

// waitFor makes callers wait again and again for d, and returns the number of their turns.
func waitFor(d time.Duration, callers int, w waiter) int64 {
	ctx, cancel := context.WithCancel(context.Background())
	turns, end := loop(ctx, callers, func(ctx context.Context) error { return w.wait(ctx, 1) })
	time.Sleep(d)
	had := turns.Load()
	cancel()
	end()
	return had
}

// askOthers asks for keys of other callers for d, while do runs. It returns how many of 100 answers
// were local, and the mean time of one.
func askOthers(s stint.Store, d time.Duration, do func()) (local, mean float64) {
	l, limit := stint.NewLimiter(s), stint.MustLimit("others: 1000000 per 1h")
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var asked, here, took atomic.Int64
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			every := time.NewTicker(5 * time.Millisecond)
			defer every.Stop()
			for n := i; ctx.Err() == nil; n += 4 {
				start := time.Now()
				answer, err := l.Allow(context.Background(), makeKey(uint64(n)), limit)
				took.Add(int64(time.Since(start)))
				asked.Add(1)
				if err != nil || answer.By == stint.ByLocal {
					here.Add(1)
				}
				<-every.C
			}
		})
	}
	do()
	all.Wait()
	n := float64(asked.Load())
	return 100 * float64(here.Load()) / n, float64(took.Load()) / n
}

func lateAnswers(e *waitEnv) ([]float64, error) {
	proxy, stop, err := lateProxy(e.redis.addr, 200*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer stop()
	f, end, err := guarded(proxy)
	if err != nil {
		return nil, err
	}
	defer end()
	length := e.time(5 * time.Second)
	w := stintWaiter(f, stint.MustLimit("100 per 1s leaky_bucket burst 5000"))
	turns := waitFor(length, e.callers(3000), w)
	return []float64{float64(turns) / (100 * length.Seconds()), w.perTurn(turns)}, nil
}

// lateProxy passes bytes on to addr. It delays answers by up to late, in a quarter of the time.
func lateProxy(addr string, late time.Duration) (string, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var mu sync.Mutex
	var conns []net.Conn
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", addr)
			if err != nil {
				in.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, in, out)
			mu.Unlock()
			go func() { _, _ = io.Copy(out, in); out.Close() }()
			go func() { holdBack(in, out, late); in.Close() }()
		}
	}()
	return l.Addr().String(), func() {
		l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	}, nil
}

func holdBack(to io.Writer, from io.Reader, late time.Duration) {
	part := make([]byte, 64<<10)
	again := time.Now()
	for {
		n, err := from.Read(part)
		if err != nil {
			return
		}
		if time.Now().After(again) {
			pause := rand.N(late)
			time.Sleep(pause)
			again = time.Now().Add(3 * pause)
		}
		if _, err := to.Write(part[:n]); err != nil {
			return
		}
	}
}

func leavers(e *waitEnv, s stint.Store) ([]float64, error) {
	l, limit := stint.NewLimiter(s), stint.MustLimit("10 per 1s leaky_bucket burst 100")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	// A context that is only cancelled has no deadline; with one, they would be refused at once.
	left, leave := context.WithCancel(context.Background())
	_, end := loop(left, e.callers(60), func(ctx context.Context) error {
		err := l.Wait(ctx, "key", limit)
		<-ctx.Done()
		return err
	})
	<-ctx.Done()
	leave()
	end()
	start := time.Now()
	err := l.Wait(context.Background(), "key", limit)
	return []float64{float64(time.Since(start).Milliseconds())}, err
}

func threeLines(e *waitEnv) ([]float64, error) {
	limit, length := stint.MustLimit("100 per 1s"), e.time(10*time.Second)
	var turns [3]int64
	var decisions float64
	var all sync.WaitGroup
	waiters := make([]waiter, len(turns))
	for i := range waiters {
		f, end, err := guarded(e.redis.addr)
		if err != nil {
			return nil, err
		}
		defer end()
		if i == 0 {
			if err := drain(f, limit, 100); err != nil {
				return nil, err
			}
		}
		waiters[i] = stintWaiter(f, limit)
	}
	for i, n := range []int{1, 10, e.callers(1000)} {
		all.Go(func() { turns[i] = waitFor(length, n, waiters[i]) })
	}
	all.Wait()
	sum := turns[0] + turns[1] + turns[2]
	for _, w := range waiters {
		decisions += float64(w.decisions.Load())
	}
	return []float64{float64(sum) / (100 * length.Seconds()), float64(turns[0]), float64(turns[1]), float64(turns[2]), decisions / float64(max(1, sum))}, nil
}
