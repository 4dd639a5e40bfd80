package offenders

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// Request is a request that was decided.
type Request struct {
	// Start is when it began: a number that most requests under way do not share.
	Start      time.Duration
	Client     netip.Addr // invalid: unknown
	IPv6Prefix int        // how many bits of an IPv6 client count
	Path       string     // empty: unknown
	// Decision is the decision about the whole request, and Rule the rule that decided; nil: none did.
	Decision *stint.Decision
	Rule     *rules.Rule
	// Rules and Each are the decision's, and Asks are the request's asks; those without a limit are not in
	// Rules and Each.
	Rules []*rules.Rule
	Each  []stint.Decision
	Asks  []stint.Ask
}

// A shard collects records until they are counted. Requests write to a free one.
type shard struct {
	mu sync.Mutex
	b  []byte // whole records
	_  [96]byte
}

const (
	room    = 64 << 10 // bytes of a shard
	maxPath = 256      // bytes of a path; longer ones count by their beginning
)

const mostShards = 32

// Bytes is how much memory the buffers of a Counter take at most.
const Bytes = (mostShards + 1) * room

// shards is the number of shards: a power of two, large enough that a request finds a free one.
func shards() int {
	n := 1
	for n < 2*runtime.GOMAXPROCS(0) && n < mostShards {
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
const head = 1 + 2 + 8

// Kinds of records: what is counted, and whether for a key or for a request.
const (
	ofRequest = 1 << 2 // beside the Weight
	byMask    = ofRequest - 1
)

// clientSize is the length of a client in a record: the address as 16 bytes, and how many bits
// count if it is of IPv6; 0: the client is unknown.
const clientSize = 17

// Observe counts a request. It keeps only copies.
func (s *Counter) Observe(r *Request) {
	h, d := s.shard(r), r.Decision
	switch {
	case d.Allowed:
		s.use(h, r)
	case r.Rule == nil:
		s.add(h, Refusals, "", "", 1, r, 1)
	default:
		s.add(h, Refusals, r.Rule.Name, d.Key, 1, r, 1)
		if d.Violations > 0 {
			rule, key := r.violated()
			s.add(h, Violations, rule, key, 1, r, 1)
		}
	}
	h.mu.Unlock()
}

// use records each rule's charge, and for the request as a whole the largest.
func (s *Counter) use(h *shard, r *Request) {
	i, most := 0, int64(0)
	var last *rules.Rule // that charged
	var key string
	var weight int64
	for a := range r.Asks {
		ask := &r.Asks[a]
		if ask.Limit == nil {
			continue
		}
		if i >= len(r.Each) {
			break
		}
		rule, by, allowed := r.Rules[i], r.Each[i].By, r.Each[i].Allowed
		i++
		n := ask.Units()
		if n == 0 || rule == last && ask.Key == key || !allowed || by == stint.ByPolicy || rule.Mode != rules.Enforce {
			continue // or it is another limit of the same rule
		}
		if last != nil {
			s.add(h, Use, last.Name, key, weight, nil, 0)
		}
		last, key, weight = rule, ask.Key, n
		most = max(most, n)
	}
	if last != nil {
		s.add(h, Use, last.Name, key, weight, r, most)
	}
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
func (s *Counter) Violated(rule *rules.Rule, key string, r *Request) {
	h := s.shard(r)
	s.add(h, Violations, rule.Name, key, 1, r, 1)
	h.mu.Unlock()
}

// shard returns a shard that is free and locks it.
func (s *Counter) shard(r *Request) *shard {
	mask := uint32(len(s.shards) - 1)
	at := uint32(uint64(r.Start) * 0x9e3779b97f4a7c15 >> 32)
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

// add records a weight of a key under a rule, unless rule is empty, and a weight of a request,
// unless r is nil.
func (s *Counter) add(h *shard, by Weight, rule, key string, weight int64, r *Request, whole int64) {
	n, path := 0, ""
	if rule != "" {
		n = head + len(rule) + 1 + len(key)
	}
	keys := n
	if r != nil {
		path = r.Path[:min(len(r.Path), maxPath)]
		n += head + clientSize + len(path)
	}
	at := len(h.b)
	if cap(h.b)-at < n {
		at = s.makeRoom(h, n)
	}
	h.b = h.b[:at+n]
	if at < room/2 && at+n >= room/2 {
		s.wakeUp()
	}
	b := h.b[at:]
	if keys > 0 {
		begin(b, byte(by), keys, weight)
		text := b[head:keys]
		text[copy(text, rule)] = 0
		copy(text[len(rule)+1:], key)
		b = b[keys:]
	}
	if r != nil {
		begin(b, byte(by)|ofRequest, len(b), whole)
		text := b[head:]
		text[clientSize-1] = 0
		if r.Client.IsValid() {
			*(*[16]byte)(text) = r.Client.As16() // the background masks it
			text[clientSize-1] = byte(r.IPv6Prefix)
		}
		copy(text[clientSize:], path)
	}
}

// begin writes the head of a record of n bytes.
func begin(b []byte, kind byte, n int, weight int64) {
	_ = b[head-1]
	b[0] = kind
	binary.LittleEndian.PutUint16(b[1:], uint16(n-head))
	binary.LittleEndian.PutUint64(b[3:], uint64(weight))
}

// makeRoom counts the records of h, because the background is behind, and returns where the
// next record begins.
func (s *Counter) makeRoom(h *shard, n int) int {
	for cap(h.b)-len(h.b) < n {
		h.mu.Unlock()
		s.mu.Lock()
		s.empty(h)
		s.mu.Unlock()
		h.mu.Lock()
	}
	return len(h.b)
}

func (s *Counter) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
