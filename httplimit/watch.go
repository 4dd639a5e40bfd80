package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// Watch decides like d, and also counts responses with the given statuses as violations
// of the key under the penalty p: 401 to ban clients that guess passwords, 404 to ban
// scanners. While a ban runs, it refuses the key's requests. It does not watch requests
// whose key is "". A nil d: only bans refuse, and no headers are set. A nil l: a Limiter in
// memory. It panics without key, p or statuses. It asks l as By does.
//
//	decide := httplimit.Watch(nil, &limiter, clients.Key, penalty, http.StatusUnauthorized)
//
// Each request costs a call of the store before those of d. Each violation costs another
// while the response waits; if it fails, the violation is lost.
func Watch(d Decide, l *stint.Limiter, key Key, p *stint.Penalty, statuses ...int) Decide {
	if key == nil || p == nil || len(statuses) == 0 {
		panic("httplimit: Watch needs a key, a penalty and statuses")
	}
	if d == nil {
		d = func(*http.Request, time.Duration) (Answer, error) { return Answer{Unlimited: true}, nil }
	}
	if l == nil {
		l = new(stint.Limiter)
	}
	l = stint.Internal(friend.Of{}).WithFallback(l)
	return func(r *http.Request, maxDelay time.Duration) (Answer, error) {
		k := key(r)
		if k == "" {
			return d(r, maxDelay)
		}
		ban, err := l.Take(r.Context(), &stint.Request{Asks: []stint.Ask{{Key: k, Penalty: p}}}, nil)
		if err != nil {
			return Answer{}, fmt.Errorf("penalty %s: %w", p.Spec().Name, err)
		}
		if !ban.Allowed {
			return Answer{Decision: ban}, nil
		}
		a, err := d(r, maxDelay)
		before := a.OnStatus
		a.OnStatus = func(ctx context.Context, status int) {
			if before != nil {
				before(ctx, status)
			}
			if slices.Contains(statuses, status) {
				_, _ = l.Violate(ctx, k, p) // nobody could handle the error
			}
		}
		return a, err
	}
}
