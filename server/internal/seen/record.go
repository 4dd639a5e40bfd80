package seen

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// Request is a request that was decided.
type Request struct {
	Client     netip.Addr // invalid: unknown
	IPv6Prefix int        // how many bits of an IPv6 client count
	Path       string     // empty: unknown
	// Decision is about the whole request, and Rule the rule that decided; nil: none did.
	Decision *stint.Decision
	Rule     *rules.Rule
	// Rules and Each are those of the decision, and Asks what was asked: those without a
	// limit have no place in Rules and Each.
	Rules []*rules.Rule
	Each  []stint.Decision
	Asks  []stint.Ask
}

// A shard collects records until they are counted. Requests write to one that is free.
type shard struct {
	mu sync.Mutex
	b  []byte // whole records
	_  [96]byte
}

const (
	room    = 64 << 10 // bytes of a shard
	maxPath = 256      // bytes of a path; of longer ones, the beginning counts
	// maxRecord is the longest record: that of a key.
	maxRecord = keyHead + 64 + 1 + stint.MaxKey
)

// Bytes is how much memory the buffers of a Seen take.
func Bytes() int64 { return int64(shards()+1) * room }

// shards is how many shards there are: a power of two, so that a request finds a free one.
func shards() int {
	n := 1
	for n < 2*runtime.GOMAXPROCS(0) && n < 64 {
		n *= 2
	}
	return n
}

// A record is about a key under a rule, or about a request as a whole:
//
//	kind     1 byte
//	length   2 bytes: of the text
//	weight   8 bytes: refusals, use or violations
//	text     rule NUL key; or client (17 bytes) path
const (
	keyHead = 1 + 2 + 8
)

// Kinds of records: what is counted, and whether for a key or for a request.
const (
	ofRequest = 1 << 2 // beside By
	byMask    = ofRequest - 1
)

// clientSize is the length of a client in a record: the address as 16 bytes, and how many bits
// of it count; 0: the client is unknown.
const clientSize = 17

// Observe counts a request. It copies what it keeps.
func (s *Seen) Observe(r *Request) {
	h, d := s.shard(), r.Decision
	switch {
	case d.Allowed:
		if most := s.use(h, r); most > 0 {
			s.request(h, Use, r, most)
		}
	default:
		if r.Rule != nil {
			s.key(h, Refusals, r.Rule.Name, d.Key, 1)
		}
		s.request(h, Refusals, r, 1)
		if d.Violations > 0 {
			rule, key := r.violated()
			s.key(h, Violations, rule, key, 1)
			s.request(h, Violations, r, 1)
		}
	}
	h.mu.Unlock()
}

// use records what each rule charged, and returns the largest.
func (s *Seen) use(h *shard, r *Request) (most int64) {
	i := 0
	for a := range r.Asks {
		ask := &r.Asks[a]
		if ask.Limit == nil {
			continue
		}
		if i >= len(r.Each) {
			break
		}
		rule, by := r.Rules[i], r.Each[i].By
		known := i > 0 && r.Rules[i-1] == rule // by another of its limits
		i++
		if n := ask.Units(); n > 0 && !known && by != stint.ByPolicy && rule.Mode == rules.Enforce {
			s.key(h, Use, rule.Name, ask.Key, n)
			most = max(most, n)
		}
	}
	return most
}

// violated returns the rule and the key whose violation the decision counted.
func (r *Request) violated() (rule, key string) {
	i := 0
	for a := range r.Asks {
		if r.Asks[a].Limit == nil {
			continue
		}
		if i >= len(r.Each) {
			break
		}
		if r.Asks[a].Penalty == r.Decision.Penalty && !r.Each[i].Allowed {
			return r.Rules[i].Name, r.Asks[a].Key
		}
		i++
	}
	return r.Rule.Name, r.Decision.Key
}

// Violated counts a violation of a key by the response to a request, whose path and client may
// be unknown.
func (s *Seen) Violated(rule *rules.Rule, key string, r *Request) {
	h := s.shard()
	s.key(h, Violations, rule.Name, key, 1)
	s.request(h, Violations, r, 1)
	h.mu.Unlock()
}

// shard returns a shard that is free and locks it.
func (s *Seen) shard() *shard {
	mask := uint32(len(s.shards) - 1)
	at := rand.Uint32()
	for range len(s.shards) {
		if h := &s.shards[at&mask]; h.mu.TryLock() {
			return h
		}
		at++
	}
	h := &s.shards[at&mask]
	h.mu.Lock()
	return h
}

// key appends a record about a key.
func (s *Seen) key(h *shard, by By, rule, key string, weight int64) {
	n := len(rule) + 1 + len(key)
	b := s.grow(h, keyHead+n, byte(by), weight)
	b[copy(b, rule)] = 0
	copy(b[len(rule)+1:], key)
}

// request appends a record about a request.
func (s *Seen) request(h *shard, by By, r *Request, weight int64) {
	path := r.Path[:min(len(r.Path), maxPath)]
	b := s.grow(h, keyHead+clientSize+len(path), byte(by)|ofRequest, weight)
	client(b, r.Client, r.IPv6Prefix)
	copy(b[clientSize:], path)
}

// grow appends the head of a record of n bytes in all, and returns the bytes of its text. Where the background is behind, it counts the records of h first.
func (s *Seen) grow(h *shard, n int, kind byte, weight int64) []byte {
	for cap(h.b)-len(h.b) < n {
		h.mu.Unlock()
		s.mu.Lock()
		s.empty(h)
		s.mu.Unlock()
		h.mu.Lock()
	}
	at := len(h.b)
	h.b = h.b[:at+n]
	if at < room/2 && at+n >= room/2 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	b := h.b[at:]
	b[0] = kind
	binary.LittleEndian.PutUint16(b[1:], uint16(n-keyHead))
	binary.LittleEndian.PutUint64(b[3:], uint64(weight))
	return b[keyHead:]
}

// client writes a client as it counts: without a zone, and of IPv6 only the first bits.
func client(b []byte, a netip.Addr, ipv6Prefix int) {
	if !a.IsValid() {
		clear(b[:clientSize])
		return
	}
	bits := 128
	if a = a.Unmap(); a.Is6() {
		if p, err := a.Prefix(ipv6Prefix); err == nil {
			a, bits = p.Addr(), ipv6Prefix
		}
	}
	sixteen := a.As16()
	copy(b, sixteen[:])
	b[clientSize-1] = byte(bits)
}
