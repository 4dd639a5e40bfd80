package accesslog

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
)

// source gives the entries of a file in order of time. It is opened when the first of them may be next.
type source struct {
	log   *Log
	file  *file
	index int // in Sources

	form   string
	reader reader
	has    Fields
	from   int64 // no entry is older

	d       draft
	begun   bool
	content *content // nil: it is not open
	lines   *lines
	ended   error // why there are no more lines: io.EOF, or it failed

	queue  []*batch // which wait until nothing older can come, in order
	held   int      // entries in queue
	head   *batch   // what is given next; nil: it has not begun, or has ended
	given  int      // of head
	free   []*batch
	latest int64 // of all entries read
	passed int64 // entries before it would be out of order
}

// batch is some entries in order of time.
type batch struct {
	entries        []Entry
	headers, attrs []Field // theirs
	shared         bool    // a later batch has some of its entries
}

func (b *batch) last() int64 { return b.entries[len(b.entries)-1].At }

var errLong = errors.New("it is longer than 1 MiB")

func (s *source) open(blockSize int) error {
	count := &s.log.read
	if s.reader == nil && !s.file.isPipe() {
		count = nil // it is only examined
	}
	c, err := s.file.open(count)
	if err != nil {
		return err
	}
	s.content, s.lines = c, newLines(c, blockSize)
	return nil
}

func (s *source) close() {
	if s.content != nil {
		s.content.close()
		s.content = nil
	}
}

// start makes the first entry available, and reports whether there is one.
func (s *source) start() (bool, error) {
	if s.content == nil {
		if err := s.open(s.log.blockSize); err != nil {
			return false, err
		}
	}
	return s.advance()
}

// next is the time of the next entry, or before it.
func (s *source) next() int64 {
	if s.head == nil {
		return s.from
	}
	return s.head.entries[s.given].At
}

// advance goes on to the next batch, and reports whether there is one. The entries of the last are no longer used.
func (s *source) advance() (bool, error) {
	if s.head != nil && !s.head.shared && len(s.free) < 4 {
		s.free = append(s.free, s.head)
	}
	s.head, s.given = nil, 0
	for {
		if len(s.queue) > 0 {
			if first := s.queue[0]; s.ended != nil || first.last() <= s.latest-s.log.disorder || s.held > s.log.mayHold() {
				s.head, s.queue = first, s.queue[1:]
				s.held -= len(first.entries)
				s.passed = first.last()
				return true, nil
			}
		} else if s.ended != nil {
			s.close()
			if s.ended != io.EOF {
				return false, fmt.Errorf("%s: %w", s.file.path, s.ended)
			}
			return false, nil
		}
		s.fill()
	}
}

// fill reads a block into the queue.
func (s *source) fill() {
	if s.ended = s.lines.fill(); s.ended != nil {
		return
	}
	b := s.newBatch()
	d := &s.d
	d.headers, d.attrs = slab{all: b.headers[:0]}, slab{all: b.attrs[:0]}
	all, inOrder, before := b.entries[:0], true, int64(0)
	if n := len(s.queue); n > 0 {
		before = s.queue[n-1].last()
	}
	for {
		line, long, ok := s.lines.next()
		if !ok {
			break
		}
		if long {
			s.log.cannotRead(s, errLong)
			continue
		}
		if line == "" {
			continue
		}
		n := len(all)
		if n == cap(all) {
			all = slices.Grow(all, max(256, n))
		}
		all = all[:n+1]
		d.begin(&all[n], s.index, s.lines.number)
		if err := readLine(s.reader, line, d); err != nil {
			all = all[:n]
			s.log.cannotRead(s, err)
			continue
		}
		at := all[n].At
		if at < s.passed || at < s.latest-s.log.disorder {
			all = all[:n]
			s.log.late++
			continue
		}
		if at < before {
			inOrder = false
		}
		before = at
		s.latest = max(s.latest, at)
	}
	b.entries, b.headers, b.attrs = all, d.headers.all, d.attrs.all
	if len(all) == 0 {
		s.free = append(s.free, b)
		return
	}
	s.held += len(all)
	if !inOrder {
		b = s.reorder(b)
	}
	s.queue = append(s.queue, b)
}

func (s *source) newBatch() *batch {
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b
	}
	return &batch{}
}

// reorder sorts a batch that is about to be queued, together with the entries of the queue that are not
// older than its first.
func (s *source) reorder(b *batch) *batch {
	oldest := b.entries[0].At
	for i := range b.entries {
		oldest = min(oldest, b.entries[i].At)
	}
	from := len(s.queue)
	for from > 0 && s.queue[from-1].last() > oldest {
		from--
	}
	all := []Entry(nil)
	for _, q := range s.queue[from:] { // of the first, some may stay
		first := sort.Search(len(q.entries), func(i int) bool { return q.entries[i].At > oldest })
		all = append(all, q.entries[first:]...)
		q.entries, q.shared = q.entries[:first], true
	}
	for from < len(s.queue) && len(s.queue[len(s.queue)-1].entries) == 0 {
		s.queue = s.queue[:len(s.queue)-1]
	}
	if len(all) == 0 {
		sortEntries(b.entries)
		return b
	}
	all = append(all, b.entries...) // b itself is not used again: its header fields are
	sortEntries(all)
	return &batch{entries: all, shared: true}
}

// sortEntries sorts by time, and leaves entries of one time in the order of their lines.
func sortEntries(all []Entry) {
	type key struct {
		at    int64
		index int
	}
	keys := make([]key, len(all))
	for i := range all {
		keys[i] = key{all[i].At, i}
	}
	slices.SortFunc(keys, func(a, b key) int {
		if a.at != b.at {
			if a.at < b.at {
				return -1
			}
			return 1
		}
		return a.index - b.index
	})
	sorted := make([]Entry, len(all))
	for i, k := range keys {
		sorted[i] = all[k.index]
	}
	copy(all, sorted)
}
