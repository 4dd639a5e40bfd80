package stint

import (
	"context"
	"errors"
	"fmt"
)

// Guard limits a function by a key made from its argument, as an annotation on a
// method does elsewhere:
//
//	guard := stint.Guard[int, User]{Limit: stint.MustLimit("5 per 10s"), Key: strconv.Itoa, Message: "slow down"}
//	loadUser := guard.Wrap(loadUserFromDatabase)
//	user, err := loadUser(ctx, 42)
//
// A is the function's argument, R its result. Limit and Key must be given. A
// Guard is read when Wrap is called and may be reused.
type Guard[A, R any] struct {
	// Limiter decides. nil: one in memory, for the functions of this Guard
	// that one call of Wrap returns.
	Limiter *Limiter
	Limit   *Limit
	// Key says whom or what a call counts for.
	Key func(A) string
	// Cost is how many units a call takes. nil: 1.
	Cost func(A) int64
	// Penalty is what becomes of keys that are refused; nil: nothing. It
	// cannot go with Wait, which refuses nobody.
	Penalty *Penalty
	// Message goes into the RefusedError.
	Message string
	// Wait makes calls wait for their turn rather than be refused; see
	// Limiter.WaitN.
	Wait bool
}

// Wrap returns f, limited. A call that is refused returns a *RefusedError and
// does not call f. A call that cannot be decided returns the Limiter's error and
// does not call f either. It panics if Limit or Key is missing, or if Penalty and
// Wait are both given.
func (g Guard[A, R]) Wrap(f func(context.Context, A) (R, error)) func(context.Context, A) (R, error) {
	if g.Limit == nil || g.Key == nil {
		panic("stint: a Guard needs a Limit and a Key")
	}
	if g.Wait && g.Penalty != nil {
		panic("stint: a Guard that waits cannot have a Penalty")
	}
	if g.Limiter == nil {
		g.Limiter = new(Limiter)
	}
	return func(ctx context.Context, a A) (R, error) {
		if err := g.pass(ctx, a); err != nil {
			var none R
			return none, err
		}
		return f(ctx, a)
	}
}

func (g *Guard[A, R]) pass(ctx context.Context, a A) error {
	ask := Ask{Key: g.Key(a), Limit: g.Limit, Cost: 1, Penalty: g.Penalty}
	if g.Cost != nil {
		ask.Cost = g.Cost(a)
	}
	if g.Wait {
		err := g.Limiter.WaitN(ctx, ask.Key, ask.Limit, ask.Cost)
		var refused *RefusedError
		if errors.As(err, &refused) {
			refused.Message = g.Message
		}
		return err
	}
	d, err := g.Limiter.Take(ctx, &Request{Asks: []Ask{ask}}, nil)
	if err != nil {
		return fmt.Errorf("limit %s: %w", g.Limit, err)
	}
	if !d.Allowed {
		return &RefusedError{Decision: d, Message: g.Message}
	}
	return nil
}
