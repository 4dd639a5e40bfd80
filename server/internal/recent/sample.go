package recent

import (
	"iter"
	"slices"
	"time"
)

// Sample is a Recorder's content at one moment. Not safe for concurrent use.
type Sample struct {
	// Share: the requests of one in Share clients were recorded. 1: all.
	Share int64

	recorder *Recorder
	pieces   []piece
	from     time.Duration
}

// piece is a segment's content when the sample was taken.
type piece struct {
	*segment
	length int
}

// Sample returns the records of the last window.
func (r *Recorder) Sample(now time.Duration) *Sample {
	p := &Sample{Share: 1, recorder: r, from: now - r.window}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.segments {
		if s.last >= p.from && len(s.text) > 0 {
			p.Share = max(p.Share, 1<<s.k)
			p.pieces = append(p.pieces, piece{s, len(s.text)})
		}
	}
	return p
}

// Lacks returns the parts in reads that were not recorded of every request, in the words of expressions.
func (p *Sample) Lacks(reads *Reads) (names []string) {
	var last *Reads
	for _, s := range p.pieces {
		if s.reads == last {
			continue
		}
		last = s.reads
		for _, name := range last.Lacks(reads) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// All are the requests, about in the order of arrival, without those dropped meanwhile. A Request is valid
// until the next one; its contents stay valid.
func (p *Sample) All() iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		mask := uint64(p.Share - 1)
		var q Request
		var text []byte
		for _, s := range p.pieces {
			text = p.recorder.copyOf(s, text)
			for r := (reader{text}); len(r.text) > 0; {
				if hash := r.request(&q, s.first); hash&mask != 0 || q.At < p.from {
					continue
				}
				if !yield(&q) {
					return
				}
			}
		}
	}
}

// copyOf copies a piece into the memory of to. It is empty if the segment has made room.
func (r *Recorder) copyOf(s piece, to []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.text == nil {
		return to[:0]
	}
	return append(to[:0], s.text[:s.length]...)
}
