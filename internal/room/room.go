// Package room divides a bounded number of places fairly among the clients that want one.
package room

import (
	"math/bits"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/stintdev/stint/internal/address"
)

// Room is a number of places, each for one request at a time, of which one client
// cannot take all. While no more than half of them are taken, anybody may take one. A
// place that is taken beyond that is noted with its client. Beyond half, a client may
// take one more while its part of the places beyond half is smaller than what is free;
// that part is in proportion to its part of all noted places. Several at once are as many
// one after another, as if the last were the only one to be asked about.
//
// So a client alone can take three quarters. m clients that each take what they can leave
// about one place in 2(m+1) free, and a client of which no place is noted always finds
// one while one is free. What one client leaves is there for any other.
//
// Up to half, a place costs one atomic operation. Beyond, it needs a lock, and memory for
// each client with noted places, of which there are never more than places.
//
// It may be used from many goroutines at once. The zero Room has any number of places.
type Room struct {
	places int64 // 0: any number
	taken  atomic.Int64

	mu    sync.Mutex
	held  map[netip.Addr]int64 // noted places, none of them 0; nil: one client may take all
	noted int64                // the sum
	_     [64]byte             // another Room's lie in another cache line
}

// Of is a Room of so many places; 0: any number.
func Of(places int64) *Room {
	return &Room{places: places, held: make(map[netip.Addr]int64)}
}

// Undivided is a Room of so many places, of which one client may take all.
func Undivided(places int64) *Room { return &Room{places: places} }

// Place is what a request has taken: nothing, if it is zero.
type Place struct {
	client       netip.Addr
	taken, noted int64
}

// Taken is how many places it is.
func (p *Place) Taken() int64 { return p.taken }

// Refusal says why there is no place.
type Refusal uint8

// The reasons.
const (
	None  Refusal = iota // there is a place
	Full                 // all are taken
	Share                // the client has as many as it may
)

// Enter takes a place for r, to be left unless it is refused. client finds r's client where that
// matters, an IPv6 address by its /64; nil: all are one client's.
func (m *Room) Enter(r *http.Request, client func(*http.Request) netip.Addr) (p Place, no Refusal) {
	no = m.Add(&p, 1, r, client)
	return p, no
}

// Add is Enter for n more places, of one request, which are left with the others of p.
func (m *Room) Add(p *Place, n int64, r *http.Request, client func(*http.Request) netip.Addr) Refusal {
	if m.places == 0 {
		m.taken.Add(n)
		p.taken += n
		return None
	}
	most := m.places
	if m.held != nil {
		most /= 2
	}
	if m.take(n, most) {
		p.taken += n
		return None
	}
	if m.held == nil {
		return Full
	}
	if p.noted == 0 && client != nil {
		p.client = network(client(r))
	}
	return m.addNoted(p, n)
}

// take takes n places, unless more than most would then be taken. It takes none for a moment
// only, in which another client would not find them.
func (m *Room) take(n, most int64) bool {
	for {
		before := m.taken.Load()
		if before > most-n {
			return false
		}
		if m.taken.CompareAndSwap(before, before+n) {
			return true
		}
	}
}

// addNoted is Add beyond half. What is taken and what is noted are compared at one moment: by a
// count from before the lock, two requests of a client could each get what is left for one.
func (m *Room) addNoted(p *Place, n int64) Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		before := m.taken.Load()
		if before > m.places-n {
			return Full
		}
		// Before the last of them.
		held, beyond, free := m.held[p.client], before+n-1-m.places/2, m.places-before-n+1
		// The client's part is beyond * held / noted.
		if held > 0 && beyond > 0 && atLeast(held+n-1, beyond, free, max(m.noted+n-1, beyond, 1)) {
			return Share
		}
		if m.taken.CompareAndSwap(before, before+n) {
			m.held[p.client] += n
			m.noted += n
			p.taken, p.noted = p.taken+n, p.noted+n
			return None
		}
	}
}

// atLeast tells whether a*b >= c*d, of numbers that are not negative.
func atLeast(a, b, c, d int64) bool {
	high, low := bits.Mul64(uint64(a), uint64(b))
	above, below := bits.Mul64(uint64(c), uint64(d))
	return high > above || high == above && low >= below
}

// AddAlone is Add for a request which has all that is taken, also where there are not so
// many places. It tells whether that is so.
func (m *Room) AddAlone(p *Place, n int64) bool {
	alone := m.taken.CompareAndSwap(p.taken, p.taken+n)
	if alone {
		p.taken += n
	}
	return alone
}

// Leave refunds what Enter, Add and AddAlone took.
func (m *Room) Leave(p Place) {
	if p.noted > 0 {
		m.mu.Lock()
		if m.held[p.client] -= p.noted; m.held[p.client] <= 0 {
			delete(m.held, p.client)
		}
		m.noted -= p.noted
		m.mu.Unlock()
	}
	m.taken.Add(-p.taken)
}

// Taken is how many places are.
func (m *Room) Taken() int64 { return m.taken.Load() }

// network counts IPv6 clients by /64, within which one subscriber chooses addresses.
func network(a netip.Addr) netip.Addr {
	a = address.Plain(a)
	if !a.Is6() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		panic(err) // every IPv6 address has 64 bits
	}
	return p.Addr()
}
