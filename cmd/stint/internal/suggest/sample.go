package suggest

import (
	"encoding/binary"
	"math/bits"
)

// maxKeys bounds the keys that a Study remembers, and so its memory: to about 120 MB.
const maxKeys = 200_000

// entry is what a Study knows about a key. A key that came once has no state of its own,
// because in many logs most keys come once.
type entry struct {
	at, cost int64
	k        *key
}

func (e entry) units() int64 {
	if e.k != nil {
		return e.k.total
	}
	return e.cost
}

// thin keeps half of the keys: those whose hash begins with one zero more. Which keys those are
// depends on nothing that a key does, so any share of the keys that are left estimates the share
// of all.
func (s *Study) thin() {
	s.level++
	for hash := range s.keys {
		if !s.samples(hash) {
			delete(s.keys, hash)
		}
	}
}

// samples reports whether a key belongs to the sample.
func (s *Study) samples(hash uint64) bool { return bits.LeadingZeros64(hash) >= s.level }

// hashOf is the same in every run, as the sample must be. It is wyhash's way to mix.
func hashOf(key string) uint64 {
	const a, b = 0xa0761d6478bd642f, 0xe7037ed1a0b428db
	h := mix(uint64(len(key))^a, b)
	for len(key) >= 8 {
		h = mix(h^word(key), b)
		key = key[8:]
	}
	var rest [8]byte
	copy(rest[:], key)
	h = mix(h^binary.LittleEndian.Uint64(rest[:]), b)
	return mix(h^b, a)
}

func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}
