package replay

import "github.com/stintdev/stint/cmd/stint/internal/sample"

// mostKept is how many keys, or clients, a sample keeps at most.
const mostKept = 1 << 18

// tallyOf is the value of a key; nil: it is not kept. isNew means that the value is zero.
func tallyOf[V any](s *sample.Sample[*V], hash uint64) (v *V, isNew bool) {
	if v, ok := s.Of[hash]; ok {
		return v, false
	}
	if !s.Keeps(hash) {
		return nil, false
	}
	s.Put(hash, new(V))
	return s.Of[hash], true
}

// count is how many keys there are, and of how many something is true.
func count[V any](s *sample.Sample[*V], is func(*V) bool) (all, some int64) {
	n := 0
	for _, v := range s.Of {
		if is(v) {
			n++
		}
	}
	return s.All(len(s.Of)), s.All(n)
}
