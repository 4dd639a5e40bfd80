package counts

import "github.com/stintdev/stint/internal/algo"

// blocks holds counts of more than two numbers, of sliding windows and logs. The slot's word holds
// only the last charge's instant, and its base the block and the plan's number. A block is used
// only while its slot is locked. A window's block is the sum, then the counts. A log's begins with
// a pseudo mark: At is State.Used, Sum says which marks behind it are in use; they move towards the
// end as the oldest leave, and back when it is reached.
type blocks struct {
	windows arena[int64]
	logs    arena[algo.Mark]
}

// state is a count in a block. Its slices are in the block; close writes the rest.
func (b *blocks) state(p *algo.Plan, last int64, at block) algo.State {
	if p.Kind == algo.SlidingWindow {
		w := b.windows.at(at)
		n := int(p.Buckets) + 2
		return algo.State{Last: last, Used: w[0], Counts: w[1:n:n]}
	}
	l := b.logs.at(at)
	first, n := uint64(l[0].Sum)>>32, uint64(l[0].Sum)&(1<<32-1)
	return algo.State{Last: last, Used: l[0].At, Marks: l[1+first : 1+first+n]}
}

func (b *blocks) close(p *algo.Plan, s *algo.State, at block) {
	if p.Kind == algo.SlidingWindow {
		b.windows.at(at)[0] = s.Used
		return
	}
	l := b.logs.at(at)
	first := len(l) - 1 - cap(s.Marks)
	l[0] = algo.Mark{At: s.Used, Sum: int64(first)<<32 | int64(len(s.Marks))}
}

// alloc moves a state into a block. The shard must be locked.
func (b *blocks) alloc(p *algo.Plan, s *algo.State) block {
	var at block
	if p.Kind == algo.SlidingWindow {
		n := int(p.Buckets) + 2
		at = b.windows.alloc(n)
		w := b.windows.at(at)[1:n:n]
		copy(w, s.Counts)
		s.Counts = w
	} else {
		at = b.logs.alloc(len(s.Marks) + 2)
		l := b.logs.at(at)
		s.Marks = l[1 : 1+copy(l[1:], s.Marks)]
	}
	b.close(p, s, at)
	return at
}

// release frees a block. The shard must be locked.
func (b *blocks) release(p *algo.Plan, at block) {
	if p.Kind == algo.SlidingWindow {
		b.windows.release(at)
	} else {
		b.logs.release(at)
	}
}

// fits reports whether a log's block has a place for one more mark, perhaps after moving the used
// ones to the front, and is not far too large. A window always fits.
func (b *blocks) fits(p *algo.Plan, s *algo.State, v *algo.View, at block) bool {
	if p.Kind == algo.SlidingWindow {
		return true
	}
	size, n := len(b.logs.at(at)), len(s.Marks)-v.Gone()
	if size >= 64 && 8*(n+2) < size {
		return false
	}
	return len(s.Marks) < cap(s.Marks) || size-1-n > n/4
}

// makeRoom moves the marks of a log that fits to the front, if that is needed for one more.
func (b *blocks) makeRoom(p *algo.Plan, s *algo.State, v *algo.View, at block) {
	if p.Kind == algo.SlidingWindow || len(s.Marks) < cap(s.Marks) && v.Gone() < len(s.Marks) {
		return
	}
	s.DropGone(v)
	l := b.logs.at(at)
	s.Marks = l[1 : 1+copy(l[1:], s.Marks)]
}

// resize moves a log that does not fit into another block. The shard must be locked.
func (b *blocks) resize(s *algo.State, v *algo.View, at block) block {
	s.DropGone(v)
	n := len(s.Marks)
	to := b.logs.alloc(n + n/4 + 2)
	l := b.logs.at(to)
	s.Marks = l[1 : 1+copy(l[1:], s.Marks)]
	b.logs.release(at)
	return to
}
