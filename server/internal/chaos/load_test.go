package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/redislimit"
)

const (
	instances = 3
	callers   = 4 // of each instance
	rest      = 4 * time.Millisecond
	patient   = 10 * time.Second       // to whom no answer may be in doubt
	fresh     = 300 * time.Millisecond // how long a cold key is asked for
)

// kind is a sort of keys, which all are asked under one limit.
type kind struct {
	name  string
	limit *stint.Limit
	keys  int // 0: a new one again and again, which no instance has seen
	// most is what all instances may admit of a key while the store is away now
	// and then, and each time it loses its counts it may admit the limit again.
	most float64
}

var kinds = [...]kind{
	// What has nothing left when the store fails has nothing without it.
	{"spent", stint.MustLimit("50 per 24h sliding_log"), 4, 50},
	// What has some left is shared, from the last answers on, and charged later. The
	// worst is that one instance still asks the store, or asks it again, and gets all
	// that is left, while all others spend their shares of it.
	{"hot", stint.MustLimit(fmt.Sprint(hotUnits(), " per 24h")), 4, (2 - 1./instances) * float64(hotUnits())},
	{"cold", stint.MustLimit("20 per 24h sliding_log"), 0, 2 * 20},
	// Of fewer units than instances one passes at each.
	{"tiny", stint.MustLimit("2 per 24h sliding_log"), 0, 2 + instances},
}

// hotUnits is so many that they are spent in the course of the fault.
func hotUnits() int {
	if long() {
		return 1200
	}
	return 150
}

const spent = 0 // its place in kinds

// instance is what one process of a fleet would be.
type instance struct {
	*stint.Limiter
	fall  *fleet.Fallback
	store *redislimit.Store
	end   context.CancelFunc

	opened atomic.Int64 // times that the breaker was
	mu     sync.Mutex
	failed []span // calls of the store
}

func newInstance(t *testing.T, address string) *instance {
	t.Helper()
	s, err := redislimit.Connect(t.Context(), address, redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{store: s}
	i.fall = &fleet.Fallback{Store: s, Called: i.called}
	i.fall.Breaker.Changed = func(to fleet.BreakerState, _ error) {
		if to == fleet.Open {
			i.opened.Add(1)
		}
	}
	i.Limiter = stint.NewLimiter(i.fall)
	var ctx context.Context
	ctx, i.end = context.WithCancel(context.Background())
	go i.fall.Follow(ctx)
	return i
}

func (i *instance) called(took time.Duration, err error) {
	if err == nil {
		return
	}
	now := time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failed = append(i.failed, span{now.Add(-took), now, err})
}

func (i *instance) close() {
	i.end()
	i.fall.Close()
	i.store.Close()
}

// load is the fleet, and the account of what it was told.
type load struct {
	fleet   []*instance
	began   time.Time
	stop    chan struct{}
	running sync.WaitGroup
	byStore [instances]atomic.Int64 // when the store decided last, by instance

	mu       sync.Mutex
	admitted map[string]int // by key
	doubtful map[string]int // of these, in the stead of a call that failed: they may not be charged
	kindOf   map[string]*kind
	took     []time.Duration
	local    int
	failed   int
	why      error
}

// start begins with the census complete and the spent keys spent, as each instance
// knows.
func start(t *testing.T, address string) *load {
	t.Helper()
	l := &load{stop: make(chan struct{}), admitted: map[string]int{}, doubtful: map[string]int{}, kindOf: map[string]*kind{}, began: time.Now()}
	for range instances {
		l.fleet = append(l.fleet, newInstance(t, address))
	}
	for _, i := range l.fleet {
		await.Until(t, "all instances are counted", func() bool { return i.fall.Live() == instances })
	}
	for key := range kinds[spent].keys {
		for i := range l.fleet {
			for !l.ask(i, &kinds[spent], fmt.Sprint("spent", key), patient).isRefusal() {
			}
		}
	}
	l.took = nil // first calls bring scripts to the server
	for i := range l.fleet {
		for range callers {
			l.running.Go(func() { l.call(i) })
		}
	}
	return l
}

type answer stint.Decision

func (a answer) isRefusal() bool { return !a.Allowed && a.By == stint.ByStore }

func (l *load) call(i int) {
	for {
		select {
		case <-l.stop:
			return
		case <-time.After(rand.N(rest)):
		}
		k := &kinds[rand.IntN(len(kinds))]
		n := int(time.Since(l.began) / fresh)
		if k.keys > 0 {
			n = rand.IntN(k.keys)
		}
		l.ask(i, k, fmt.Sprint(k.name, n), 0)
	}
}

// ask asks an instance, which waits for the store as long as deadline; 0: as usual.
func (l *load) ask(i int, k *kind, key string, deadline time.Duration) answer {
	sent := l.fleet[i].fall.State() == fleet.Closed
	asked := time.Now()
	d, err := l.fleet[i].Take(context.Background(), &stint.Request{Asks: []stint.Ask{{Key: key, Limit: k.limit, Cost: 1}}, Deadline: deadline}, nil)
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, now.Sub(asked))
	switch {
	case err != nil:
		l.failed++
		l.why = err
	case d.By == stint.ByStore:
		l.byStore[i].Store(now.UnixNano())
	default:
		l.local++
	}
	if d.Allowed {
		l.admitted[key]++
		l.kindOf[key] = k
		if sent && d.By == stint.ByLocal {
			l.doubtful[key]++
		}
	}
	return answer(d)
}

// opened tells whether the breaker of an instance was.
func (l *load) opened() bool {
	return slices.ContainsFunc(l.fleet, func(i *instance) bool { return i.opened.Load() > 0 })
}

// decides waits until the store decides at every instance, and returns how long
// that took.
func (l *load) decides(t *testing.T) time.Duration {
	t.Helper()
	from := time.Now()
	await.Until(t, "the store decides at every instance", func() bool {
		for i := range l.byStore {
			if l.byStore[i].Load() < from.UnixNano() || l.fleet[i].fall.State() != fleet.Closed {
				return false
			}
		}
		return true
	})
	return time.Since(from)
}
