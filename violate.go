package stint

import (
	"context"
	"fmt"
)

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
	return Violate(ctx, l.store(), &Request{Asks: []Ask{{Key: key, Penalty: p}}})
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
