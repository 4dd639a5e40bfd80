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

// Room is a number of places, each for one request at a time; one client cannot take them all.
// While no more than half are taken, anybody may take one. Places taken beyond half are noted with
// their clients. Beyond half, a client may take one more while its part of the places beyond half
// is smaller than the number of free places; its part is in proportion to its noted places. Several
// at once are decided as if they were taken one after another and only the last were checked.
//
// So a client alone can take three quarters. m clients that each take as many as they can leave
// about one place in 2(m+1) free, and a client without noted places always gets one while one is
// free. Any client can take a place that another leaves.
//
// Up to half, a place costs one atomic operation. Beyond, it needs a lock, and memory for each
// client with noted places, never for more clients than places.
//
// It may be used from many goroutines at once. The zero Room has any number of places.
type Room struct {
	places int64 // 0: any number
	taken  atomic.Int64

	mu    sync.Mutex
	held  map[netip.Addr]int64 // noted places, none of them 0; nil: one client may take all
	noted int64                // the sum
	_     [64]byte             // keeps another Room's fields in another cache line
}

// Of returns a Room with this many places; 0: any number.
func Of(places int64) *Room {
	return &Room{places: places, held: make(map[netip.Addr]int64)}
}

// Undivided returns a Room with this many places; one client may take them all.
func Undivided(places int64) *Room { return &Room{places: places} }

// Place has the places that a request has taken. The zero Place: none.
type Place struct {
	client       netip.Addr
	taken, noted int64
}

// Taken is the number of places.
func (p *Place) Taken() int64 { return p.taken }

// Refusal says why there is no place.
type Refusal uint8

// The reasons.
const (
	None  Refusal = iota // there is a place
	Full                 // all are taken
	Share                // the client has its share
)

// Enter takes a place for r, which must be left unless it is refused. client returns r's client if
// that matters; an IPv6 address counts by its /64. A nil client: all requests are one client's.
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

// take takes n places, unless more than most would then be taken. It never takes places that it
// then gives back, because another client could miss them.
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

// addNoted is Add beyond half. It compares taken and noted places of one moment: with a count from
// before the lock, two requests of a client could each get the last place for it.
func (m *Room) addNoted(p *Place, n int64) Refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		before := m.taken.Load()
		if before > m.places-n {
			return Full
		}
		// The state before the last of the n.
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

// atLeast reports whether a*b >= c*d, for numbers that are not negative.
func atLeast(a, b, c, d int64) bool {
	high, low := bits.Mul64(uint64(a), uint64(b))
	above, below := bits.Mul64(uint64(c), uint64(d))
	return high > above || high == above && low >= below
}

// AddAlone is Add for a request that has all taken places, even beyond the number of places. It
// returns false if others have some.
func (m *Room) AddAlone(p *Place, n int64) bool {
	alone := m.taken.CompareAndSwap(p.taken, p.taken+n)
	if alone {
		p.taken += n
	}
	return alone
}

// Leave returns the places of Enter, Add and AddAlone.
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

// Taken is the number of taken places.
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
