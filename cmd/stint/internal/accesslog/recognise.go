package accesslog

import (
	"fmt"
	"io"
	"strings"
)

// sampleSize is about how many bytes of a file tell its form.
const sampleSize = 64 << 10

// sample is the beginning of a file.
type sample struct {
	lines []string
	// what the lines are by one form
	requests, others int
	first            int64 // when the first request was, in µs since 1970
	why              error // why the first line that cannot be read cannot
	has              Fields
}

// newSample takes the lines of a block that are not empty.
func newSample(l *lines) (s sample) {
	for {
		line, long, ok := l.next()
		if !ok {
			return s
		}
		if line != "" && !long {
			s.lines = append(s.lines, line)
		}
	}
}

// recognise returns the reader of the form that reads the most lines, and what it has read.
func recognise(s sample, candidates []form, times clock) (name string, best reader, read sample, err error) {
	for _, f := range candidates {
		r := f.of(s.lines[0])
		if r == nil {
			continue
		}
		if got := s.readBy(r, times, false); got.requests > 0 && (best == nil || got.requests+got.others > read.requests+read.others) {
			name, best, read = f.name, r, got
		} else if len(candidates) == 1 && got.requests == 0 {
			err = fmt.Errorf("no line can be read as %s: the first is %s", f.name, shortened(s.lines[0]))
			if got.why != nil {
				err = fmt.Errorf("%w, and %w", err, got.why)
			}
			return "", nil, s, err
		}
	}
	switch {
	case len(candidates) == 1 && best == nil:
		return "", nil, s, fmt.Errorf("its first line must name its columns, the time among them: it is %s", shortened(s.lines[0]))
	case best == nil || len(candidates) > 1 && 2*(read.requests+read.others) < len(s.lines):
		return "", nil, s, fmt.Errorf("its form is not recognised: the first line is %s; --format or --fields says what it is", shortened(s.lines[0]))
	}
	return name, best, s.readBy(best, times, true), nil
}

// readBy reads the lines by one form. It notes what they have if notes is true.
func (s sample) readBy(r reader, times clock, notes bool) sample {
	d := draft{times: times}
	if notes {
		d.seen = map[field]bool{}
	}
	clients, queries := 0, 0
	for _, line := range s.lines {
		var e Entry
		d.begin(&e, 0, 0)
		switch err := readLine(r, line, &d); err {
		case nil:
			if s.requests == 0 {
				s.first = e.At
			}
			s.requests++
			if e.Client.IsValid() {
				clients++
			}
			if strings.Contains(e.Target, "?") {
				queries++
			}
		case errOther:
			s.others++
		default:
			if s.why == nil {
				s.why = err
			}
		}
	}
	s.has = has(d.seen)
	s.has.Client = clients > 0 // a name in its place, or a hash, is of no use
	if queries > 0 {
		s.has.Query = true
	}
	return s
}

// readLine reads a line whose draft has begun.
func readLine(r reader, line string, d *draft) error {
	if err := r.read(line, d); err != nil {
		return err
	}
	return d.finish()
}

// shortened is a line for an error.
func shortened(line string) string {
	const most = 120
	if len(line) > most {
		return fmt.Sprintf("%.*q...", most, line)
	}
	return fmt.Sprintf("%q", line)
}

// examine finds the form of a file, unless it is empty.
func (s *source) examine(candidates []form, o Options) error {
	s.d.times = clock{zone: o.Zone, latest: s.file.latest}
	if err := s.open(sampleSize); err != nil {
		return err
	}
	if !s.file.isPipe() {
		defer s.close()
	}
	var beginning sample
	for len(beginning.lines) == 0 { // more may follow blank lines
		if err := s.lines.fill(); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", s.file.path, err)
		}
		after := *s.lines
		if beginning = newSample(&after); len(beginning.lines) == 0 {
			*s.lines = after
		}
	}
	name, r, read, err := recognise(beginning, candidates, s.d.times)
	if err != nil {
		return fmt.Errorf("%s: %w", s.file.path, err)
	}
	s.form, s.reader, s.has = name, r, read.has
	s.from = max(read.first-o.Disorder.Microseconds(), 0)
	return nil
}
