// Package recent keeps the requests of the last minutes in bounded memory, so that other rules
// can be tried on them. If there are too many, it keeps all requests of one in 2^k clients: limits are about
// clients, so a sample of requests would be useless.
package recent

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// Reads are the parts of requests that are recorded only because rules read them.
type Reads struct {
	Headers   []string // canonical names, in order
	AnyHeader bool     // all headers
	Claims    bool
}

// Lacks returns the parts that other reads and r does not, in the words of expressions.
func (r *Reads) Lacks(other *Reads) (names []string) {
	if other.AnyHeader && !r.AnyHeader {
		return append(names, "request.headers")
	}
	for _, name := range other.Headers {
		if _, ok := slices.BinarySearch(r.Headers, name); !ok && !r.AnyHeader {
			names = append(names, `request.headers["`+strings.ToLower(name)+`"]`)
		}
	}
	if other.Claims && !r.Claims {
		names = append(names, "claims")
	}
	return names
}

// Recorder records requests. New makes it. It may be used from many goroutines at once.
//
// The requests lie in segments; the oldest makes room for the newest. Each segment has requests of one in 2^k
// clients. The time in which a segment becomes full shows how long all segments would last, and so which k
// the next one needs.
type Recorder struct {
	window time.Duration
	size   int // of a segment, in bytes

	seed     [2]uint64    // of the hashes of clients
	subjects maphash.Seed // of the hashes of their substitutes

	mask   atomic.Uint64 // 2^k-1: a client is recorded if its hash has none of these bits
	review atomic.Int64  // a time.Duration: when the mask may be too large

	mu       sync.Mutex
	k        int
	segments []*segment // the oldest first; the last is written
	free     []byte     // the memory of a segment that was dropped
}

// segment is a piece of memory with requests.
type segment struct {
	text        []byte // nil: it has made room for another
	k           int
	first, last time.Duration // when its requests arrived
	reads       *Reads
}

const (
	// segments is how many there are at most.
	segments = 64
	// maxK bounds k: one in 65,536 clients.
	maxK = 16
	// reviews is how often in a window a segment is ended before it is full, because k may be too large.
	reviews = 8
)

// New returns a Recorder that keeps at most bytes of requests, from the last window at most. bytes is at
// least 1 MiB.
func New(bytes int64, window time.Duration) *Recorder {
	return &Recorder{
		window: window, size: int(bytes / segments),
		seed: [2]uint64{rand.Uint64(), rand.Uint64()}, subjects: maphash.MakeSeed(),
	}
}

// Request is a request to record, and one that was recorded.
type Request struct {
	At time.Duration // since the recorder's owner has started
	*rules.Input
	// Claims replace those of Input, if it has none.
	Claims   map[string]any
	MaxDelay time.Duration // the longest possible delay
	// Subject replaces the client of a request without one.
	Subject string
}

// Add records q, unless its client is not sampled, or q does not fit into a segment. reads must be the same
// pointer as long as the rules are the same. Nothing of q is kept.
func (r *Recorder) Add(q *Request, ipv6Prefix int, reads *Reads) {
	hash := r.hash(q, ipv6Prefix)
	if hash&r.mask.Load() != 0 && int64(q.At) < r.review.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.current(q.At, reads)
	if hash&r.mask.Load() != 0 || s.add(q, hash) || len(s.text) < cap(s.text)/2 {
		return // a request of more than half a segment is left out
	}
	r.adapt(s, q.At)
	if s = r.next(q.At, reads); hash&r.mask.Load() == 0 {
		s.add(q, hash)
	}
}

// current is the segment for requests that arrive at that time.
func (r *Recorder) current(at time.Duration, reads *Reads) *segment {
	if len(r.segments) == 0 {
		return r.next(at, reads)
	}
	s := r.segments[len(r.segments)-1]
	switch {
	case r.k > 0 && at >= time.Duration(r.review.Load()):
		r.adapt(s, at)
		return r.next(at, reads)
	case s.reads != reads:
		return r.next(at, reads)
	}
	return s
}

// next begins another segment.
func (r *Recorder) next(at time.Duration, reads *Reads) *segment {
	for len(r.segments) > 0 && (len(r.segments) == segments || r.segments[0].last < at-r.window) {
		r.free, r.segments[0].text = r.segments[0].text[:0], nil
		r.segments = slices.Delete(r.segments, 0, 1)
	}
	s := &segment{text: r.free, k: r.k, first: at, last: at, reads: reads}
	if r.free = nil; s.text == nil {
		s.text = make([]byte, 0, r.size)
	}
	r.segments = append(r.segments, s)
	r.review.Store(int64(at + r.window/reviews))
	return s
}

// adapt sets k by how fast s, which ends now, became full: all segments together should last for the window,
// and not much longer. One segment raises k by two at most, because a short burst says little.
func (r *Recorder) adapt(s *segment, now time.Duration) {
	used := max(len(s.text), 1)
	lasts := max(now-s.first, 1).Seconds() * segments * float64(r.size) / float64(used)
	k, window := s.k, r.window.Seconds()
	for ; lasts < window && k < min(s.k+2, maxK); k++ {
		lasts *= 2
	}
	for ; lasts >= 4*window && k > 0; k-- {
		lasts /= 2
	}
	r.k = k
	r.mask.Store(1<<k - 1)
}

// hash is the hash of the client of q, or of its Subject. Addresses that are counted as one are one client.
// Clients cannot choose their hashes, because the seed is secret.
func (r *Recorder) hash(q *Request, ipv6Prefix int) uint64 {
	client := q.Addr()
	if !client.IsValid() {
		return maphash.String(r.subjects, q.Subject)
	}
	hi, lo := halves(client)
	if !client.Is4() && !client.Is4In6() {
		hi, lo = hi&^(1<<max(64-ipv6Prefix, 0)-1), 0
	}
	return mix(hi^r.seed[0], lo^r.seed[1])
}
