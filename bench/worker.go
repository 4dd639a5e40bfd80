package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type assignment struct {
	Table   string
	Subject string
	Redis   string
	DB      int
	Short   bool
}

type ready struct {
	BytesPerKey float64 // in this process
	Error       string
}

// sample is a subject's work in one turn.
type sample struct {
	Calls   int64   // answered, with or without an error
	Denied  int64   //
	Errors  int64   //
	Nanos   int64   // from the first call to the last answer
	Mallocs uint64  // in all of the process, or of the server's
	P99     int64   // ns; 0 where calls are not timed one by one
	CPU     float64 // of Redis, or of the server's process, in seconds
	Error   string  // one of the errors
	Profile []byte  `json:",omitempty"` // of the server's process
	Pauses  *pauses `json:",omitempty"` // of a table of pauses
}

// work takes turns, each for a line of standard input with a duration, and ends with standard input.
func work(text string) error {
	var a assignment
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	t, s, err := find(&a)
	if err != nil {
		return err
	}
	if t.procs > 0 {
		runtime.GOMAXPROCS(t.procs)
	}
	out := json.NewEncoder(os.Stdout)
	var keys []string
	if !t.fresh {
		keys = allKeys(t.keys)
	}
	l, bytes, err := prepare(t, s, place{redis: a.Redis, db: a.DB})
	if err != nil {
		return out.Encode(ready{Error: err.Error()})
	}
	defer l.end()
	if err := out.Encode(ready{BytesPerKey: bytes}); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		text, profile := strings.CutPrefix(in.Text(), profiled)
		ns, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		s, err := useOf(l, profile, func() sample { return turn(t, l, keys, time.Duration(ns)) })
		if err != nil {
			return err
		}
		if err := out.Encode(s); err != nil {
			return err
		}
	}
	return nil
}

const profiled = "profile "

// useOf is a turn with the server process's usage in it.
func useOf(l *limiter, profile bool, turn func() sample) (sample, error) {
	if l.used == nil {
		return turn(), nil
	}
	before, err := l.used(profile)
	if err != nil {
		return sample{}, err
	}
	s := turn()
	after, err := l.used(false)
	s.CPU, s.Mallocs, s.Profile = after.CPU-before.CPU, after.Mallocs-before.Mallocs, after.Profile
	return s, err
}

func find(a *assignment) (*table, *subject, error) {
	all := tables(a.Short)
	for i := range all {
		if all[i].name != a.Table {
			continue
		}
		for j := range all[i].subjects {
			if all[i].subjects[j].name == a.Subject {
				return &all[i], &all[i].subjects[j], nil
			}
		}
	}
	return nil, nil, fmt.Errorf("no subject %q in a table %q", a.Subject, a.Table)
}

func prepare(t *table, s *subject, p place) (*limiter, float64, error) {
	limit := t.limit
	if s.log {
		limit = t.logLimit
	}
	before := held()
	l, err := s.open(p, limit)
	if err != nil {
		return nil, 0, err
	}
	ctx := context.Background()
	if t.fill || s.kind == floor {
		// A request brings its own text; a limiter that keeps the key keeps that text.
		if err := fill(ctx, l, allKeys(t.keys)); err != nil {
			return nil, 0, fmt.Errorf("fill: %w", err)
		}
	}
	if t.drain && s.kind != floor {
		key := makeKey(0)
		for range limit.amount {
			if _, err := l.take(ctx, key); err != nil {
				return nil, 0, fmt.Errorf("drain: %w", err)
			}
		}
		if allowed, err := l.take(ctx, key); allowed || err != nil {
			return nil, 0, fmt.Errorf("drained, and allowed is %v, error %v", allowed, err)
		}
	}
	return l, (held() - before) / float64(max(1, t.keys)), nil
}

// makeKey makes a new key, by one allocation.
func makeKey(i uint64) string {
	const prefix = "user:"
	var text [len(prefix) + 20]byte
	return string(strconv.AppendUint(append(text[:0], prefix...), i, 10))
}

func allKeys(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = makeKey(uint64(i))
	}
	return all
}

func fill(ctx context.Context, l *limiter, keys []string) error {
	if l.fill != nil {
		return l.fill(ctx, keys)
	}
	for _, k := range keys {
		if _, err := l.take(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

func held() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// turn calls from all callers. Without keys, each call makes a new one, by one allocation that is not
// counted.
func turn(t *table, l *limiter, keys []string, d time.Duration) sample {
	if t.newcomers > 0 {
		return turnOfPauses(t, l, d)
	}
	callers := t.callers
	if callers == 0 {
		callers = runtime.GOMAXPROCS(0)
	}
	ran := make([]caller, callers)
	for i := range ran {
		ran[i].random = uint64(time.Now().UnixNano())*2 + uint64(i)*0x9e3779b97f4a7c15 + 1
		if t.batch == 1 {
			ran[i].took = make([]int64, 0, 1<<13)
		}
	}
	var stop atomic.Bool
	var all sync.WaitGroup
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	time.AfterFunc(d, func() { stop.Store(true) })
	for i := range ran {
		all.Go(func() { ran[i].run(t, l, keys, &stop) })
	}
	all.Wait()
	s := sample{Nanos: time.Since(start).Nanoseconds()}
	runtime.ReadMemStats(&after)
	s.Mallocs = after.Mallocs - before.Mallocs
	var took []int64
	for i := range ran {
		c := &ran[i]
		s.Calls, s.Denied, s.Errors = s.Calls+c.calls, s.Denied+c.denied, s.Errors+c.errors
		took = append(took, c.took...)
		if c.err != nil {
			s.Error = c.err.Error()
		}
	}
	if t.fresh {
		s.Mallocs -= uint64(s.Calls)
	}
	if len(took) > 0 {
		slices.Sort(took)
		s.P99 = took[len(took)*99/100]
	}
	return s
}

type caller struct {
	random                uint64
	calls, denied, errors int64
	err                   error
	took                  []int64
	_                     [64]byte
}

func (c *caller) run(t *table, l *limiter, keys []string, stop *atomic.Bool) {
	ctx := context.Background()
	random, n := c.random, uint64(t.keys)
	var calls, denied int64
	var last time.Time
	if t.batch == 1 {
		last = time.Now()
	}
	for once := true; once || !stop.Load(); once = false {
		for range t.batch {
			random ^= random << 13
			random ^= random >> 7
			random ^= random << 17
			i := (random >> 32) * n >> 32
			var key string
			if t.fresh {
				key = makeKey(i)
			} else {
				key = keys[i]
			}
			allowed, err := l.take(ctx, key)
			calls++
			if err != nil {
				c.errors++
				c.err = err
			} else if !allowed {
				denied++
			}
		}
		if t.batch == 1 {
			now := time.Now()
			c.took = append(c.took, now.Sub(last).Nanoseconds())
			last = now
		}
	}
	c.calls, c.denied = calls, denied
}
