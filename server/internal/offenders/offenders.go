// Package offenders finds the offenders: the keys, rules, paths and clients with the most
// refusals, use and violations. It keeps the heaviest of each kind in bounded memory (see internal/heavy),
// shares them with the fleet, and keeps their history by the hour.
package offenders

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/internal/heavy"
	"github.com/stintdev/stint/server/internal/reports"
)

// Dimension is the kind of thing that is counted.
type Dimension uint8

// If you add one, name it in Dimensions and in adminapi.Offenders.
const (
	Keys    Dimension = iota // under a rule; see Key
	Rules                    // by name
	Paths                    // of requests
	Clients                  // as rules count them: an IPv4 address or an IPv6 network
	ofs
)

// Weight is the measure of the count.
type Weight uint8

// If you add one, name it in Weights and in adminapi.Offenders.
const (
	Refusals   Weight = iota // requests that were refused
	Use                      // cost that was charged
	Violations               // that count under a penalty
	bys
)

// Kinds is how many kinds of offenders are counted.
const Kinds = int64(ofs) * int64(bys)

// Dimensions and Weights are the names, by their values.
var (
	Dimensions = [...]string{Keys: "keys", Rules: "rules", Paths: "paths", Clients: "clients"}
	Weights    = [...]string{Refusals: "refusals", Use: "use", Violations: "violations"}
)

// Options has the parts of a Counter.
type Options struct {
	// Most is how many of each kind are counted on this instance: at least 1.
	Most    int
	Reports reports.Reports
	// Own means that only this process uses Reports, so that there is nothing from before New.
	Own bool
	// ID is the name of this instance in reports.
	ID string
	// Now is the time by the clock of the fleet.
	Now func() time.Time
	// Failed is called when something could not be shared with the fleet. It must not
	// block.
	Failed func(error)
}

// Counter counts an instance's decisions. Make it with New. It may be used from many goroutines at once.
type Counter struct {
	Options
	shards []shard
	wake   chan struct{} // a shard has half of its room

	mu    sync.Mutex
	spare []byte // the buffer that a shard gets when it is emptied
	now   table
	from  time.Time // the beginning of now's counts
	span  int64     // the span of now, once Follow runs
	// changed means that now has unreported counts.
	changed bool
	discard bool // of benchmarks

	late      []part         // the last parts of spans that are not reported yet; Follow's alone
	following sync.WaitGroup // of Follow
	stop      func()         // ends it
	followed  atomic.Bool
	began     time.Time // when New was called

	others latest
}

// table has a summary for each kind of count.
type table [ofs][bys]*heavy.Summary

// New returns a Counter that counts from now on. Close it after use.
func New(o Options) *Counter {
	s := &Counter{Options: o, wake: make(chan struct{}, 1), spare: make([]byte, 0, room)}
	s.shards = make([]shard, shards())
	for i := range s.shards {
		s.shards[i].b = make([]byte, 0, room)
	}
	for of := range s.now {
		for by := range s.now[of] {
			s.now[of][by] = heavy.New(o.Most)
		}
	}
	s.from = o.Now().UTC()
	s.began = s.from
	return s
}

// Follow shares counts with the fleet, and keeps history, in the background until ctx is done. Without it,
// everything since New counts as one span, and nothing is shared. Call it at most once.
func (s *Counter) Follow(ctx context.Context) {
	s.mu.Lock()
	s.span = spanOf(s.Now())
	s.mu.Unlock()
	ctx, s.stop = context.WithCancel(ctx)
	s.followed.Store(true)
	s.following.Go(func() { s.follow(ctx) })
}

func (s *Counter) follow(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	m := merger{Counter: s}
	for seconds := 1; ; {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			s.drain()
			continue
		case <-tick.C:
		}
		s.drain()
		if s.turn() || seconds%reportEvery == 0 {
			s.report(ctx)
		}
		if seconds%mergeEvery == 0 {
			m.merge(ctx)
		}
		seconds++
	}
}

// Close ends Follow, and reports the last counts. Do not call Follow and Close concurrently.
func (s *Counter) Close() {
	if !s.followed.Swap(false) {
		return
	}
	s.stop()
	s.following.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.drain()
	s.turn()
	s.report(ctx)
}
