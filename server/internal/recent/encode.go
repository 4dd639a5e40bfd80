package recent

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// halves are the 16 bytes of an address. An IPv4 address is the same as the IPv6 address that
// stands for it.
func halves(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// mix is the hash of two numbers.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xbf58476d1ce4e5b9)
	h := hi ^ lo
	h ^= h >> 32
	h *= 0x94d049bb133111eb
	return h ^ h>>29
}

// The parts of a request, as bits of its first byte.
const (
	hasRequest = 1 << iota
	hasClient
	hasAttrs
	hasClaims
	hasHold
	hasCost
	hasCall
)

// writer appends to memory that does not grow.
type writer struct {
	text []byte
	full bool // something did not fit
}

// fits reports whether there is room for n bytes more.
func (w *writer) fits(n int) bool {
	w.full = w.full || n > cap(w.text)-len(w.text)
	return !w.full
}

// most is how many bytes a text takes at most.
func most(s string) int { return len(s) + binary.MaxVarintLen32 }

// These append without asking whether there is room.
func (w *writer) byte(b byte)     { w.text = append(w.text, b) }
func (w *writer) number(n uint64) { w.text = binary.AppendUvarint(w.text, n) }
func (w *writer) signed(n int64)  { w.text = binary.AppendVarint(w.text, n) }

func (w *writer) string(s string) {
	w.number(uint64(len(s)))
	w.text = append(w.text, s...)
}

// add adds q to s, if it fits.
func (s *segment) add(q *Request, hash uint64) bool {
	w := writer{text: s.text}
	w.request(q, s, hash)
	if w.full {
		return false
	}
	s.text, s.last = w.text, max(s.last, q.At)
	return true
}

func (w *writer) request(q *Request, s *segment, hash uint64) {
	claims := q.Input.Claims
	if claims == nil && s.reads.Claims {
		claims = q.Claims
	}
	const numbers = 64 // everything except texts has fewer bytes
	if !w.fits(numbers + most(q.Operation)) {
		return
	}
	at := len(w.text)
	w.byte(0)
	var has byte
	w.signed(int64(q.At - s.first))
	w.number(hash & (1<<maxK - 1))
	if q.Client.IsValid() {
		has |= hasClient
		w.address(q.Client)
	}
	if q.MaxDelay != 0 {
		has |= hasHold
		w.number(uint64(q.MaxDelay))
	}
	if q.Cost != 1 {
		has |= hasCost
		w.signed(q.Cost)
	}
	w.string(q.Operation)
	if q.Request != nil {
		has |= hasRequest
		w.http(q.Request, s.reads)
	}
	if q.Descriptors != nil {
		has |= hasCall
		w.call(q.Descriptors)
	}
	if len(q.Attrs) > 0 {
		has |= hasAttrs
		w.members(q.Attrs, maxDepth)
	}
	if claims != nil {
		has |= hasClaims
		w.members(claims, maxDepth)
	}
	w.text[at] = has
}

func (w *writer) address(a netip.Addr) {
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		w.text = append(append(w.text, 4), b[:]...)
		return
	}
	b := a.As16()
	w.text = append(append(w.text, 16), b[:]...)
}

func (w *writer) http(r *rules.Request, reads *Reads) {
	if !w.fits(most(r.Method) + most(r.Path) + most(r.Host) + most(r.Route) + most(r.RawQuery) + 2*binary.MaxVarintLen32) {
		return
	}
	w.string(r.Method)
	w.string(r.Path)
	w.string(r.Host)
	w.string(r.Route)
	w.string(r.RawQuery)
	flags := uint64(r.Ambiguous) << 1
	if r.Preflight {
		flags |= 1
	}
	w.number(flags)
	if reads.AnyHeader {
		for name, lines := range r.Header {
			w.header(name, lines)
		}
	} else if len(r.Header) > 0 {
		for _, name := range reads.Headers {
			w.header(name, r.Header[name])
		}
	}
	if w.fits(1) {
		w.number(0)
	}
}

func (w *writer) header(name string, lines []string) {
	n := binary.MaxVarintLen32 + most(name)
	for _, line := range lines {
		n += most(line)
	}
	if len(lines) == 0 || !w.fits(n) {
		return
	}
	w.number(uint64(len(lines)))
	w.string(name)
	for _, line := range lines {
		w.string(line)
	}
}

