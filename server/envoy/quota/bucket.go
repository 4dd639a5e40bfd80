package quota

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// bucket is what all streams of this instance share that subscribe to one bucket.
type bucket struct {
	name    string // in the table
	domain  string
	entries []rules.Entry // sorted by key

	mu      sync.Mutex
	streams int
	demand  float64 // requests a second, of all streams
}

// maxEntries and stint.MaxKey bound the identifier of a bucket.
const maxEntries = 64

// nameOf is the name of a bucket in the table, and its entries. The error says what is wrong with
// the identifier.
func nameOf(domain string, id *rlqs.BucketId) (string, []rules.Entry, error) {
	from := id.GetBucket()
	if len(from) == 0 {
		return "", nil, errors.New("bucket_id must not be empty")
	}
	if len(from) > maxEntries {
		return "", nil, fmt.Errorf("bucket_id has %d entries: at most %d", len(from), maxEntries)
	}
	entries := make([]rules.Entry, 0, len(from))
	size := 0
	for key, value := range from {
		if key == "" || value == "" {
			return "", nil, errors.New("bucket_id must not have an empty key or value")
		}
		entries = append(entries, rules.Entry{Key: key, Value: value})
		size += len(key) + len(value)
	}
	if size > stint.MaxKey {
		return "", nil, fmt.Errorf("bucket_id of %d bytes: at most %d", size, stint.MaxKey)
	}
	slices.SortFunc(entries, func(a, b rules.Entry) int { return strings.Compare(a.Key, b.Key) })
	name := appendPart(make([]byte, 0, len(domain)+size+4*len(entries)+2), domain)
	for i := range entries {
		name = appendPart(appendPart(name, entries[i].Key), entries[i].Value)
	}
	return string(name), entries, nil
}

func appendPart(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

// table has the buckets that streams subscribe to, and counts streams and subscriptions.
type table struct {
	maxStreams, maxBuckets int

	mu            sync.Mutex
	streams       int
	subscriptions int
	weight        int // of all subscriptions
	buckets       map[string]*bucket
}

// weightOf is how many buckets one with this name counts for: more than one if it is long.
func weightOf(name string) int { return 1 + len(name)/256 }

func newTable(s *Settings) table {
	return table{maxStreams: s.MaxStreams, maxBuckets: s.MaxBuckets, buckets: make(map[string]*bucket)}
}

// open counts another stream. It reports whether there is room for it.
func (t *table) open() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streams >= t.maxStreams {
		return false
	}
	t.streams++
	return true
}

func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams--
}

// join subscribes a stream whose subscriptions weigh have. It returns nil if there is no room for
// another.
func (t *table) join(name, domain string, entries []rules.Entry, have int) *bucket {
	t.mu.Lock()
	defer t.mu.Unlock()
	weight := weightOf(name)
	if t.weight+weight > t.maxBuckets || have+weight > max(1, t.maxBuckets/4) {
		return nil
	}
	b := t.buckets[name]
	if b == nil {
		b = &bucket{name: name, domain: domain, entries: entries}
		t.buckets[name] = b
	}
	t.subscriptions++
	t.weight += weight
	b.mu.Lock()
	b.streams++
	b.mu.Unlock()
	return b
}

// leave ends the subscription of a stream whose demand was demand.
func (t *table) leave(b *bucket, demand float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subscriptions--
	t.weight -= weightOf(b.name)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams--
	b.demand = max(0, b.demand-demand)
	if b.streams == 0 {
		delete(t.buckets, b.name)
	}
}

// size returns how many streams and subscriptions there are.
func (t *table) size() (streams, subscriptions int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.streams, t.subscriptions
}

// demands changes the demand of one stream from old to new.
func (b *bucket) demands(old, new float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.demand = max(0, b.demand+new-old)
}

// all returns how many streams there are, and what they demand together.
func (b *bucket) all() (streams int, demand float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.streams, b.demand
}
