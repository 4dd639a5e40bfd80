package offenders

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stintdev/stint/internal/heavy"
)

// The instances of a fleet count in spans of ten minutes. Each writes a part of a report for
// each span. When a span has ended, one instance merges its parts into one, and later the spans of an hour.
// So new counts are there at once, and old hours take little room.
const (
	span  = 10 * time.Minute
	hour  = time.Hour
	Keeps = 14 * 24 * time.Hour // how long hours are kept

	reportEvery = 10            // seconds
	keepParts   = time.Hour     // of spans, by instance
	keepSpans   = 4 * time.Hour // merged

	// partBytes and hourBytes bound an instance's part of a span, and the fleet's record of an hour.
	partBytes = 64 << 10
	hourBytes = 32 << 10
	// mostLate is how many spans wait while the fleet's reports cannot be written.
	mostLate = 2
)

// HistoryBytes is the most bytes that the hours take in the store.
const HistoryBytes = int64(Keeps/hour)*hourBytes + int64(keepSpans/span+keepParts/span+2)*partBytes

func spanOf(t time.Time) int64      { return t.Unix() / int64(span/time.Second) }
func startOf(n int64) time.Time     { return time.Unix(n*int64(span/time.Second), 0).UTC() }
func hourOf(t time.Time) int64      { return t.Unix() / int64(hour/time.Second) }
func startOfHour(n int64) time.Time { return time.Unix(n*int64(hour/time.Second), 0).UTC() }

const spansOfHour = int64(hour / span)

// Names of reports: the parts of a span, a merged span, and a merged hour.
func partsName(span int64) string { return "offenders-" + strconv.FormatInt(span, 10) }
func spanName(span int64) string  { return "offenders-span-" + strconv.FormatInt(span, 10) }
func hourName(hour int64) string  { return "offenders-hour-" + strconv.FormatInt(hour, 10) }

// merged is the name of the only part of a merged span or hour.
const merged = "all"

// part is an instance's part of a span.
type part struct {
	span int64
	text []byte
}

// turn begins a new span if the time has come, and reports whether it has.
func (s *Counter) turn() bool {
	now := spanOf(s.Now())
	s.mu.Lock()
	if now == s.span {
		s.mu.Unlock()
		return false
	}
	var last *lists
	of := s.span
	if s.changed {
		last = s.now.lists(s.Most)
	}
	for of := range s.now {
		for _, sum := range s.now[of] {
			sum.Reset()
		}
	}
	s.span, s.from, s.changed = now, startOf(now), false
	s.mu.Unlock()
	if last != nil {
		if len(s.late) == mostLate {
			s.late = s.late[1:]
			s.Failed(errors.New("the oldest counts of offenders could not be reported for a while, and were dropped"))
		}
		s.late = append(s.late, part{of, last.encode(1, partBytes)})
	}
	return true
}

// report writes the parts of this instance that have changed.
func (s *Counter) report(ctx context.Context) {
	for len(s.late) > 0 {
		if !s.write(ctx, s.late[0]) {
			return
		}
		s.late = s.late[1:]
	}
	s.mu.Lock()
	of, changed := s.span, s.changed
	var last *lists
	if changed {
		last, s.changed = s.now.lists(s.Most), false
	}
	s.mu.Unlock()
	if changed && !s.write(ctx, part{of, last.encode(1, partBytes)}) {
		s.mu.Lock()
		s.changed = true
		s.mu.Unlock()
	}
}

func (s *Counter) write(ctx context.Context, p part) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := s.Reports.Report(ctx, partsName(p.span), s.ID, p.text, keepParts)
	if err != nil {
		s.Failed(err)
	}
	return err == nil
}

// callTimeout bounds a call of Reports in the background.
const callTimeout = 5 * time.Second

// lists are the heaviest of each kind.
type lists [ofs][bys]heavy.List

func (t *table) lists(n int) *lists {
	var all lists
	for of := range t {
		for by, sum := range t[of] {
			all[of][by] = sum.Top(n)
		}
	}
	return &all
}

// version is the first byte of a part.
const version = 1

// encode writes lists in binary: the version, the number of counted instances, and each list after its
// length. If that exceeds most bytes, all lists are cut to the same number of keys, so that they fit.
func (l *lists) encode(instances int64, most int) []byte {
	longest := 0
	for of := range l {
		for by := range l[of] {
			longest = max(longest, len(l[of][by].Counts))
		}
	}
	for n := longest; ; {
		b := binary.AppendUvarint([]byte{version}, uint64(instances))
		for of := range l {
			for by := range l[of] {
				cut := l[of][by].Top(n)
				text := cut.Append(nil)
				b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
			}
		}
		if len(b) <= most || n == 0 {
			return b
		}
		n = min(n*9/10, n*most/len(b))
	}
}

var errPart = errors.New("not a report about offenders of this version")

// decode reads the output of encode. Lists for which wanted is false are left empty.
func decode(b []byte, wanted func(Dimension, Weight) bool) (l *lists, instances int64, err error) {
	if len(b) == 0 || b[0] != version {
		return nil, 0, errPart
	}
	n, size := binary.Uvarint(b[1:])
	if size <= 0 || n > 1<<20 {
		return nil, 0, errPart
	}
	b, l = b[1+size:], new(lists)
	for of := range l {
		for by := range l[of] {
			n, size := binary.Uvarint(b)
			if size <= 0 || n > uint64(len(b)-size) {
				return nil, 0, errPart
			}
			text := b[size : size+int(n)]
			b = b[size+int(n):]
			if wanted(Dimension(of), Weight(by)) {
				if l[of][by], err = heavy.Decode(text); err != nil {
					return nil, 0, fmt.Errorf("%s by %s: %w", Dimensions[of], Weights[by], err)
				}
			}
		}
	}
	if len(b) > 0 {
		return nil, 0, errPart
	}
	return l, int64(n), nil
}

func everything(Dimension, Weight) bool { return true }
