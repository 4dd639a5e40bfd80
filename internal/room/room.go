// Package room shares a number of places among the clients that want one.
package room

import (
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Room is a number of places, each for one request at a time, of which one client
// cannot take all. While no more than half of them are taken, anybody may take one. A
// place that is taken beyond that is noted with its client. Beyond half, a client may
// take one more while its part of the places beyond half is smaller than what is free;
// that part is in proportion to its part of all noted places.
//
// So a client alone can take three quarters. m clients that each take what they can leave
// about one place in 2(m+1) free, and a client of which no place is noted always finds
// one while one is free. What one client leaves is there for any other.
//
// Up to half, a place costs one atomic addition. Beyond, it needs a lock, and memory for
// each client with noted places, of which there are never more than places.
//
// It may be used from many goroutines at once. The zero Room has any number of places.
type Room struct {
	places int64 // 0: any number
	taken  atomic.Int64

	mu    sync.Mutex
	held  map[netip.Addr]int64 // noted places, none of them 0
	noted int64                // the sum
	_     [64]byte             // another Room's lie in another cache line
}

// Of is a Room of so many places; 0: any number.
func Of(places int64) *Room {
	return &Room{places: places, held: make(map[netip.Addr]int64)}
}

// Place is what a request has taken. The zero Place is one that nobody notes.
type Place struct {
	client netip.Addr
	noted  bool
}

// Refusal says why there is no place.
type Refusal uint8

// The reasons.
const (
	None  Refusal = iota // there is a place
	Full                 // all are taken
	Share                // the client has as many as it may
)

// Enter takes a place for r, which is to be left unless it is refused. client finds
// r's client, and is asked only where that matters; nil: all requests are one client's.
// An IPv6 address counts as its network of 64 bits. Beyond the places there are, nobody
// is let in; a request that is refused may have another refused that comes in the same
// moment.
func (m *Room) Enter(r *http.Request, client func(*http.Request) netip.Addr) (Place, Refusal) {
	n := m.taken.Add(1)
	if m.places == 0 || n <= m.places/2 {
		return Place{}, None
	}
	if n > m.places {
		m.taken.Add(-1)
		return Place{}, Full
	}
	p := Place{noted: true}
	if client != nil {
		p.client = network(client(r))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	beyond, free := n-1-m.places/2, m.places-n+1 // before this one
	// The client's part is beyond * held / noted. Others that come at once may not be
	// noted yet.
	if held := m.held[p.client]; held*beyond >= free*max(m.noted, beyond, 1) {
		m.taken.Add(-1)
		return Place{}, Share
	}
	m.held[p.client]++
	m.noted++
	return p, None
}

// Leave gives back what Enter took.
func (m *Room) Leave(p Place) {
	if p.noted {
		m.mu.Lock()
		if m.held[p.client]--; m.held[p.client] <= 0 {
			delete(m.held, p.client)
		}
		m.noted--
		m.mu.Unlock()
	}
	m.taken.Add(-1)
}

// Taken is how many places are.
func (m *Room) Taken() int64 { return m.taken.Load() }

// network is what an address counts as: within a network of 64 bits, one subscriber
// chooses addresses at will.
func network(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if !a.Is6() {
		return a
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		panic(err) // every IPv6 address has 64 bits
	}
	return p.Addr()
}
