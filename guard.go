package stint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/stintdev/stint/internal/logline"
)

// DefaultLimit is the limit of a Guard, and of httplimit.By and httplimit.Middleware,
// where none is given. It is meant for one user or client: more than a person does by
// hand and a page loads, less than a script that tries things or an endless loop.
const DefaultLimit = "100 per 1m"

var defaultLimit = MustLimit(DefaultLimit)

// Guard limits a function, as an annotation on a method does elsewhere:
//
//	guard := stint.Guard[int, User]{Limit: stint.MustLimit("load: 5 per 10s"), Message: "slow down"}
//	loadUser := guard.Wrap(loadUserFromDatabase)
//	user, err := loadUser(stint.WithSubject(ctx, "ann"), 42)
//
// A is the function's argument, R its result. The zero Guard limits each caller to
// DefaultLimit, in memory. A Guard is read when Wrap is called and may be reused.
//
// Where its Store is Networked, a Guard asks it through its Fallback: while the store is
// away, calls are decided by OnError within the Fallback's deadline. A Store of your
// own that may hang needs a Fallback around it.
type Guard[A, R any] struct {
	// Name tells the counts of this Guard from those of others under the same
	// Limit: Guards of one Name share them. "": the name of the function, such as
	// "example.com/shop.loadUser". Name a closure, whose name changes with the code around
	// it, and a function of package main, which other programs may have as well: where
	// neither it nor the Limit has a name and the Store is not a Memory, Wrap logs a
	// warning.
	Name string
	// Limiter decides. nil: one in memory, for the function that one call of Wrap
	// returns.
	Limiter *Limiter
	// Limit is how often. nil: DefaultLimit.
	Limit *Limit
	// Key says whom or what a call counts for; all calls with "" count as one. nil:
	// Subject of the context, else its Client, else "".
	Key func(ctx context.Context, a A) string
	// Cost is how many units a call takes; 0 takes none. nil: 1.
	Cost func(a A) int64
	// Penalty is what becomes of keys that are refused; nil: nothing. It
	// cannot go with Wait, which refuses nobody.
	Penalty *Penalty
	// OnError says what becomes of a call that the Store does not decide. The zero
	// OnError is OnErrorLocal: this instance's share of the Limit, see Fallback.
	// OnErrorAllow: the function is called. OnErrorDeny: the error is returned. Only
	// OnErrorLocal can go with Wait.
	OnError OnError
	// Enabled is asked at each call, from many goroutines at once; where it says
	// false, the function is called without asking or counting. nil: enabled.
	Enabled func() bool
	// Message goes into the RefusedError.
	Message string
	// Wait makes calls wait for their turn rather than be refused; see
	// Limiter.WaitN.
	Wait bool
}

// Wrap returns f, limited. A call that is refused returns a *RefusedError and
// does not call f. A call that cannot be decided returns the Limiter's error and
// does not call f either, unless OnError says otherwise. It panics if f is nil, or if
// Wait goes with a Penalty or with an OnError that it cannot go with.
func (g Guard[A, R]) Wrap(f func(context.Context, A) (R, error)) func(context.Context, A) (R, error) {
	switch {
	case f == nil:
		panic("stint: a Guard needs a function")
	case g.Wait && g.Penalty != nil:
		panic("stint: a Guard that waits cannot have a Penalty")
	case g.Wait && g.OnError != OnErrorLocal:
		panic("stint: a Guard that waits goes on by the local share: its OnError must be OnErrorLocal")
	}
	unnamed := g.Name == ""
	if unnamed {
		g.Name = runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	}
	if g.Limit == nil {
		g.Limit = defaultLimit
	}
	if g.Key == nil {
		g.Key = func(ctx context.Context, _ A) string { return callerOf(ctx) }
	}
	if g.Limiter == nil {
		g.Limiter = new(Limiter)
	}
	if unnamed && g.Limit.Name() == "" && g.Limiter.mayBeShared() && isAmbiguous(g.Name) {
		slog.Default().Warn("stint: a Guard without a Name counts together with each function of that name, in other programs and versions too: set its Name, or name its Limit",
			"function", g.Name, "limit", g.Limit.Terms())
	}
	g.Limiter = g.Limiter.WithFallback()
	// The length goes first, so that no two names and keys come to the same.
	prefix := strconv.Itoa(len(g.Name)) + ":" + g.Name + ":"
	var undecidedLine logline.Line
	return func(ctx context.Context, a A) (R, error) {
		if g.Enabled == nil || g.Enabled() {
			err := g.pass(ctx, prefix+g.Key(ctx, a), a)
			if err != nil && g.OnError == OnErrorAllow && undecided(ctx, err) {
				undecidedLine.Log(slog.LevelWarn, "stint: the store does not decide, so OnError does", err)
				err = nil
			}
			if err != nil {
				var none R
				return none, err
			}
		}
		return f(ctx, a)
	}
}

// mayBeShared tells whether others may count in l's Store.
func (l *Limiter) mayBeShared() bool {
	_, own := l.Store.(*Memory)
	return l.Store != nil && !own
}

// isAmbiguous tells whether a function of another program, or another function of another
// version of this one, may have the name of function.
func isAmbiguous(function string) bool {
	return strings.HasPrefix(function, "main.") || closure.MatchString(function)
}

// closure matches what the compiler puts into the name of a closure.
var closure = regexp.MustCompile(`\.func\d`)

func (g *Guard[A, R]) pass(ctx context.Context, key string, a A) error {
	ask := Ask{Key: key, Limit: g.Limit, Penalty: g.Penalty, OnError: g.OnError}
	if g.Cost != nil {
		ask.SetUnits(g.Cost(a))
	}
	if g.Wait {
		err := g.Limiter.WaitN(ctx, ask.Key, ask.Limit, ask.Units())
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

// undecided tells whether err is the Store's, and neither a refusal nor the caller's own.
func undecided(ctx context.Context, err error) bool {
	var refused *RefusedError
	return ctx.Err() == nil && !errors.Is(err, ErrRequest) && !errors.As(err, &refused)
}
