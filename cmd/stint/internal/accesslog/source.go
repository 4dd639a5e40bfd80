package accesslog

import (
	"cmp"
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

	queue     []*batch // which wait until nothing older can come, in order
	held      int      // entries in queue
	heldBytes int      // of their lines
	head      *batch   // what is given next; nil: it has not begun, or has ended
	given     int      // of head
	free      []*batch
	toSort    []toSort
	latest    int64 // of all entries read
	passed    int64 // entries before it would be out of order
}

// batch is some entries in order of time.
type batch struct {
	entries        []Entry
	headers, attrs []Field // which they, or those of a later batch if it is shared, may have
	shared         bool
	bytes          int // of the lines; 0 of a batch whose newer entries are in the next one
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

// close closes the file and lets go of all memory but what is known of the file: there may be thousands.
func (s *source) close() {
	if s.content != nil {
		s.content.close()
	}
	s.content, s.lines, s.queue, s.free, s.toSort = nil, nil, nil, nil, nil
	s.d = draft{times: clock{zone: s.d.times.zone, latest: s.d.times.latest}}
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
	if s.head != nil {
		s.recycle(s.head)
	}
	s.head, s.given = nil, 0
	for {
		if len(s.queue) > 0 {
			if first := s.queue[0]; s.ended != nil || first.last() <= s.latest-s.log.disorder || s.log.holdsEnough(s) {
				s.head, s.queue = first, s.queue[1:]
				s.held -= len(first.entries)
				s.heldBytes -= first.bytes
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
	all, inOrder, before, bytes := b.entries[:0], true, int64(0), 0
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
		bytes += len(line)
	}
	b.entries, b.headers, b.attrs, b.bytes = all, d.headers.all, d.attrs.all, bytes
	if len(all) == 0 {
		s.recycle(b)
		return
	}
	s.held += len(all)
	s.heldBytes += bytes
	if !inOrder {
		b = s.reorder(b)
	}
	s.queue = append(s.queue, b)
}

// recycle takes a batch for the next newBatch. Its entries are no longer used.
func (s *source) recycle(b *batch) {
	if b.shared {
		b.headers, b.attrs, b.shared = nil, nil, false
	}
	if b.entries = b.entries[:0]; len(s.free) < 4 {
		s.free = append(s.free, b)
	}
}

func (s *source) newBatch() *batch {
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b
	}
	return &batch{}
}

// reorder returns a batch to be queued instead of b: it has the entries of b, and those of the queue that are
// newer than the oldest of b, in order. Entries of one time stay in the order of their lines.
func (s *source) reorder(b *batch) *batch {
	oldest := b.entries[0].At
	for i := range b.entries {
		oldest = min(oldest, b.entries[i].At)
	}
	from := len(s.queue)
	for from > 0 && s.queue[from-1].last() > oldest {
		from--
	}
	all := s.toSort[:0]
	add := func(entries []Entry) {
		for i := range entries {
			all = append(all, toSort{entries[i].At, len(all), &entries[i]})
		}
	}
	newer := s.queue[from:]
	for i, q := range newer {
		first := 0
		if i == 0 { // of which some may stay
			first = sort.Search(len(q.entries), func(i int) bool { return q.entries[i].At > oldest })
		}
		add(q.entries[first:])
		q.entries, q.shared = q.entries[:first], true
		b.bytes, q.bytes = b.bytes+q.bytes, 0
	}
	add(b.entries)
	slices.SortFunc(all, func(a, b toSort) int { return cmp.Or(cmp.Compare(a.at, b.at), a.index-b.index) })
	sorted := s.newBatch()
	sorted.bytes = b.bytes
	for i := range all {
		sorted.entries = append(sorted.entries, *all[i].entry)
	}
	clear(all)
	s.toSort = all[:0]
	b.shared = true
	s.recycle(b)
	for i, q := range newer {
		if i == 0 && len(q.entries) > 0 {
			from++
			continue
		}
		s.recycle(q)
	}
	s.queue = s.queue[:from]
	return sorted
}

// toSort is an entry in the order of lines.
type toSort struct {
	at    int64
	index int
	entry *Entry
}
