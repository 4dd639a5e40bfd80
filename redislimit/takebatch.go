package redislimit

import (
	"context"

	"github.com/stintdev/stint"
)

// mostInCall is how many asks of a list go in one call, and mostListed how many of all lists are
// under way, so that lists delay another request by some 200 µs per call.
const (
	mostInCall = 64
	mostListed = 2 * mostInCall
)

// TakeBatch implements stint.BatchTaker, in one round trip for each 64 asks. In a Cluster,
// requests are sent to the slots of their keys, for each slot in their order; requests with
// several slots come last, one by one.
func (s *Store) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	if _, err := s.conn.Await(ctx, 0); err != nil {
		for i := range answers {
			answers[i].Err = notSent(err)
		}
		return
	}
	if s.envoy != nil {
		all := make([]*mixed, len(rs))
		for i := range rs {
			all[i] = s.mixedOf(&rs[i])
		}
		s.takeBatchMixed(ctx, all, rs, answers)
		return
	}
	s.takeBatchOwn(ctx, rs, answers)
}

// takeBatchOwn is TakeBatch in Stint's keys.
func (s *Store) takeBatchOwn(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	if !s.conn.Cluster() {
		s.takeInOrder(ctx, rs, answers, all(len(rs)))
		return
	}
	bySlot := map[uint16][]int{}
	for i := range rs {
		if oneSlot(&rs[i]) {
			n := slot(rs[i].Asks[0].Key)
			bySlot[n] = append(bySlot[n], i)
		}
	}
	var parts []*part
	for _, places := range bySlot {
		parts = append(parts, &part{places: places})
	}
	if len(parts) > 0 {
		inParallel(parts, func(p *part) { s.takeInOrder(ctx, rs, answers, p.places) })
	}
	for i := range rs {
		if !oneSlot(&rs[i]) {
			answers[i].Decision, _, answers[i].Err = s.takeOwn(ctx, &rs[i], answers[i].Each)
		}
	}
}

func all(n int) []int {
	places := make([]int, n)
	for i := range places {
		places[i] = i
	}
	return places
}

// takeInOrder decides the requests at these places, with as many per call as allowed.
func (s *Store) takeInOrder(ctx context.Context, rs []stint.Request, answers []stint.Answer, places []int) {
	for len(places) > 0 {
		b := batch{at: rs[places[0]].At}
		var spots []spot
		n := 0
		for n < len(places) && (n == 0 || b.asks+len(rs[places[n]].Asks) <= mostInCall) {
			spots = append(spots, s.add(&b, &rs[places[n]]))
			n++
		}
		reply, err := s.runListed(ctx, &b)
		replies := make([]string, 0, len(b.groups))
		for i := range b.groups {
			if err != nil {
				break
			}
			var answer string
			answer, reply, err = cut(reply, &b.groups[i])
			replies = append(replies, answer)
		}
		for j, i := range places[:n] {
			a := &answers[i]
			if g := spots[j].group; g < len(replies) && replies[g] != "" {
				a.Decision, a.Err = s.read(replies[g], &rs[i], spots[j].place, a.Each)
			} else {
				a.Decision, a.Err = stint.Decision{}, err
			}
			if a.Err != nil && s.outside(a.Err) {
				a.Decision, _, a.Err = s.takeMerged(ctx, &rs[i], a.Each)
			}
		}
		places = places[n:]
	}
}

func (s *Store) runListed(ctx context.Context, b *batch) (string, error) {
	asks := int64(min(b.asks, mostListed)) // a single request may have more
	if err := s.listed.Acquire(ctx, asks); err != nil {
		return "", notSent(err)
	}
	defer s.listed.Release(asks)
	return s.run(ctx, b)
}
