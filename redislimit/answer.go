package redislimit

import (
	"fmt"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// cut splits the answer to the first request off a reply.
func cut(reply string, g *group) (answer, rest string, err error) {
	head, rest, err := algo.ReadHead(reply)
	if err != nil {
		return "", "", badReply("%w", err)
	}
	size := len(reply) - len(rest)
	switch {
	case !head.Verdicts():
	case g.calls:
		n, err := algo.CalledSize(rest)
		if err != nil {
			return "", "", badReply("%w", err)
		}
		size += n
	default:
		for i := range g.asks {
			if l := g.asks[i].Limit; l != nil {
				size += kit.Plan(l).AnswerSize()
			}
		}
	}
	if size > len(reply) {
		return "", "", badReply("%d bytes, not %d", len(reply), size)
	}
	return reply[:size], reply[size:], nil
}

// read turns the script's answer into decisions, for the request at a place, from 0, among
// identical ones.
func (s *Store) read(reply string, r *stint.Request, place int, out []stint.Decision) (stint.Decision, error) {
	asks := r.Asks
	head, rest, err := algo.ReadHead(reply)
	if err != nil {
		return stint.Decision{}, badReply("%w", err)
	}
	_, penalised := penalties(asks)
	if !head.Names(len(penalised), counts(asks)) {
		return stint.Decision{}, badReply("%v", head)
	}
	if clock, ok := head.Outside(); ok {
		return stint.Decision{}, &outsideError{clock}
	}
	if !head.Verdicts() {
		return stint.Decision{}, s.broken(asks, penalised, head)
	}
	if head.Result == algo.ResultRunning {
		d := kit.Banned(penalised[head.Who-1], head.Left)
		for i := range asks {
			var v algo.Verdict
			if v, rest, err = verdict(r, &asks[i], rest, 0, false); err != nil {
				return stint.Decision{}, err
			}
			d.RetryAfter = max(d.RetryAfter, kit.Decision(&asks[i], &v).RetryAfter)
		}
		return d, nil
	}
	allowed := int64(place) < head.Admitted()
	if head.Result == algo.ResultAllowed && !allowed {
		return stint.Decision{}, badReply("%v to request %d of those that are equal", head, place+1)
	}
	before := int64(place) // admitted
	if !allowed {
		before = head.Admitted()
	}
	var one [1]stint.Decision
	if out == nil {
		out = one[:]
		if len(asks) > 1 {
			out = make([]stint.Decision, len(asks))
		}
	}
	for i := range asks {
		var v algo.Verdict
		if v, rest, err = verdict(r, &asks[i], rest, before, allowed); err != nil {
			return stint.Decision{}, err
		}
		out[i] = kit.Decision(&asks[i], &v)
	}
	d := stint.Strictest(out)
	if d.Allowed != allowed {
		return stint.Decision{}, badReply("%v, which its verdicts contradict", head)
	}
	if !allowed && head.Who > 0 {
		by := penalised[head.Who-1]
		if d = kit.Blamed(asks, out, by); d.Limit == nil {
			return d, badReply("%v, and no limit of that key refuses", head)
		}
		punish(&d, by.Penalty, &head)
	}
	return d, nil
}

func punish(d *stint.Decision, p *stint.Penalty, head *algo.Head) {
	kit.Punish(d, p, head.Punishment(kit.PenaltyPlan(p)))
}

// verdict reads the answer to an ask. before is how many identical ones were admitted earlier.
// Without a limit it allows.
func verdict(r *stint.Request, a *stint.Ask, s string, before int64, allowed bool) (v algo.Verdict, rest string, err error) {
	if a.Limit == nil {
		return algo.Verdict{Allowed: true}, s, nil
	}
	p := kit.Plan(a.Limit)
	if p.Held() {
		return heldVerdict(r, a, s, before, allowed)
	}
	if !p.Small() {
		if v, rest, err = algo.ReadVerdict(s); err != nil {
			return v, "", badReply("%w", err)
		}
		if v.Remaining > p.Capacity {
			return v, "", badReply("%d units left of %d", v.Remaining, p.Capacity)
		}
		return v, rest, nil
	}
	units := a.Units()
	view, rest, err := algo.ReadView(s)
	if err != nil {
		return v, "", badReply("%w", err)
	}
	if before > 0 && units > 0 {
		if units > p.Capacity || before > (p.Full-view.Used)/(units*p.Unit) {
			return v, "", badReply("%d admitted at %d used", before, view.Used)
		}
		view.Used += before * units * p.Unit
	}
	within := kit.PlanOf(a)
	if allowed && !within.Fits(&view, units) {
		return v, "", badReply("admitted at %d used", view.Used)
	}
	v = within.SettleSmall(&view, units, allowed)
	if within != p {
		v.Remaining = p.Left(&view) // as for callers that accept longer delays
	}
	return v, rest, nil
}

// readBan reads the answer to a request with penalties alone.
func (s *Store) readBan(reply string, penalised []*stint.Ask) (stint.Decision, error) {
	head, _, err := algo.ReadHead(reply)
	switch {
	case err != nil:
		return stint.Decision{}, badReply("%w", err)
	case !head.Names(len(penalised), 0):
		return stint.Decision{}, badReply("%v", head)
	case head.Result == algo.ResultBroken:
		return stint.Decision{}, s.broken(nil, penalised, head)
	case head.Result == algo.ResultRunning:
		return kit.Banned(penalised[head.Who-1], head.Left), nil
	}
	return stint.Decision{}, nil
}

// broken returns an error with the key whose value is not of this package.
func (s *Store) broken(asks []stint.Ask, penalised []*stint.Ask, head algo.Head) error {
	if why := unwritten[head.Left]; why != nil {
		return fmt.Errorf("redislimit: %w", markNotCharged(conn.Explain(why)))
	}
	var key string
	heldKey := head.Left >= brokenHolds
	if head.Who <= len(penalised) {
		a := penalised[head.Who-1]
		key = s.key(a.Key, a.Penalty.ID())
	} else {
		place := head.Who - 1 - len(penalised) // among those with a limit
		for i := range asks {
			if a := &asks[i]; a.Limit != nil {
				if place == 0 {
					key = s.countKey(a, heldKey)
				}
				place--
			}
		}
	}
	return brokenKey(key, head.Left == 1 || head.Left == brokenHolds)
}
