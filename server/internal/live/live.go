// Package live keeps the load of an instance and its fleet, now and in the last 15 minutes: requests by rule
// and outcome, calls of the store, and their times.
//
// An instance reads its own counters each second. The instances of a fleet report theirs to
// each other; see fleet.go. Callers get the fleet's numbers, or this instance's while the others cannot be
// read. Requests pay nothing for this.
package live

import (
	"context"
	"sync"
	"time"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/reports"
)

// Options are the sources of a Live. All but Reports and Failed must be given.
type Options struct {
	// ID names this instance in reports. Host is the name of the machine, Program the name
	// and version of the program.
	ID, Host, Program string
	// Count reads the counters of this instance. Rules has each rule in force that has counted something, and
	// Outcomes only the requests that no rule decided. It is not called concurrently.
	Count func() *Counts
	// InForce reports whether a rule is in force.
	InForce func(rule string) bool
	// State reads the rest. It must not wait for the store.
	State func() State
	// Reports are the fleet's. nil: this instance is alone.
	Reports reports.Reports
	// Failed is called with the errors of Reports. nil: they are ignored.
	Failed func(error)
}

// State is an instance's own state beside its counters.
type State struct {
	Decides, Breaker string // as in adminapi.StoreStatus
	Down             time.Duration
	Instances        int64  // that share the store
	Version          string // of the rules
	Controls         int64  // number of the changes made at run time
	Bans             int64  // by penalties, that this instance imposed
	ManualBans       int64  // the same at every instance
	Firing           int64  // alerts
	// Holds are requests through this instance that hold units now, by rule. The map must not be changed.
	Holds map[string]int64
}

// Totals are the counters of a fleet.
type Totals struct {
	// Counts are the known counts since this instance started. They never decrease, except that rules no
	// longer in force are dropped.
	Counts
	At time.Time // by this machine's clock
	// Bans are the running bans, by penalties and manual.
	Bans int64
	// Holds are requests that hold units now, by rule. It must not be changed.
	Holds map[string]int64
	// Down is for how long the store has been down, at the instance that has missed it longest; 0: it
	// decides.
	Down time.Duration
	// Instances is how many are counted. Whole is false while other instances, if any, cannot be counted:
	// before the fleet's first sum, and while the store is down.
	Instances int64
	Whole     bool
}

// Live may be used from many goroutines at once. New makes one.
type Live struct {
	Options
	started time.Time
	done    chan struct{}
	end     sync.Once
	streams streams
	known   knownInstances

	mu     sync.Mutex
	read   *Counts   // the last result of Count
	readAt time.Time // zero: never
	own    Counts    // of this instance since its start
	ownNow recent
	all    Counts // of the fleet, or of this instance while it is alone
	now    recent
	series series
	state  State
	live   *adminapi.Live // nil: none yet
	liveAt time.Time
	event  []byte // live as it is sent

	sum   *sum // the newest of the fleet; nil: none yet
	sumAt time.Time
}

const (
	// tick is how often counters are read.
	tick = time.Second
	// slack is by how much a tick may be early.
	slack = 100 * time.Millisecond
)

// New returns a Live that has read nothing yet.
func New(o Options) *Live {
	return &Live{Options: o, started: time.Now(), done: make(chan struct{})}
}

// Close ends all streams, and Run.
func (l *Live) Close() { l.end.Do(func() { close(l.done) }) }

// Run reads the counters each second, and exchanges reports with the fleet every 2 seconds, until ctx is done
// or l closed. Without it, there are only this instance's numbers since the last call.
func (l *Live) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var exchanging sync.WaitGroup
	defer exchanging.Wait()
	if l.Reports != nil {
		exchanging.Go(func() { l.exchangeUntilDone(ctx) })
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		l.mu.Lock()
		l.step()
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-l.done:
			cancel()
			return
		case <-ticker.C:
		}
	}
}

// clock is the time by a clock that does not jump.
func (l *Live) clock() time.Time { return l.started.Add(time.Since(l.started)) }

// step reads the counters, unless that was less than a tick ago. The lock is held.
func (l *Live) step() {
	now := l.clock()
	since := l.readAt
	if since.IsZero() {
		since, l.read = l.started, new(Counts)
	} else if now.Sub(since) < tick-slack {
		return
	}
	read := l.Count()
	grown := increase(read, l.read, true)
	grown.byRules()
	l.read, l.readAt, l.state = read, now, l.State()
	l.own.add(grown)
	if l.Reports == nil {
		l.own.keep(l.has)
	}
	l.ownNow.add(growth{grown, now.Sub(since)}, fleetWindow)
	if !l.inFleet() {
		l.took(growth{grown, now.Sub(since)}, tick)
		l.all.keep(l.has)
	}
	// So an instance that is idle, or waits for the fleet's numbers, has no gaps in its series.
	l.series.begin(now)
}

// has reports whether a rule is in force, or was so at the last step but one. The lock is held.
func (l *Live) has(rule string) bool {
	_, read := l.read.Rules[rule]
	return read || l.InForce(rule)
}

// took adds the growth since the last numbers. The lock is held.
func (l *Live) took(g growth, window time.Duration) {
	l.all.add(g.counts)
	l.now.add(g, window)
	l.series.add(l.clock(), g.over, g.counts)
}

// Totals returns the counters of the fleet, as of the last seconds.
func (l *Live) Totals() Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.step()
	t := Totals{Counts: *l.all.clone(), At: time.Now(), Bans: l.state.Bans + l.state.ManualBans, Holds: l.holdsNow(), Down: l.state.Down, Instances: 1}
	if l.inFleet() {
		t.Bans, t.Instances = l.sum.Bans+l.state.ManualBans, l.sum.Instances
		t.Down = max(t.Down, l.sum.down())
	}
	t.Whole = l.Reports == nil || l.isCurrent()
	return t
}

// Series returns the last 15 minutes of a rule, or of all requests if rule is empty.
func (l *Live) Series(rule string) *adminapi.Series {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.step()
	return l.series.show(rule)
}

// growth is the growth of counters in a time.
type growth struct {
	counts *Counts
	over   time.Duration
}

// recent are the last growths.
type recent struct {
	all  []growth
	sum  Counts
	over time.Duration
}

// add adds g, and drops growths older than window, but never g.
func (r *recent) add(g growth, window time.Duration) {
	r.all = append(r.all, g)
	over := time.Duration(0)
	for i := len(r.all) - 1; i >= 0; i-- {
		if over += r.all[i].over; over > window+slack && i < len(r.all)-1 {
			r.all = append([]growth(nil), r.all[i+1:]...)
			break
		}
	}
	r.sum, r.over = Counts{}, 0
	for _, g := range r.all {
		r.sum.add(g.counts)
		r.over += g.over
	}
}

// rate is n a second.
func (r *recent) rate(n int64) float64 {
	if r.over <= 0 {
		return 0
	}
	return round(float64(n) / r.over.Seconds())
}

func (r *recent) outcomes() adminapi.Rates {
	rates := adminapi.Rates{}
	for i, n := range r.sum.Outcomes {
		if n > 0 {
			rates[Outcomes[i]] = r.rate(n)
		}
	}
	return rates
}
