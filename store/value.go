package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
)

// The value of a row is its version, 1, and then numbers as unsigned varints. Instants are µs since 1970.
//
//	record   last, violations, until, bans, forget
//	count    what is used; then, if that is not 0, the numbers of its algorithm:
//	           fixed_window    last
//	           buckets         last, amount, tick
//	           sliding_window  last, and the units of each sub-window, that of last first
//	           sliding_log     last, and of each mark how long after the one before it was, and its units
//	         Of a sliding_window, what is used is 1, and of a sliding_log how many marks there are.
//	         Then how many holds there are, and of each: identity (12 bytes), units, until, for, and 1 if
//	         it was released, else 0.

const version = 1

// reader reads numbers off the front of a value. After the first error all are 0.
type reader struct {
	rest []byte
	err  error
}

func newReader(value []byte) reader {
	if len(value) == 0 {
		return reader{err: errors.New("it is empty")}
	}
	if value[0] != version {
		return reader{err: fmt.Errorf("it is of version %d, and this program reads version %d", value[0], version)}
	}
	return reader{rest: value[1:]}
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.rest = nil
}

// number reads the next number, which must be from least to most.
func (r *reader) number(what string, least, most int64) int64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.fail("it ends before its %s", what)
		return 0
	}
	r.rest = r.rest[size:]
	if n < uint64(least) || n > uint64(most) {
		r.fail("its %s is %d, and not from %d to %d", what, n, least, most)
		return 0
	}
	return int64(n)
}

func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.fail("%d bytes follow its end", len(r.rest))
	}
	return r.err
}

func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

const mostCounted = 1 << 31 // violations and bans

func appendRecord(b []byte, r *algo.Record) []byte {
	return appendNumbers(append(b, version), r.Last, r.Violations, r.Until, r.Bans, r.Forget)
}

func readRecord(value []byte) (r algo.Record, err error) {
	in := newReader(value)
	r.Last = in.number("last violation", 0, algo.Exact)
	r.Violations = in.number("count of violations", 0, mostCounted)
	r.Until = in.number("end of a ban", 0, algo.Exact+algo.MaxBan.Microseconds())
	r.Bans = in.number("count of bans", 0, mostCounted)
	r.Forget = in.number("time to forget", 1, algo.MaxBan.Microseconds())
	return r, in.end()
}

func appendKept(b []byte, p *algo.Plan, k *counts.Kept) []byte {
	b = append(b, version)
	s := &k.State
	switch {
	case s.IsZero():
		b = appendNumbers(b, 0)
	case p.Kind == algo.SlidingWindow:
		b = appendNumbers(appendNumbers(b, 1, s.Last), s.Counts...)
	case p.Kind == algo.SlidingLog:
		b = appendNumbers(b, int64(len(s.Marks)), s.Last)
		before := algo.Mark{Sum: s.Used}
		for _, m := range s.Marks {
			b = appendNumbers(b, m.At-before.At, m.Sum-before.Sum)
			before = m
		}
	case p.Kind == algo.FixedWindow:
		b = appendNumbers(b, s.Used, s.Last)
	default:
		b = appendNumbers(b, s.Used, s.Last, s.Amount, s.Tick)
	}
	b = appendNumbers(b, int64(len(k.Holds)))
	for i := range k.Holds {
		h := &k.Holds[i]
		released := int64(0)
		if h.Released {
			released = 1
		}
		b = appendNumbers(append(b, h.ID[:]...), h.Units, h.Until, h.For, released)
	}
	return b
}

func readKept(p *algo.Plan, value []byte) (k counts.Kept, err error) {
	in := newReader(value)
	if used := in.number("use", 0, algo.Exact); used > 0 {
		k.State = in.state(p, used)
	}
	n := in.number("number of holds", 0, int64(len(in.rest)))
	for i := int64(0); i < n && in.err == nil; i++ {
		k.Holds = append(k.Holds, in.hold())
	}
	return k, in.end()
}

func (r *reader) state(p *algo.Plan, used int64) algo.State {
	s := algo.State{Used: used, Last: r.number("last charge", 0, algo.Exact)}
	switch p.Kind {
	case algo.InFlight:
		r.fail("it counts units that were charged, under a limit of what is in flight")
	case algo.SlidingWindow:
		r.window(&s, p)
	case algo.SlidingLog:
		r.log(&s, used)
	case algo.FixedWindow:
	default:
		s.Amount = r.number("amount", 1, algo.Exact)
		s.Tick = r.number("tick", 1, 1000)
		if s.Tick != 1 && (s.Tick != 1000 || p.Period%s.Tick != 0) {
			r.fail("its tick is %d µs", s.Tick)
		}
	}
	return s
}

func (r *reader) window(s *algo.State, p *algo.Plan) {
	if s.Used != 1 {
		r.fail("it is that of no sliding window")
		return
	}
	s.Counts, s.Used = make([]int64, p.Buckets+1), 0
	for i := range s.Counts {
		s.Counts[i] = r.number("sub-window", 0, algo.Exact)
		s.Used += s.Counts[i]
	}
	if s.Used == 0 || s.Used > 2*algo.Exact {
		r.fail("its sub-windows hold %d", s.Used)
	}
}

func (r *reader) log(s *algo.State, marks int64) {
	s.Used = 0
	m := algo.Mark{}
	for i := int64(0); i < marks && r.err == nil; i++ {
		m.At += r.number("mark", min(i, 1), s.Last-m.At)
		m.Sum += r.number("units of a mark", 1, algo.Exact)
		if m.Sum > 2*algo.Exact {
			r.fail("its marks hold %d", m.Sum)
		}
		s.Marks = append(s.Marks, m)
	}
}

func (r *reader) hold() (h counts.KeptHold) {
	if n := copy(h.ID[:], r.rest); n < len(h.ID) {
		r.fail("it ends before the identity of a hold")
		return h
	}
	r.rest = r.rest[len(h.ID):]
	h.Units = r.number("units of a hold", 0, algo.Exact)
	h.Until = r.number("end of a hold", 0, 2*algo.Exact)
	h.For = r.number("time of a hold", 1, algo.Exact)
	h.Released = r.number("mark of a released hold", 0, 1) == 1
	return h
}
