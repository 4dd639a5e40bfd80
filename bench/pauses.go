package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	sethvargo "github.com/sethvargo/go-limiter/memorystore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/sys/unix"

	"github.com/stintdev/stint"
)

// pauses are the longest steps of a loop of one caller over new keys; a step is from one reading of the clock
// to the next, including making the key.
type pauses struct {
	Median, P999, P9999, Slowest int64 // ns
	Long                         int64 // how many took longer than longPause
	// Worked is the most processor time of one step, in ns. For the rest of a step
	// it waited: for a processor, for a lock, for the collector.
	Worked int64
	Held   float64 // bytes at the end, more than before
}

const (
	// longPause is longer than any decision should take because of other keys' remains.
	longPause   = time.Millisecond
	longInWords = "1 ms"
	// lookedAt are the steps whose processor time is measured, and lookEvery the number of steps between two
	// readings of the thread's clock, each a system call.
	lookedAt  = 50 * time.Microsecond
	lookEvery = 256
)

const clockRow = "the clock alone"

// pauseSubjects bound their keys, swept once a period where they need a call for that; one never drops a key.
func pauseSubjects(newcomers int) []subject {
	return append(longPauseSubjects(newcomers),
		subject{name: "Stint sliding log", kind: ours, log: true, open: stintIn(roomFor(newcomers), stint.SlidingLog)},
		subject{name: "Stint sliding window", kind: ours, open: stintIn(roomFor(newcomers), stint.SlidingWindow)},
		subject{name: "x/time/rate in a sync.Map", kind: peer, open: openRate},
		subject{name: "sethvargo/go-limiter", kind: peer, open: openSweptSethvargo},
		subject{name: "ulule/limiter", kind: peer, open: openSweptUlule},
		subject{name: "throttled, LRU", kind: peer, open: openThrottledMemory(newcomers / 2)})
}

// longPauseSubjects also run with ten times as many keys; for others, time does not suffice.
func longPauseSubjects(newcomers int) []subject {
	return []subject{
		{name: mainRow, kind: ours, open: stintIn(roomFor(newcomers), stint.TokenBucket)},
		{name: clockRow, kind: floor, open: func(place, spec) (*limiter, error) { return only(func(string) {}), nil }},
	}
}

func roomFor(keys int) storeOpener {
	return func(place) (stint.Store, func(), error) { return &stint.Memory{MaxKeys: keys}, func() {}, nil }
}

func openSweptSethvargo(_ place, s spec) (*limiter, error) {
	return sethvargoOf(sethvargo.Config{Tokens: uint64(s.amount), Interval: s.period, SweepInterval: s.period, SweepMinTTL: s.period})
}

func openSweptUlule(_ place, s spec) (*limiter, error) {
	return ululeOver(ululememory.NewStoreWithOptions(ulule.StoreOptions{Prefix: ulule.DefaultPrefix, CleanUpInterval: s.period}), s), nil
}

// turnOfPauses lets the table's number of keys come in, for d at least. The wait of a long step is the time
// in which the thread did not work since the last reading, a moment before.
func turnOfPauses(t *table, l *limiter, d time.Duration) sample {
	var s sample
	var p pauses
	var steps histogram
	var text [20]byte
	ctx := context.Background()
	empty := held()
	runtime.LockOSThread() // its time is then the loop's own
	defer runtime.UnlockOSThread()
	start := time.Now()
	last := start
	looked, before := start, threadTime()
	for i := 0; i < t.newcomers || last.Sub(start) < d; i++ {
		allowed, err := l.take(ctx, string(strconv.AppendInt(text[:0], int64(i), 10)))
		now := time.Now()
		step := now.Sub(last).Nanoseconds()
		last = now
		steps.add(step)
		p.Slowest = max(p.Slowest, step)
		if step > longPause.Nanoseconds() {
			p.Long++
		}
		if step > lookedAt.Nanoseconds() || i%lookEvery == 0 {
			worked := threadTime()
			waited := now.Sub(looked).Nanoseconds() - (worked - before)
			p.Worked = max(p.Worked, step-max(0, waited))
			looked, before = time.Now(), worked
			last = looked // the look belongs to no step
		}
		s.Calls++
		if err != nil {
			s.Errors, s.Error = s.Errors+1, err.Error()
		} else if !allowed {
			s.Denied++
		}
	}
	s.Nanos = last.Sub(start).Nanoseconds()
	p.Median, p.P999, p.P9999 = steps.quantile(0.5), steps.quantile(0.999), steps.quantile(0.9999)
	p.Held = held() - empty
	runtime.KeepAlive(l)
	s.Pauses = &p
	return s
}

