package stint

import (
	"context"
	"fmt"
)

// Violator is a Store that takes violations which the caller has found, such as a
// response of 401: for each ask, one violation of Key under Penalty, which must
// not be nil; Limit is not looked at, and a Cost of n, from 2 on, is n violations one
// after another at one instant, of which those after a ban do not count. Of asks that
// share Key and Penalty, the first counts. Where a ban of one of them runs already,
// that ban answers for all and nothing is counted. The Decision is as
// told with Limiter.Violate; its Key is that of the longest ban, else of the
// gravest sentence, and of equals that of the ask that comes first.
type Violator interface {
	Violate(ctx context.Context, r *Request) (Decision, error)
}

// Violate counts a violation of key under p that the caller has found, as if a
// limit had refused. The Decision says what came of it: its Outcome is Limited,
// Warned or Banned, and where key is banned, now or already, BanLeft, RetryAfter
// and Penalty are those of the ban. Limit is nil, and the numbers of limits are
// 0. A violation that no room is left to remember is Limited. The error wraps
// ErrUnsupported where the Store cannot do it.
func (l *Limiter) Violate(ctx context.Context, key string, p *Penalty) (Decision, error) {
	if err := checkPunished(key, p); err != nil {
		return Decision{}, err
	}
	return powers{l.store()}.violate(ctx, &Request{Asks: []Ask{{Key: key, Penalty: p}}})
}

// checkPunished is the check of a key and its penalty where there is no limit.
func checkPunished(key string, p *Penalty) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if p == nil || p.id == "" {
		return fmt.Errorf("stint: %w: no penalty (make one with NewPenalty)", ErrRequest)
	}
	return nil
}

// Violate implements Violator.
func (m *Memory) Violate(_ context.Context, r *Request) (Decision, error) {
	m.init()
	var few [fewAsks]uint64
	defer m.unlock(m.lock(r, few[:0]))
	now := m.now(r)
	if d, _ := m.banned(r, now); d.BanLeft > 0 {
		return d, nil
	}
	d := Decision{Outcome: Limited, Key: r.Asks[0].Key}
	for i := range r.Asks {
		if !isFirst(r, i) {
			continue
		}
		if a := &r.Asks[i]; m.violate(r, a, max(1, a.Cost), now, &d) {
			d.Key = a.Key
		}
	}
	return d, nil
}
