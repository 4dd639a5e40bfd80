package redislimit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

var violateScript = conn.NewScript(algo.ViolateScript)

// Violate implements stint.Violator, in one round trip. If its keys lie in several slots of
// a Cluster, one round trip looks for bans, and then one for each slot counts, all at the
// same time; if one of these fails, violations counted by the others stay.
func (s *Store) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	if !s.conn.Cluster() || oneSlot(r) {
		return s.violate(ctx, r)
	}
	parts := split(r)
	if ban, err := s.findBan(ctx, parts); err != nil || ban.BanLeft > 0 {
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

func (s *Store) violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	b := batch{at: r.At}
	_, penalised := penalties(r.Asks)
	s.addPenalties(&b, penalised, 0)
	var times []byte
	for _, a := range penalised {
		times = binary.BigEndian.AppendUint32(times, uint32(min(max(a.Cost, 1), 1<<31)))
	}
	reply, err := s.conn.EvalArgs(ctx, violateScript, append(b.command(violateScript), string(times)))
	if err != nil {
		return stint.Decision{}, fmt.Errorf("redislimit: violate: %w", err)
	}
	text, _ := reply.(string)
	head, _, err := algo.ReadHead(text)
	switch {
	case err != nil:
		return stint.Decision{}, fmt.Errorf("redislimit: violate: %w", err)
	case !head.Names(len(penalised), 0) || head.Result == algo.ResultAllowed:
		return stint.Decision{}, badReply("%v", head)
	case head.Result == algo.ResultBroken:
		return stint.Decision{}, s.broken(nil, penalised, head)
	case head.Result == algo.ResultRunning:
		return kit.Banned(penalised[head.Who-1], head.Left), nil
	}
	by := penalised[max(1, head.Who)-1]
	d := stint.Decision{Outcome: stint.Limited, Key: by.Key}
	punish(&d, by.Penalty, &head)
	return d, nil
}
