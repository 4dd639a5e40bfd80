package rpclimit

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/friend"
)

// Budget decides calls whose cost is known only when they end: the estimated cost is held while
// a call runs, and the final cost is charged at the end (see stint.Spec.Hold). In-flight limits
// hold one unit until then.
//
//	tokens, running := stint.MustLimit("llm: 200000 per 1m fixed_window hold"), stint.MustLimit("llm: 4 in_flight")
//	decide := rpclimit.Budget{
//		Asks: func(ctx context.Context, c *rpclimit.Call) ([]stint.Ask, error) {
//			user := rpclimit.Caller(ctx, c)
//			return []stint.Ask{{Key: user, Limit: tokens, Cost: 2000}, {Key: user, Limit: running}}, nil
//		},
//		CostAfter: func(e *rpclimit.End) (int64, bool) {
//			last, ok := e.Last.(*llmpb.Completion)
//			return last.GetUsage().GetTotalTokens(), ok
//		},
//	}.Decide()
type Budget struct {
	// Limiter decides. Like By, Budget asks a stint.Networked Store through its Fallback.
	// nil: a Limiter in memory.
	Limiter *stint.Limiter
	// Asks returns the asks of a call, with their costs as far as known. All are allowed
	// together or none. No asks: the call is unlimited. Asks must be given.
	Asks func(context.Context, *Call) ([]stint.Ask, error)
	// CostAfter returns the final cost of a call under the held limits that are not in flight.
	// If it is not known, the held units are charged. nil: it is not known.
	CostAfter func(*End) (cost int64, known bool)
}

// Decide returns the Decide of b. It panics without Asks. A charge that is lost is logged by
// slog.Default; one that the Limiter keeps and sends later is not.
func (b Budget) Decide() Decide {
	if b.Asks == nil {
		panic("rpclimit: a Budget needs Asks")
	}
	if b.Limiter == nil {
		b.Limiter = new(stint.Limiter)
	}
	b.Limiter = stint.Internal(friend.Of{}).WithFallback(b.Limiter)
	return func(ctx context.Context, c *Call, _ time.Duration) (Answer, error) {
		asks, err := b.Asks(ctx, c)
		if err != nil || len(asks) == 0 {
			return Answer{Unlimited: err == nil}, err
		}
		request := stint.Request{Asks: asks, Hold: stint.NewHoldID()}
		each := make([]stint.Decision, len(asks))
		d, err := b.Limiter.Take(ctx, &request, each)
		if err != nil {
			return Answer{}, fmt.Errorf("budget: %w", err)
		}
		if !d.Allowed {
			if d.By == stint.ByInstance {
				return Answer{}, &httplimit.Overloaded{RetryAfter: d.RetryAfter}
			}
			return Answer{Decision: d, Each: each}, nil
		}
		held := stint.Internal(friend.Of{}).Keep(b.Limiter, &request, each, &d)
		return Answer{Decision: d, Each: each, OnEnd: func(ctx context.Context, e *End) {
			if err := b.settle(ctx, held, e); err != nil {
				slog.Default().Warn("rpclimit: the final cost of a call could not be charged", "error", err)
			}
		}}, nil
	}
}

func (b *Budget) settle(ctx context.Context, held *stint.Reservation, e *End) error {
	if b.CostAfter == nil {
		return held.Settle(ctx)
	}
	cost, known := b.CostAfter(e)
	if !known {
		return held.Settle(ctx)
	}
	return held.Settle(ctx, max(0, cost))
}

// Watch decides like d, and also counts calls that end with one of the codes as violations of the
// key under the penalty p: code.Code_UNAUTHENTICATED to ban clients that guess passwords. While a
// ban runs, it refuses the key's calls. It does not watch calls whose key is "". A nil d: only bans
// refuse, and no metadata is sent. A nil l: a Limiter in memory. It panics without key, p or codes.
// It asks l as By does. It watches calls, not messages.
//
// Each call costs a call of the store before those of d. Each violation costs another while the end
// of the call waits; if it fails, the violation is lost.
func Watch(d Decide, l *stint.Limiter, key Key, p *stint.Penalty, codes ...code.Code) Decide {
	if key == nil || p == nil || len(codes) == 0 {
		panic("rpclimit: Watch needs a key, a penalty and codes")
	}
	if d == nil {
		d = func(context.Context, *Call, time.Duration) (Answer, error) { return Answer{Unlimited: true}, nil }
	}
	if l == nil {
		l = new(stint.Limiter)
	}
	l = stint.Internal(friend.Of{}).WithFallback(l)
	return func(ctx context.Context, c *Call, maxDelay time.Duration) (Answer, error) {
		k := key(ctx, c)
		if k == "" {
			return d(ctx, c, maxDelay)
		}
		ban, err := l.Take(ctx, &stint.Request{Asks: []stint.Ask{{Key: k, Penalty: p}}}, nil)
		if err != nil {
			return Answer{}, fmt.Errorf("penalty %s: %w", p.Spec().Name, err)
		}
		if !ban.Allowed {
			return Answer{Decision: ban}, nil
		}
		a, err := d(ctx, c, maxDelay)
		before := a.OnEnd
		a.OnEnd = func(ctx context.Context, e *End) {
			if before != nil {
				before(ctx, e)
			}
			if slices.Contains(codes, e.Code) {
				_, _ = l.Violate(ctx, k, p) // nobody could handle the error
			}
		}
		return a, err
	}
}
