package offenders

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/netip"
	"strings"
)

// drain counts all records.
func (s *Counter) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drainLocked()
}

func (s *Counter) drainLocked() {
	for i := range s.shards {
		s.empty(&s.shards[i])
	}
}

// empty counts the records of a shard. The caller has locked s.mu, and not h.mu.
func (s *Counter) empty(h *shard) {
	h.mu.Lock()
	full := h.b
	h.b = s.spare[:0]
	h.mu.Unlock()
	s.changed = s.changed || len(full) > 0
	for b := full; len(b) > 0 && !s.discard; {
		n := head + int(binary.LittleEndian.Uint16(b[1:]))
		s.now.count(b[0], int64(binary.LittleEndian.Uint64(b[3:])), b[head:n])
		b = b[n:]
	}
	s.spare = full
}

// count counts a record.
func (t *table) count(kind byte, weight int64, text []byte) {
	by := Weight(kind & byMask)
	if kind&ofRequest == 0 {
		rule := bytes.IndexByte(text, 0)
		t[Rules][by].Add(text[:rule], weight)
		t[Keys][by].Add(shortened(text, rule), weight)
		return
	}
	if text[clientSize-1] != 0 {
		mask(text[:clientSize])
		t[Clients][by].Add(text[:clientSize], weight)
	}
	if path := text[clientSize:]; len(path) > 0 {
		t[Paths][by].Add(path, weight)
	}
}

// mask reduces a client to its counted form: of an IPv6 address only the first bits.
func mask(client []byte) {
	a, bits := netip.AddrFrom16([16]byte(client)), int(client[clientSize-1])
	p, err := a.Prefix(bits)
	if a.Is4In6() || err != nil {
		client[clientSize-1] = 128
		return
	}
	sixteen := p.Addr().As16()
	copy(client, sixteen[:])
}

// maxKey is the length in bytes of the longest key that is shown. Longer ones are shown as a hash.
const maxKey = 256

// hashed separates rule and hash, in place of the NUL before a key that is not hashed.
const hashed = 1

// shortened returns rule NUL key for summaries.
func shortened(text []byte, rule int) []byte {
	key := text[rule+1:]
	if len(key) <= maxKey {
		return text
	}
	sum := sha256.Sum256(key)
	b := append(text[:rule:rule], hashed, '#')
	return base64.RawURLEncoding.AppendEncode(b, sum[:24])
}

// Key is a key under a rule. If it is Hashed, the key was too long to be kept, and Key is its
// hash.
type Key struct {
	Rule, Key string
	Hashed    bool
}

// KeyOf reads a key's name in lists. ok is false if it is not such a name.
func KeyOf(name string) (k Key, ok bool) {
	at := strings.IndexAny(name, "\x00\x01")
	if at < 0 {
		return k, false
	}
	return Key{name[:at], name[at+1:], name[at] == hashed}, true
}

// ClientOf reads a client's name in lists, and returns the client as in rules' keys. ok is false if it is not
// such a name.
func ClientOf(name string) (text string, ok bool) {
	if len(name) != clientSize {
		return "", false
	}
	addr, bits := netip.AddrFrom16([16]byte([]byte(name[:16]))).Unmap(), int(name[clientSize-1])
	if addr.Is4() || bits == 128 {
		return addr.String(), true
	}
	p, err := addr.Prefix(bits)
	return p.String(), err == nil
}
