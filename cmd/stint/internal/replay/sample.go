package replay

import "math/bits"

// mostKept is how many keys, or clients, a sample keeps at most.
const mostKept = 1 << 18

// sample keeps a value for each key, by the key's hash. Of more than mostKept keys, it keeps the share whose hashes
// end with some zeros: what is true of the share is true of all, nearly. So memory does not grow with a log.
type sample[V any] struct {
	of    map[uint64]*V
	most  int
	zeros int // that a hash must end with
}

func newSample[V any]() *sample[V] { return &sample[V]{of: map[uint64]*V{}, most: mostKept} }

// at is the value of a key; nil: it is not kept. isNew means that the value is zero.
func (s *sample[V]) at(hash uint64) (v *V, isNew bool) {
	if v, ok := s.of[hash]; ok {
		return v, false
	}
	if !s.keeps(hash) {
		return nil, false
	}
	v = new(V)
	s.of[hash] = v
	for len(s.of) > s.most {
		s.zeros++
		for hash := range s.of {
			if !s.keeps(hash) {
				delete(s.of, hash)
			}
		}
	}
	return s.of[hash], true
}

func (s *sample[V]) keeps(hash uint64) bool { return bits.TrailingZeros64(hash) >= s.zeros }

// times is how many keys there are for each that is kept.
func (s *sample[V]) times() int64 { return 1 << s.zeros }

// isPart reports whether some keys are not kept.
func (s *sample[V]) isPart() bool { return s.zeros > 0 }
