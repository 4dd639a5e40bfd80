package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// checked is how a limiter counts; -1: not supported, or not measured.
type checked struct {
	Where, Name string
	Alone       int64 // allowed of 200 requests by one caller, at 100 a day
	Together    int64 // allowed of 2,000 requests by 64 callers, at 1,000 a day
	Errors      int64 // among the latter
	Refusal     int64 // 1: after a refused request for too many units, one unit is still allowed
	Flood       int64 // allowed during a flood of 4 periods, at 100 each
	Large       int64 // allowed in the second period of a flood, at 100,000 a second
}

const floodPeriods = 4

func check(short bool, redis *redisServer) ([]checked, error) {
	var all []checked
	for _, group := range []struct {
		where    string
		subjects [][]subject
	}{{"in memory", [][]subject{memoryOurs, memoryPeers}}, {"through Redis", [][]subject{redisOurs, redisPeers}}} {
		for _, some := range group.subjects {
			for i := range some {
				// A database of its own, because all rows of Stint leave keys of the same names.
				p := place{redis: redis.addr, db: len(all) % 16}
				c, err := checkOne(short, &some[i], p, group.where == "in memory")
				if err != nil {
					return nil, fmt.Errorf("check %s %s: %w", some[i].name, group.where, err)
				}
				c.Where, c.Name = group.where, some[i].name
				all = append(all, c)
			}
		}
	}
	return all, redis.flush()
}

func with[R any](s *subject, p place, limit spec, do func(context.Context, *limiter) (R, error)) (r R, err error) {
	l, err := s.open(p, limit)
	if err != nil {
		return r, err
	}
	defer l.end()
	return do(context.Background(), l)
}

func checkOne(short bool, s *subject, p place, inMemory bool) (c checked, err error) {
	c = checked{Refusal: -1, Flood: -1, Large: -1}
	if c.Alone, err = with(s, p, spec{100, 24 * time.Hour}, func(ctx context.Context, l *limiter) (n int64, err error) {
		for range 200 {
			allowed, err := l.take(ctx, "alone")
			if err != nil {
				return 0, err
			}
			if allowed {
				n++
			}
		}
		return n, nil
	}); err != nil {
		return c, err
	}
	if c.Together, err = with(s, p, spec{1000, 24 * time.Hour}, func(ctx context.Context, l *limiter) (int64, error) {
		allowed, errors := together(ctx, l)
		c.Errors = errors
		return allowed, nil
	}); err != nil {
		return c, err
	}
	if c.Refusal, err = with(s, p, spec{100, 24 * time.Hour}, refusal); err != nil || short {
		return c, err
	}
	period := 250 * time.Millisecond
	if c.Flood, err = with(s, p, spec{100, period}, func(ctx context.Context, l *limiter) (int64, error) {
		return flood(ctx, l, floodPeriods*period, "flood")
	}); err != nil || !inMemory {
		return c, err
	}
	c.Large, err = with(s, p, spec{100_000, time.Second}, large)
	return c, err
}

// together sends 2,000 requests from 64 callers.
func together(ctx context.Context, l *limiter) (allowed, errors int64) {
	var sent, ok, failed atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for sent.Add(1) <= 2000 {
				switch yes, err := l.take(ctx, "together"); {
				case err != nil:
					failed.Add(1)
				case yes:
					ok.Add(1)
				}
			}
		})
	}
	all.Wait()
	return ok.Load(), failed.Load()
}

// refusal takes 50 of 100 units, is refused 60, and asks for one.
func refusal(ctx context.Context, l *limiter) (int64, error) {
	if l.takeN == nil {
		return -1, nil
	}
	for i, step := range []struct {
		n       int
		allowed bool
	}{{50, true}, {60, false}} {
		if allowed, err := l.takeN(ctx, "refusal", step.n); err != nil || allowed != step.allowed {
			return 0, fmt.Errorf("step %d: allowed %v, %w", i, allowed, err)
		}
	}
	allowed, err := l.takeN(ctx, "refusal", 1)
	if allowed {
		return 1, err
	}
	return 0, err
}

// flood sends as fast as one caller can, and counts allowed requests.
func flood(ctx context.Context, l *limiter, d time.Duration, key string) (n int64, err error) {
	for start := time.Now(); time.Since(start) < d; {
		allowed, err := l.take(ctx, key)
		if err != nil {
			return 0, err
		}
		if allowed {
			n++
		}
	}
	return n, nil
}

// large floods for two periods, and counts in the second.
func large(ctx context.Context, l *limiter) (int64, error) {
	if _, err := flood(ctx, l, time.Second, "large"); err != nil {
		return 0, err
	}
	return flood(ctx, l, time.Second, "large")
}

// faults describes wrong counts. A fixed window may allow one more amount, since the flood may begin within
// one.
func (c *checked) faults() []string {
	var all []string
	fault := func(when bool, format string, args ...any) {
		if when {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	fault(c.Alone != 100, "allows %s where 100 are", count(c.Alone))
	fault(c.Together+c.Errors < 1000 || c.Together > 1000, "allows %s to callers at once where 1,000 are", count(c.Together))
	fault(c.Errors > 0, "fails with an error in %s of 2,000 requests for one key at once", count(c.Errors))
	fault(c.Refusal == 0, "charges what it refuses")
	fault(c.Flood >= 0 && c.Flood < 100*(floodPeriods-1)*95/100, "starves in a flood: allows %s in %d periods of 100", count(c.Flood), floodPeriods)
	fault(c.Flood > 100*(floodPeriods+1)*105/100, "allows %s in %d periods of 100", count(c.Flood), floodPeriods)
	fault(c.Large >= 0 && c.Large < 90_000, "allows %s in the second of two seconds at 100,000 a second", count(c.Large))
	fault(c.Large > 210_000, "allows %s in the second of two seconds at 100,000 a second", count(c.Large))
	return all
}
