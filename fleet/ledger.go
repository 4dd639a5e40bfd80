package fleet

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stintdev/stint"
)

type entryKey struct{ key, id string }

// ledger has the units that a Fallback has spent without its Store and owes to it.
type ledger struct {
	mu        sync.Mutex
	debts     map[entryKey]*debt
	size      int         // about how many bytes debts and unsettled take
	most      int         // bound of size; 0: DefaultMaxOwed
	owes      atomic.Bool // debts may not be empty
	unsettled []unsettled
	settles   atomic.Bool // unsettled may not be empty
}

type debt struct {
	key   string
	limit *stint.Limit
	spent
	// anyway means that the debt is charged whether it fits or not, see stint.HoldCharge.
	anyway bool
	// paying is the payment under way, if any: it charges due. charge and chargeAnyway belong to its
	// goroutine.
	paying       *payment
	due          spent
	charge       stint.Ask
	chargeAnyway bool
}

type payment struct {
	debts  []*debt
	ended  chan struct{} // closed at the end
	failed bool          // not all was charged; read it only after the end, like full
	full   bool          // because the Store had no room
}

func newPayment() *payment { return &payment{ended: make(chan struct{})} }

// DefaultMaxOwed is how many bytes a Fallback keeps about what it admitted without its
// Store, if its MaxOwed is 0. They suffice for some 100,000 short keys.
const DefaultMaxOwed = 32 << 20

const (
	// debtSize and spellSize are approximate; TestBytesOfALedger compares them with the heap.
	debtSize  = 288
	spellSize = 16
	// sweptDebts is how many debts are checked to find unused ones when a ledger is full.
	sweptDebts = 16
)

func (e *debt) size() int { return debtSize + len(e.key) + spellSize*(cap(e.older)+cap(e.due.older)) }

// note adds the units that an ask has spent at now. dry is when the units of a bucket that the
// Store knows have flowed out. anyway means that the Store is to charge them whether they fit or
// not.
func (l *ledger) note(a *stint.Ask, now, dry, live int64, anyway bool) {
	if a.Units() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.debts[entryKey{a.Key, a.Limit.ID()}]
	if e == nil {
		if e = l.open(a, now, live); e == nil {
			return
		}
	}
	was := e.size()
	if n := e.growth(planOf(a.Limit), now) * spellSize; n > 0 && !l.hasRoom(n, now, live) {
		return
	}
	e.spent.restate(planOf(e.limit), planOf(a.Limit))
	e.due.restate(planOf(e.limit), planOf(a.Limit))
	e.limit = a.Limit
	e.anyway = e.anyway || anyway
	e.add(planOf(a.Limit), a.Units(), now, dry, live)
	l.size += e.size() - was
	l.owes.Store(true)
}

func (l *ledger) open(a *stint.Ask, now, live int64) *debt {
	e := &debt{key: a.Key, limit: a.Limit}
	if !l.hasRoom(e.size(), now, live) {
		return nil
	}
	if l.debts == nil {
		l.debts = map[entryKey]*debt{}
	}
	e.key = strings.Clone(a.Key)
	l.debts[entryKey{e.key, a.Limit.ID()}] = e
	l.size += e.size()
	return e
}

// hasRoom makes room if it can.
func (l *ledger) hasRoom(bytes int, now, live int64) bool {
	most := or(l.most, DefaultMaxOwed)
	if l.size+bytes > most {
		l.sweep(now, live)
	}
	return l.size+bytes <= most
}

func (l *ledger) sweep(now, live int64) {
	n := 0
	for _, e := range l.debts { // the order is random
		if e.paying == nil && e.inUse(planOf(e.limit), now, live) == 0 {
			l.drop(e)
		}
		if n++; n == sweptDebts {
			return
		}
	}
}

// drop forgets e, unless that has happened. mu must be locked.
func (l *ledger) drop(e *debt) {
	k := entryKey{e.key, e.limit.ID()}
	if l.debts[k] != e {
		return
	}
	l.size -= e.size()
	if delete(l.debts, k); len(l.debts) == 0 {
		l.debts = nil // to free its memory
		l.owes.Store(false)
	}
}

func (l *ledger) refund(a *stint.Ask) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.debts[entryKey{a.Key, a.Limit.ID()}]; e != nil && e.take(planOf(e.limit), a.Units()) && e.paying == nil {
		l.drop(e)
	}
}

func (l *ledger) forget(key string, limit *stint.Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.debts[entryKey{key, limit.ID()}]; e != nil {
		l.drop(e)
	}
}

// has reports whether units of a key under a limit are owed.
func (l *ledger) has(key string, limit *stint.Limit) bool {
	if !l.owes.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.debts[entryKey{key, limit.ID()}] != nil
}

// claim takes out the debts of some asks to be charged now, as own (nil: none), and returns the
// payments under way that charge other debts of these asks.
func (l *ledger) claim(asks []stint.Ask, now, live int64) (own *payment, others []*payment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range asks {
		if asks[i].Limit == nil {
			continue
		}
		e := l.debts[entryKey{asks[i].Key, asks[i].Limit.ID()}]
		switch {
		case e == nil || e.paying != nil && e.paying == own:
		case e.paying != nil:
			others = append(others, e.paying)
		default:
			if own == nil {
				own = newPayment()
			}
			l.begin(own, e, now, live)
		}
	}
	if own != nil && len(own.debts) == 0 {
		own = nil
	}
	return own, others
}

// claimSome takes out up to n debts that can be paid; nil: none.
func (l *ledger) claimSome(n int, now, live int64, pays func(*debt) bool) *payment {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := newPayment()
	for _, e := range l.debts {
		if e.paying != nil || !pays(e) {
			continue
		}
		if l.begin(p, e, now, live); len(p.debts) == n {
			break
		}
	}
	if len(p.debts) == 0 {
		return nil
	}
	return p
}

// begin takes out the units of e that are in use. mu must be locked.
func (l *ledger) begin(p *payment, e *debt, now, live int64) {
	units := e.inUse(planOf(e.limit), now, live)
	if units == 0 {
		l.drop(e)
		return
	}
	e.charge, e.chargeAnyway = stint.Ask{Key: e.key, Limit: e.limit, Cost: units}, e.anyway
	e.due, e.spent = e.spent, spent{}
	e.paying = p
	p.debts = append(p.debts, e)
}

// end ends a payment.
func (l *ledger) end(p *payment, stillDue func(*debt) bool, live int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range p.debts {
		was := e.size()
		if stillDue(e) {
			later := e.spent
			e.spent = e.due
			e.join(planOf(e.limit), later, live)
		}
		e.due = spent{}
		e.paying = nil
		if l.debts[entryKey{e.key, e.limit.ID()}] == e {
			l.size += e.size() - was
		}
		if e.units == 0 && len(e.older) == 0 {
			l.drop(e)
		}
	}
	close(p.ended)
}
