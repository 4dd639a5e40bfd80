package algo

import "sort"

// Sliding log: each admitted request is an instant and a cost, which counts for a period; one instant
// is one mark. Running sums make searches binary. They wrap: only differences, of at most the amount,
// are used.

func (p *Plan) lookLog(s *State, now int64) View {
	v := View{Now: now}
	if len(s.Marks) == 0 {
		return v
	}
	first := 0
	if gone := now - p.Period; s.Marks[0].At <= gone { // else all of them count, as they mostly do
		first = sort.Search(len(s.Marks), func(i int) bool { return s.Marks[i].At > gone })
	}
	v.first = int64(first)
	if first < len(s.Marks) {
		v.Used = s.Marks[len(s.Marks)-1].Sum - s.sumBefore(first)
	}
	return v
}

func (s *State) sumBefore(i int) int64 {
	if i == 0 {
		return s.Used
	}
	return s.Marks[i-1].Sum
}

func (p *Plan) chargeLog(s *State, v *View, n int64) {
	s.dropMarks(v)
	v.Used += n
	s.Last = v.Now
	if k := len(s.Marks); k > 0 && s.Marks[k-1].At == v.Now {
		s.Marks[k-1].Sum += n
		return
	}
	s.Marks = append(s.Marks, Mark{At: v.Now, Sum: s.sumBefore(len(s.Marks)) + n})
}

// Gone is how many marks of a sliding log no longer count at v.
func (v *View) Gone() int { return int(v.first) }

// DropGone forgets the marks of a sliding log that no longer count at v, as Settle does first when
// it charges. It makes no new array: the slice begins later.
func (s *State) DropGone(v *View) { s.dropMarks(v) }

// dropMarks forgets marks that no longer count. The slice keeps its array; an emptied log starts
// again at its front.
func (s *State) dropMarks(v *View) {
	if v.first == 0 {
		return
	}
	s.Used = s.sumBefore(int(v.first))
	s.Marks = s.Marks[v.first:]
	if len(s.Marks) == 0 {
		s.Marks, s.Used = nil, 0
	}
	v.first = 0
}

// retryLog waits for the first mark whose leaving frees enough.
func (p *Plan) retryLog(s *State, v *View, n int64) int64 {
	excess := v.Used + n - p.Amount
	live := s.Marks[v.first:]
	before := s.sumBefore(int(v.first))
	i := sort.Search(len(live), func(i int) bool { return live[i].Sum-before >= excess })
	return live[i].At + p.Period - v.Now
}

func (p *Plan) resetLog(s *State, v *View) int64 {
	if v.Used == 0 {
		return 0
	}
	return s.Marks[len(s.Marks)-1].At + p.Period - v.Now
}

// refundLog takes n units, fewer than are in use, off the end.
func (s *State) refundLog(n int64) {
	k := len(s.Marks)
	end := s.Marks[k-1].Sum - n
	for k > 1 && s.Marks[k-2].Sum-end >= 0 {
		k--
	}
	s.Marks = s.Marks[:k]
	s.Marks[k-1].Sum = end
}

// dropOldestMarks takes n units, fewer than are in use, off the front.
func (s *State) dropOldestMarks(v *View, n int64) {
	s.dropMarks(v)
	s.Used += n
	first := sort.Search(len(s.Marks), func(i int) bool { return s.Marks[i].Sum-s.Used > 0 })
	s.Marks = s.Marks[first:]
}