// threadTime is the processor time of this thread, in ns; 0: unknown.
func threadTime() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return t.Nano()
}

// measurePauses gives each turn a process of its own, one after another: millions of keys of all subjects do
// not fit together. The row of the clock alone runs as long as the main row did.
func measurePauses(t *table, rounds int, short bool) (*measured, error) {
	m := &measured{table: t}
	for i := range t.subjects {
		m.results = append(m.results, result{subject: &t.subjects[i]})
	}
	var asLong time.Duration
	for range min(rounds, t.rounds) {
		for i := range m.results {
			r := &m.results[i]
			d := time.Duration(0)
			if r.subject.name == clockRow {
				d = asLong
			}
			s, err := pausesIn(assignment{Table: t.name, Subject: r.subject.name, Short: short}, d)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", t.name, r.subject.name, err)
			}
			if r.subject.name == mainRow {
				asLong = time.Duration(s.Nanos)
			}
			r.Samples = append(r.Samples, s)
		}
	}
	return m, nil
}

func pausesIn(a assignment, d time.Duration) (sample, error) {
	w, _, err := startWorker(a)
	if err != nil {
		return sample{}, err
	}
	defer w.end()
	s, err := w.turn(d, "")
	if err == nil && s.Errors+s.Denied > 0 {
		err = fmt.Errorf("%d first requests were not allowed: %s", s.Errors+s.Denied, s.Error)
	}
	return s, err
}

func (r *result) most(of func(*pauses) int64) float64 {
	return slices.Max(r.each(func(s *sample) float64 { return float64(of(s.Pauses)) }))
}

func worked(p *pauses) int64  { return p.Worked }
func slowest(p *pauses) int64 { return p.Slowest }

func (m *measured) pauses(w io.Writer) {
	all := m.sorted()
	slices.SortStableFunc(all, func(a, b *result) int { return cmp.Compare(a.most(slowest), b.most(slowest)) })
	fmt.Fprintf(w, "\n### %s\n\n%s", m.table.title, m.table.about)
	if n := len(all[0].Samples); n > 1 {
		fmt.Fprintf(w, " %d rounds: percentiles are their median, all other figures are of all rounds.", n)
	} else {
		fmt.Fprint(w, " One round.")
	}
	fmt.Fprintf(w, "\n\n| | median | 99.9th percentile | 99.99th | slowest | longer than %s | longest work | bytes held at the end |\n"+
		"|---|---:|---:|---:|---:|---:|---:|---:|\n", longInWords)
	for _, r := range all {
		long := 0.0
		for _, n := range r.each(func(s *sample) float64 { return float64(s.Pauses.Long) }) {
			long += n
		}
		typical := func(of func(*pauses) int64) string {
			return duration(spreadOf(r.each(func(s *sample) float64 { return float64(of(s.Pauses)) })).middle)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", r.subject.display(),
			typical(func(p *pauses) int64 { return p.Median }), typical(func(p *pauses) int64 { return p.P999 }),
			typical(func(p *pauses) int64 { return p.P9999 }), duration(r.most(slowest)), number(long), duration(r.most(worked)),
			number(max(0, slices.Max(r.each(func(s *sample) float64 { return s.Pauses.Held })))))
	}
}

func (r *run) pausesInShort(w io.Writer) {
	for _, m := range r.tables {
		main, clock := m.find(mainRow), m.find(clockRow)
		if m.table.newcomers == 0 || main == nil || clock == nil {
			continue
		}
		title := m.table.title
		fmt.Fprintf(w, "\nWhile %s in memory, a decision worked for at most %s, and took up to %s with all waits; reading the clock took %s.\n",
			strings.ToLower(title[:1])+title[1:], duration(main.most(worked)), duration(main.most(slowest)), duration(clock.most(slowest)))
	}
}
