package heavy

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
)

// Count is a key and its weight, whose true value is from Count-Error to Count.
type Count struct {
	Key          string
	Count, Error int64
}

// List has the heaviest keys of a stream, the heaviest first; equals are in the order of the keys.
// The zero List is that of an empty stream.
type List struct {
	Counts []Count
	Total  int64 // the weight of all keys, listed or not
	Floor  int64 // no unlisted key is heavier
}

// Of returns the count of a key. For an unlisted key it is the Floor, with an error of the whole
// Floor.
func (l *List) Of(key string) (c Count, listed bool) {
	for _, c := range l.Counts {
		if c.Key == key {
			return c, true
		}
	}
	return Count{key, l.Floor, l.Floor}, false
}

// Top returns a List of the n heaviest of l. It shares memory with l.
func (l List) Top(n int) List {
	if len(l.Counts) > n {
		l.Floor = max(l.Floor, l.Counts[n].Count)
		l.Counts = l.Counts[:n]
	}
	return l
}

// Merge returns the n heaviest keys of all lists together, as if of one stream. A key that is
// missing in a list may be as heavy there as its Floor, so the Floor is added to its count and its
// error.
func Merge(n int, lists ...List) List {
	if len(lists) == 1 {
		return lists[0].Top(n)
	}
	var all List
	sums := map[string]*sum{}
	for i := range lists {
		l := &lists[i]
		all.Total, all.Floor = add(all.Total, l.Total), add(all.Floor, l.Floor)
		for _, c := range l.Counts {
			s := sums[c.Key]
			if s == nil {
				s = new(sum)
				sums[c.Key] = s
			}
			s.count, s.over, s.floors = add(s.count, c.Count), add(s.over, c.Error), add(s.floors, l.Floor)
		}
	}
	all.Counts = make([]Count, 0, len(sums))
	for key, s := range sums {
		missed := max(0, all.Floor-s.floors)
		all.Counts = append(all.Counts, Count{key, add(s.count, missed), add(s.over, missed)})
	}
	all.sort()
	return all.Top(n)
}

// sum is a key of several lists; floors is the sum of the Floors of those that have it.
type sum struct{ count, over, floors int64 }

func (l *List) sort() {
	slices.SortFunc(l.Counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Key, b.Key))
	})
}

// Bounds of what Decode accepts.
const (
	MaxKey    = 1024    // bytes of a key
	MaxCounts = 1 << 16 // keys of a list
	MaxBytes  = 4 << 20 // bytes of all keys of a list
)

// Append appends l in binary. Keys are in order there, and each begins with how many bytes it
// has in common with the one before. Its keys must have at most MaxKey bytes.
func (l *List) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(l.Total))
	b = binary.AppendUvarint(b, uint64(l.Floor))
	b = binary.AppendUvarint(b, uint64(len(l.Counts)))
	byKey := slices.Clone(l.Counts)
	slices.SortFunc(byKey, func(a, b Count) int { return strings.Compare(a.Key, b.Key) })
	before := ""
	for _, c := range byKey {
		shared := 0
		for shared < len(before) && shared < len(c.Key) && before[shared] == c.Key[shared] {
			shared++
		}
		b = binary.AppendUvarint(b, uint64(shared))
		b = binary.AppendUvarint(b, uint64(len(c.Key)-shared))
		b = append(b, c.Key[shared:]...)
		b = binary.AppendUvarint(b, uint64(c.Count-l.Floor))
		b = binary.AppendUvarint(b, uint64(c.Error))
		before = c.Key
	}
	return b
}

var errDecode = errors.New("heavy: not a list of counts")

// Decode reads the output of Append. It refuses malformed data and data beyond the bounds, so its
// memory is bounded for any b.
func Decode(b []byte) (List, error) {
	r := reader{b: b}
	l := List{Total: r.number(math.MaxInt64), Floor: r.number(math.MaxInt64)}
	n := r.number(MaxCounts)
	// The shortest count has 4 bytes: a long list cannot be claimed by a few bytes.
	if r.bad || n > int64(len(r.b)/4)+1 {
		return List{}, errDecode
	}
	l.Counts = make([]Count, 0, n)
	before, bytes := "", 0
	for i := range n {
		shared := r.number(int64(len(before)))
		rest := r.text(MaxKey - shared)
		c := Count{Key: before[:shared] + rest}
		c.Count = add(r.number(math.MaxInt64), l.Floor)
		c.Error = r.number(c.Count)
		bytes += len(c.Key)
		if r.bad || i > 0 && c.Key <= before || bytes > MaxBytes {
			return List{}, errDecode
		}
		before = c.Key
		l.Counts = append(l.Counts, c)
	}
	if len(r.b) > 0 {
		return List{}, errDecode
	}
	l.sort()
	return l, nil
}

// reader reads numbers and texts. After bad, it returns zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number(most int64) int64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || v > uint64(most) {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return int64(v)
}

func (r *reader) text(most int64) string {
	n := r.number(min(most, int64(len(r.b))))
	if int64(len(r.b)) < n {
		r.bad = true
	}
	if r.bad {
		return ""
	}
	text := string(r.b[:n])
	r.b = r.b[n:]
	return text
}
