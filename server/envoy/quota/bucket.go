package quota

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/room"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/envoy/internal/caller"
	"github.com/stintdev/stint/server/rules"
)

// bucket is shared by all streams of this instance that subscribe to it.
type bucket struct {
	name    string // in the table
	domain  string
	entries []rules.Entry // sorted by key

	mu      sync.Mutex
	streams int
	demand  float64 // requests a second, of all streams
	others  others
}

// maxEntries and stint.MaxKey bound the identifier of a bucket.
const maxEntries = 64

// nameOf returns the name of a bucket in the table and its entries, or the error in the identifier.
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

// table has the buckets to which streams subscribe, and counts streams and subscriptions. One caller's
// address cannot take all the room.
type table struct {
	maxBuckets int
	streams    *room.Room
	weights    *room.Room // of all subscriptions

	mu            sync.Mutex
	subscriptions int
	buckets       map[string]*bucket
}

// weightOf is as how many buckets one with this name counts: more than one if the name is long.
func weightOf(name string) int { return 1 + len(name)/256 }

func newTable(s *Settings) *table {
	return &table{
		maxBuckets: s.MaxBuckets, streams: room.Of(int64(s.MaxStreams)), weights: room.Of(int64(s.MaxBuckets)),
		buckets: make(map[string]*bucket),
	}
}

// join subscribes the stream c. It returns nil if there is no room for another bucket.
func (t *table) join(c *conversation, name string, entries []rules.Entry) (*bucket, room.Place) {
	var place room.Place
	weight := weightOf(name)
	if c.weight+weight > max(1, t.maxBuckets/4) || t.weights.Add(&place, int64(weight), nil, caller.Of(c.stream.Context())) != room.None {
		return nil, place
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buckets[name]
	if b == nil {
		b = &bucket{name: name, domain: c.domain, entries: entries}
		t.buckets[name] = b
	}
	t.subscriptions++
	b.mu.Lock()
	b.streams++
	b.mu.Unlock()
	return b, place
}

// leave ends a subscription.
func (t *table) leave(s *subscription) {
	t.weights.Leave(s.room)
	b := s.bucket
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subscriptions--
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams--
	b.demand = max(0, b.demand-s.demand)
	if b.streams == 0 {
		delete(t.buckets, b.name)
	}
}

// size returns how many streams and subscriptions there are.
func (t *table) size() (streams, subscriptions int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.streams.Taken()), t.subscriptions
}

// demands changes the demand of one stream from old to new.
func (b *bucket) demands(old, new float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.demand = max(0, b.demand+new-old)
}

// all returns the number of streams, their total demand, and by how much to divide the remaining units among
// instances.
func (b *bucket) all(instances float64) (streams int, demand, divides float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.streams, b.demand, b.others.divides(instances)
}

// decided learns from a decision that took n units ahead.
func (b *bucket) decided(v *server.Verdict, n int64, instances float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.others.saw(time.Now(), v, n, instances)
}

// gaveBack records that n units were refunded.
func (b *bucket) gaveBack(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.others.gaveBack(n)
}