// The kinds of values of Attrs and Claims.
const (
	null = iota
	no
	yes
	text
	integer
	real
	list
	object
)

// maxDepth is how deep values are recorded. Deeper ones are missing.
const maxDepth = 16

func (w *writer) members(m map[string]any, depth int) {
	if !w.fits(binary.MaxVarintLen32) {
		return
	}
	w.number(uint64(len(m)))
	for name, value := range m {
		if !w.fits(most(name)) {
			return
		}
		w.string(name)
		w.value(value, depth-1)
	}
}

func (w *writer) value(v any, depth int) {
	size := 1 + binary.MaxVarintLen64
	if s, ok := v.(string); ok {
		size = 1 + most(s)
	}
	if !w.fits(size) {
		return
	}
	if depth == 0 {
		v = nil
	}
	switch v := v.(type) {
	case bool:
		if v {
			w.byte(yes)
		} else {
			w.byte(no)
		}
	case string:
		w.byte(text)
		w.string(v)
	case int64:
		w.byte(integer)
		w.signed(v)
	case float64:
		w.byte(real)
		w.number(math.Float64bits(v))
	case []any:
		w.byte(list)
		w.number(uint64(len(v)))
		for _, element := range v {
			w.value(element, depth-1)
		}
	case map[string]any:
		w.byte(object)
		w.members(v, depth-1)
	default:
		w.byte(null)
	}
}

// A reader reads what a writer has written.
type reader struct{ text []byte }

func (r *reader) byte() byte {
	b := r.text[0]
	r.text = r.text[1:]
	return b
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.text)
	r.text = r.text[size:]
	return n
}

func (r *reader) signed() int64 {
	n, size := binary.Varint(r.text)
	r.text = r.text[size:]
	return n
}

func (r *reader) string() string {
	n := int(r.number())
	s := string(r.text[:n])
	r.text = r.text[n:]
	return s
}

// request reads a request of a segment that began at first. It returns its hash.
func (r *reader) request(q *Request, first time.Duration) (hash uint64) {
	has := r.byte()
	q.At = first + time.Duration(r.signed())
	hash = r.number()
	in := &rules.Input{Cost: 1}
	if q.Input, q.MaxDelay = in, 0; has&hasClient != 0 {
		n := int(r.byte())
		in.Client, _ = netip.AddrFromSlice(r.text[:n])
		r.text = r.text[n:]
	}
	if has&hasHold != 0 {
		q.MaxDelay = time.Duration(r.number())
	}
	if has&hasCost != 0 {
		in.Cost = r.signed()
	}
	in.Operation = r.string()
	if has&hasRequest != 0 {
		in.Request = r.http()
	}
	if has&hasCall != 0 {
		in.Descriptors = r.call()
	}
	if has&hasAttrs != 0 {
		in.Attrs = r.object()
	}
	if in.Claims = map[string]any{}; has&hasClaims != 0 {
		in.Claims = r.object()
	}
	return hash
}

func (r *reader) http() *rules.Request {
	q := &rules.Request{Method: r.string(), Path: r.string(), Host: r.string(), Route: r.string(), RawQuery: r.string()}
	flags := r.number()
	q.Ambiguous, q.Preflight = rules.Ambiguity(flags>>1), flags&1 != 0
	q.Header = make(map[string][]string)
	for {
		n := int(r.number())
		if n == 0 {
			return q
		}
		name := r.string()
		for range n {
			q.Header[name] = append(q.Header[name], r.string())
		}
	}
}

func (r *reader) object() map[string]any {
	n := int(r.number())
	m := make(map[string]any, n)
	for range n {
		name := r.string()
		m[name] = r.value()
	}
	return m
}

func (r *reader) value() any {
	switch r.byte() {
	case no:
		return false
	case yes:
		return true
	case text:
		return r.string()
	case integer:
		return r.signed()
	case real:
		return math.Float64frombits(r.number())
	case list:
		n := int(r.number())
		all := make([]any, 0, n)
		for range n {
			all = append(all, r.value())
		}
		return all
	case object:
		return r.object()
	}
	return nil
}
