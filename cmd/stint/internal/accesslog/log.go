package accesslog

import (
	"errors"
	"io"
	"sync/atomic"
)

// Log reads files as one log, in order of time. Open makes it. Progress may be called at any time, from any
// goroutine; the other methods are for one goroutine.
type Log struct {
	sources []*source
	files   []*file
	all     []Source
	fields  Fields

	disorder  int64 // µs
	blockSize int
	size      int64 // 0: unknown
	read      atomic.Int64

	unread, others, late int64
	firstUnread          []Unread

	waiting []*source // a heap by next, then by index
	begun   int       // sources that are open
	out     []Entry
	failed  error
}

// Open finds the form of each file at paths. A path is a file, a directory, whose files are read and those
// of directories in it, or "-" for standard input. gzip and zstd are recognised. A file that is there twice is
// read once.
//
// An error says which file is of an unknown form, or what of o is wrong. In directories, such files are
// skipped: Sources says why.
func Open(paths []string, o Options) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	candidates, err := formsOf(o)
	if err != nil {
		return nil, err
	}
	l := &Log{disorder: o.Disorder.Microseconds()}
	if l.files, err = findFiles(paths, o); err != nil {
		return nil, err
	}
	l.blockSize = max(64<<10, min(256<<10, 16<<20/len(l.files)))
	if err := l.examine(candidates, o); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// examine makes the sources of the files.
func (l *Log) examine(candidates []form, o Options) error {
	sized, hasFields := true, false
	for i, f := range l.files {
		s := &source{log: l, file: f, index: i}
		err := s.examine(candidates, o)
		if err != nil && !f.inDir {
			return err
		}
		l.all = append(l.all, Source{Path: f.path, Form: s.form, Skipped: err})
		if sized = sized && !f.isPipe(); s.reader == nil {
			continue
		}
		l.size += f.size
		if hasFields {
			s.has = s.has.and(l.fields)
		}
		l.fields, hasFields = s.has, true
		l.sources = append(l.sources, s)
	}
	if !sized {
		l.size = 0
	}
	if !hasFields && len(l.all) > 0 {
		for _, s := range l.all {
			if s.Skipped != nil {
				return s.Skipped
			}
		}
	}
	l.waiting = append(l.waiting, l.sources...)
	for i := len(l.waiting)/2 - 1; i >= 0; i-- {
		l.sift(i)
	}
	return nil
}

// Sources are the files, in the order of paths and of names in a directory.
func (l *Log) Sources() []Source { return l.all }

// Has is what all files that are read have about requests, as far as their first lines show.
func (l *Log) Has() Fields { return l.fields }

// Unread is how many lines could not be read so far, and the first five of them. Empty lines do not count.
func (l *Log) Unread() (count int64, first []Unread) { return l.unread, l.firstUnread }

// Others is how many lines were read so far that are about no request, as other messages of a server.
func (l *Log) Others() int64 { return l.others }

// Late is how many entries were left out so far, as they are older than Options.Disorder allows. They are many
// after a time that is wrong and lies in the future.
func (l *Log) Late() int64 { return l.late }

// Progress is how many bytes of the files were read so far, and of how many. If they are compressed, so are
// these bytes. total is 0 if it is unknown, as of a pipe.
func (l *Log) Progress() (read, total int64) { return l.read.Load(), l.size }

// Close closes all files. Next must not be called after it.
func (l *Log) Close() error {
	for _, s := range l.sources {
		s.close()
	}
	closeAll(l.files)
	l.waiting, l.failed = nil, errors.New("the log is closed")
	return nil
}

func (l *Log) cannotRead(s *source, why error) {
	if why == errOther {
		l.others++
		return
	}
	if l.unread++; len(l.firstUnread) < mostUnread {
		l.firstUnread = append(l.firstUnread, Unread{File: s.index, Line: s.lines.number, Why: why.Error()})
	}
}

// holdsEnough reports whether no more entries of s may wait for older ones.
func (l *Log) holdsEnough(s *source) bool {
	n := max(l.begun, 1)
	return s.held > mostHeld/n || s.heldBytes > mostHeldBytes/n
}

// mostAtOnce bounds what Next returns of several files.
const mostAtOnce = 512

// Next returns the next entries in order of time. At the same time, an earlier file comes first, then an earlier
// line. They are valid until the next call, but their texts stay.
//
// After the last, the error is io.EOF. Another error says which file could not be read further; it comes
// after the entries before it, and for good.
func (l *Log) Next() ([]Entry, error) {
	if l.failed != nil {
		return nil, l.failed
	}
	l.out = l.out[:0]
	for {
		if len(l.waiting) == 0 {
			l.failed = io.EOF
			return l.end()
		}
		s := l.waiting[0]
		if s.head == nil || s.given == len(s.head.entries) {
			if len(l.out) > 0 { // which share memory with the head
				return l.out, nil
			}
			if err := l.advance(s); err != nil {
				l.failed = err
				return nil, err
			}
			continue
		}
		run := l.run(s)
		alone := len(l.out) == 0 && (len(run) > mostAtOnce/4 || len(l.waiting) == 1)
		if !alone {
			run = run[:min(len(run), mostAtOnce-len(l.out))]
			l.out = append(l.out, run...)
		}
		if s.given += len(run); s.given < len(s.head.entries) {
			l.sift(0)
		}
		if alone {
			return run, nil
		}
		if len(l.out) == mostAtOnce {
			return l.out, nil
		}
	}
}

// end returns the last entries.
func (l *Log) end() ([]Entry, error) {
	if len(l.out) > 0 {
		return l.out, nil
	}
	return nil, l.failed
}

// advance goes on with a source whose entries are used up, or that has not begun.
func (l *Log) advance(s *source) error {
	move := s.advance
	if !s.begun {
		move, s.begun = s.start, true
		l.begun++
	}
	more, err := move()
	if err != nil {
		return err
	}
	if !more {
		l.begun--
		last := len(l.waiting) - 1
		l.waiting[0] = l.waiting[last]
		l.waiting = l.waiting[:last]
	}
	l.sift(0)
	return nil
}

// run are the entries of the first source that come before those of all others.
func (l *Log) run(s *source) []Entry {
	rest := s.head.entries[s.given:]
	for i := 1; i <= 2 && i < len(l.waiting); i++ {
		other := l.waiting[i]
		limit := other.next()
		n := 0
		for n < len(rest) && (rest[n].At < limit || rest[n].At == limit && s.index < other.index) {
			n++
		}
		rest = rest[:n]
	}
	return rest
}

// sift moves a source down to its place in the heap.
func (l *Log) sift(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(l.waiting); child++ {
			if l.isBefore(l.waiting[child], l.waiting[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		l.waiting[i], l.waiting[least] = l.waiting[least], l.waiting[i]
		i = least
	}
}

func (l *Log) isBefore(a, b *source) bool {
	if x, y := a.next(), b.next(); x != y {
		return x < y
	}
	return a.index < b.index
}
