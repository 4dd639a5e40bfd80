// Package heavy finds the heaviest keys of a stream in bounded memory, by the algorithm
// Space-Saving (Metwally, Agrawal and El Abbadi, 2005), and merges what several streams
// found.
package heavy

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"math"
	"slices"
)

// Summary counts the heaviest keys of a stream. Make it with New. It must not be used from
// several goroutines at once.
//
// For a stream of weight N, the count of a key is at most N/size too high and never too low,
// and a key that is heavier than N/size is always there.
type Summary struct {
	size int
	// entries are in the order of arrival. order is a heap of their indices, the lightest first.
	// index is a hash table of their places plus 1; 0 is free. Its length is a power of two, and at
	// least twice the number of entries.
	entries []entry
	order   []int32
	index   []int32

	total int64
	floor int64 // no key without an entry is heavier, and no entry is lighter
}

type entry struct {
	key         []byte // its bytes are reused for the next key in this place
	hash        uint64
	count, over int64 // the true count is from count-over to count
	at          int32 // in order
}

var seed = maphash.MakeSeed()

// New returns a Summary of up to size keys, which is at least 1. It copies the keys; each of its
// places keeps memory for the longest key that it has had.
func New(size int) *Summary { return &Summary{size: size} }

// Reset forgets all keys, and keeps the memory for new ones.
func (s *Summary) Reset() {
	s.entries, s.order = s.entries[:0], s.order[:0]
	clear(s.index)
	s.total, s.floor = 0, 0
}

// Total returns the sum of all weights.
func (s *Summary) Total() int64 { return s.total }

// Add counts a key of a weight of at least 1. It keeps nothing of key.
func (s *Summary) Add(key []byte, weight int64) {
	s.total = add(s.total, weight)
	hash := maphash.Bytes(seed, key)
	if place, ok := s.find(hash, key); ok {
		e := &s.entries[place]
		e.count = add(e.count, weight)
		s.sink(e.at)
		return
	}
	if len(s.entries) < s.size {
		s.insert(hash, key, weight)
		return
	}
	place := s.order[0]
	e := &s.entries[place]
	s.remove(e.hash, place)
	s.floor = e.count // the evicted key may be as heavy
	e.key, e.hash = append(e.key[:0], key...), hash
	e.count, e.over = add(s.floor, weight), s.floor
	s.index[s.free(hash)] = place + 1
	s.sink(0)
}

// insert adds an entry where there is room.
func (s *Summary) insert(hash uint64, key []byte, weight int64) {
	place := int32(len(s.entries))
	if len(s.entries) < cap(s.entries) {
		s.entries = s.entries[:place+1] // with the bytes of a key before Reset
	} else {
		s.entries = append(s.entries, entry{})
	}
	e := &s.entries[place]
	e.key, e.hash = append(e.key[:0], key...), hash
	e.count, e.over, e.at = add(s.floor, weight), s.floor, place
	s.order = append(s.order, place)
	if 2*len(s.entries) > len(s.index) {
		s.index = make([]int32, max(16, 2*len(s.index)))
		for i := range s.entries {
			s.index[s.free(s.entries[i].hash)] = int32(i) + 1
		}
	} else {
		s.index[s.free(hash)] = place + 1
	}
	s.rise(place)
}

// find returns the place of a key.
func (s *Summary) find(hash uint64, key []byte) (place int32, ok bool) {
	if len(s.index) == 0 {
		return 0, false
	}
	mask := uint64(len(s.index) - 1)
	for i := hash & mask; s.index[i] != 0; i = (i + 1) & mask {
		place := s.index[i] - 1
		if e := &s.entries[place]; e.hash == hash && bytes.Equal(e.key, key) {
			return place, true
		}
	}
	return 0, false
}

// free returns the first free slot of index for a hash.
func (s *Summary) free(hash uint64) uint64 {
	mask := uint64(len(s.index) - 1)
	i := hash & mask
	for s.index[i] != 0 {
		i = (i + 1) & mask
	}
	return i
}

// remove removes a place from index, and closes the gap: a search ends at a free slot.
func (s *Summary) remove(hash uint64, place int32) {
	mask := uint64(len(s.index) - 1)
	gap := hash & mask
	for s.index[gap] != place+1 {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; s.index[i] != 0; i = (i + 1) & mask {
		home := s.entries[s.index[i]-1].hash & mask
		if (i-home)&mask >= (i-gap)&mask { // its search passes the gap
			s.index[gap], gap = s.index[i], i
		}
	}
	s.index[gap] = 0
}

// sink moves the entry at i of order down, past lighter ones.
func (s *Summary) sink(i int32) {
	n := int32(len(s.order))
	moved := s.order[i]
	count := s.entries[moved].count
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if r := child + 1; r < n && s.entries[s.order[r]].count < s.entries[s.order[child]].count {
			child = r
		}
		if s.entries[s.order[child]].count >= count {
			break
		}
		s.put(i, s.order[child])
		i = child
	}
	s.put(i, moved)
}

// rise moves the entry at i of order up, past heavier ones.
func (s *Summary) rise(i int32) {
	moved := s.order[i]
	count := s.entries[moved].count
	for i > 0 {
		parent := (i - 1) / 2
		if s.entries[s.order[parent]].count <= count {
			break
		}
		s.put(i, s.order[parent])
		i = parent
	}
	s.put(i, moved)
}

func (s *Summary) put(i, place int32) {
	s.order[i] = place
	s.entries[place].at = i
}

// Top returns the heaviest keys, at most n.
func (s *Summary) Top(n int) List {
	places := slices.Clone(s.order)
	slices.SortFunc(places, func(a, b int32) int {
		x, y := &s.entries[a], &s.entries[b]
		return cmp.Or(cmp.Compare(y.count, x.count), bytes.Compare(x.key, y.key))
	})
	l := List{Total: s.total, Floor: s.floor}
	if len(places) > n {
		l.Floor = max(l.Floor, s.entries[places[n]].count)
		places = places[:n]
	}
	l.Counts = make([]Count, len(places))
	for i, place := range places {
		e := &s.entries[place]
		l.Counts[i] = Count{string(e.key), e.count, e.over}
	}
	return l
}

// add adds without overflow numbers that are not negative.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
