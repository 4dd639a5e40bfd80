package httplimit

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// Budget decides requests whose cost is known only when they end: the estimated cost is held
// while the handler runs, and the final cost is charged at the end (see stint.Spec.Hold).
// In-flight limits hold one unit until then.
//
//	tokens, running := stint.MustLimit("llm: 200000 per 1m fixed_window hold"), stint.MustLimit("llm: 4 in_flight")
//	decide := httplimit.Budget{
//		Asks: func(r *http.Request) ([]stint.Ask, error) {
//			key := r.Header.Get("X-Api-Key")
//			return []stint.Ask{{Key: key, Limit: tokens, Cost: 2000, Unit: "tokens"}, {Key: key, Limit: running}}, nil
//		},
//		CostAfter: func(r *httplimit.Response) (int64, bool) {
//			n, ok := r.JSON([]string{"usage", "total_tokens"})
//			total, isInt := n.(int64)
//			return total, ok && isInt
//		},
//		Usage: [][]string{{"usage", "total_tokens"}},
//	}.Decide()
type Budget struct {
	// Limiter decides. Like By, Budget asks a stint.Networked Store through its Fallback.
	// nil: a Limiter in memory.
	Limiter *stint.Limiter
	// Asks returns the asks of a request, with their costs as far as known. All are allowed
	// together or none. No asks: the request is unlimited. Headers and problem details name
	// the Unit of each. Asks must be given.
	Asks func(*http.Request) ([]stint.Ask, error)
	// CostAfter returns the final cost of a request under the held limits that are not in
	// flight. If it is not known, the held units are charged. nil: it is not known.
	CostAfter func(*Response) (cost int64, known bool)
	// Usage are the paths that CostAfter asks Response.JSON for.
	Usage [][]string
}

// units returns the Units of asks; nil: none has one.
func units(asks []stint.Ask) []string {
	if !slices.ContainsFunc(asks, func(a stint.Ask) bool { return a.Unit != "" }) {
		return nil
	}
	all := make([]string, len(asks))
	for i := range asks {
		all[i] = asks[i].Unit
	}
	return all
}

// Decide returns the Decide of b. It panics without Asks. A charge that is lost is logged by
// slog.Default; one that the Limiter keeps and sends later is not.
func (b Budget) Decide() Decide {
	if b.Asks == nil {
		panic("httplimit: a Budget needs Asks")
	}
	if b.Limiter == nil {
		b.Limiter = new(stint.Limiter)
	}
	b.Limiter = stint.Internal(friend.Of{}).WithFallback(b.Limiter)
	return func(r *http.Request, _ time.Duration) (Answer, error) {
		asks, err := b.Asks(r)
		if err != nil || len(asks) == 0 {
			return Answer{Unlimited: err == nil}, err
		}
		request := stint.Request{Asks: asks, Hold: stint.NewHoldID()}
		each := make([]stint.Decision, len(asks))
		d, err := b.Limiter.Take(r.Context(), &request, each)
		if err != nil {
			return Answer{}, fmt.Errorf("budget: %w", err)
		}
		if !d.Allowed {
			if d.By == stint.ByInstance {
				return Answer{}, &Overloaded{RetryAfter: d.RetryAfter}
			}
			return Answer{Decision: d, Each: each, Units: units(asks)}, nil
		}
		held := stint.Internal(friend.Of{}).Keep(b.Limiter, &request, each, &d)
		a := Answer{Decision: d, Each: each, Units: units(asks), Usage: b.Usage}
		a.OnEnd = func(ctx context.Context, resp *Response) {
			if err := b.settle(ctx, held, resp); err != nil {
				slog.Default().Warn("httplimit: the final cost of a request could not be charged", "error", err)
			}
		}
		return a, nil
	}
}

func (b *Budget) settle(ctx context.Context, held *stint.Reservation, resp *Response) error {
	if b.CostAfter == nil {
		return held.Settle(ctx)
	}
	cost, known := b.CostAfter(resp)
	if !known {
		return held.Settle(ctx)
	}
	return held.Settle(ctx, max(0, cost))
}
