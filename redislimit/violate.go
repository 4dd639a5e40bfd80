package redislimit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

// Violate implements stint.Violator: one round trip. In a Cluster, where its keys
// lie in several slots, it is one that looks for bans and then one for each slot,
// at the same time; an error of one then leaves what the others counted.
func (s *Store) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	if !s.cluster() || oneSlot(r) {
		return s.violate(ctx, r)
	}
	parts := split(r)
	if ban, err := s.runningBan(ctx, parts); err != nil || ban.BanLeft > 0 {
		return ban, err
	}
	inParallel(parts, func(p *part) { p.decision, p.err = s.violate(ctx, &p.request) })
	var errs []error
	for _, p := range parts {
		errs = append(errs, p.err)
	}
	if err := errors.Join(errs...); err != nil {
		return stint.Decision{}, err
	}
	return gravest(parts), nil
}

// gravest is the longest ban, else the gravest sentence, of equals that of the ask
// that comes first. Parts are in the order of their first asks, not of all.
func gravest(parts []*part) stint.Decision {
	var d stint.Decision
	first := 0
	for _, p := range parts {
		place := p.places[0]
		for i := range p.request.Asks {
			if p.request.Asks[i].Key == p.decision.Key {
				place = p.places[i]
				break
			}
		}
		e := &p.decision
		graver := e.Outcome > d.Outcome || e.BanLeft > d.BanLeft
		if graver || e.Outcome == d.Outcome && e.BanLeft == d.BanLeft && place < first {
			d, first = *e, place
		}
	}
	return d
}

// violate counts violations in one slot.
func (s *Store) violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	b := batch{at: r.At}
	_, penalised := penalties(r.Asks)
	s.addPenalties(&b, penalised, 0)
	var times []byte
	for _, a := range penalised {
		times = binary.BigEndian.AppendUint32(times, uint32(min(max(a.Cost, 1), 1<<31)))
	}
	reply, err := s.punish.call(ctx, s.client, &b, string(times))
	if err != nil {
		return stint.Decision{}, fmt.Errorf("redislimit: violate: %w", advise(err))
	}
	text, _ := reply.(string)
	head, _, err := algo.ReadHead(text)
	switch {
	case err != nil:
		return stint.Decision{}, fmt.Errorf("redislimit: violate: %w", err)
	case head.Who < 1 || head.Who > len(penalised) || head.Result == algo.ResultAllowed:
		return stint.Decision{}, fmt.Errorf("redislimit: answer %v: not one of this script's", head)
	case head.Result == algo.ResultBroken:
		return stint.Decision{}, s.broken(nil, penalised, head)
	case head.Result == algo.ResultRunning:
		return running(penalised[head.Who-1], head.Left), nil
	}
	by := penalised[head.Who-1]
	d := stint.Decision{Outcome: stint.Limited, Key: by.Key}
	switch head.Result {
	case algo.ResultWarned:
		d.Punish(nil, algo.Warned, 0)
	case algo.ResultBanned:
		d.Punish(by.Penalty, algo.Banned, algo.Duration(head.Left))
	}
	return d, nil
}
