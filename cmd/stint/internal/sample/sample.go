// Package sample keeps what is known of a bounded number of keys, so that memory does not grow with a log.
package sample

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Sample has a value for each key, by the key's hash. Of more keys than it may keep, it has those whose hashes end
// with some zeros. Which keys those are depends on nothing that a key does, so what is true of a share of them is
// true of about that share of all. Not for concurrent use.
type Sample[V any] struct {
	// Of are the values. Change them, but add keys by Put.
	Of map[uint64]V
	// Most is how many are kept at most.
	Most  int
	zeros int // that a hash must end with
}

// New returns a Sample of at most that many keys.
func New[V any](most int) Sample[V] { return Sample[V]{Of: map[uint64]V{}, Most: most} }

// Hash is the hash of a key, the same in every run.
func Hash(key string) uint64 { return xxhash.Sum64String(key) }

// Keeps reports whether the key with this hash is one of those that are kept.
func (s *Sample[V]) Keeps(hash uint64) bool { return bits.TrailingZeros64(hash) >= s.zeros }

// Put sets the value of a key that s keeps. If there are too many then, it drops half of the keys, perhaps this one.
func (s *Sample[V]) Put(hash uint64, v V) {
	s.Of[hash] = v
	for len(s.Of) > s.Most {
		s.zeros++
		for hash := range s.Of {
			if !s.Keeps(hash) {
				delete(s.Of, hash)
			}
		}
	}
}

// All is how many keys there are, if s keeps n of them.
func (s *Sample[V]) All(n int) int64 { return int64(n) << s.zeros }

// IsPart reports whether some keys were not kept, so that All is an estimate.
func (s *Sample[V]) IsPart() bool { return s.zeros > 0 }
