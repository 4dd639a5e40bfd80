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

// defaultLimit is the limit where none is given, of package httplimit, too. It is meant for
// one user or client: more than a person does by hand and a page loads, less than a script
// that tries things or an endless loop.
var defaultLimit = MustLimit("100 per 1m")

// Guard limits a function, as an annotation on a method does elsewhere:
//
//	guard := stint.Guard[int, User]{Limit: stint.MustLimit("load: 5 per 10s"), Message: "slow down"}
//	loadUser := guard.Wrap(loadUserFromDatabase)
//	user, err := loadUser(stint.WithSubject(ctx, "ann"), 42)
//
// A is the function's argument, R its result. The zero Guard limits each caller to
// 100 per 1m, in memory. A Guard is read when Wrap is called and may be reused.
//
// If its Store is Networked, a Guard uses the Store's fallback: while the store is away,
// OnError decides, within the fallback's deadline. Put a fleet.Fallback around a Store of
// your own that may hang.
type Guard[A, R any] struct {
	// Name tells the counts of this Guard from those of others under the same Limit:
	// Guards of one Name share them. "": the name of the function, such as
	// "example.com/shop.loadUser". Give a Name if the function is a closure, whose name
	// changes with the code around it, or in package main, for other programs may have
	// one of that name: if Name and the Limit's are empty and the Store is no Memory,
	// Wrap logs a warning.
	Name string
	// Limiter decides. nil: each function that Wrap returns has one of its own, in
	// memory.
	Limiter *Limiter
	// Limit is how often. nil: 100 per 1m.
	Limit *Limit
	// Key is the key that a call counts for. nil: the Caller of the context.
	Key func(ctx context.Context, a A) string
	// Anonymous says what becomes of calls whose key is "". The zero Anonymous refuses them: to
	// limit all calls of the function together, set AnonymousShare.
	Anonymous Anonymous
	// Cost is how many units a call takes; 0 takes none. nil: 1.
	Cost func(a A) int64
	// CostAfter is what a call did cost, by its argument, result and error: units that are
	// charged when the function has returned, in place of the Cost, which is held until then
	// as an estimate. Less than 0 counts as 0. It needs a Limit that is held (Spec.Hold) and
	// not InFlight. nil: the Cost. If the function panics, the Cost is charged.
	//
	// A Limit that is held holds the Cost while the function runs, with or without a
	// CostAfter: an InFlight one limits how many calls run at once.
	CostAfter func(a A, r R, err error) int64
	// Penalty says how keys are punished that are refused. nil: not at all. It cannot
	// go with Wait, which refuses no call.
	Penalty *Penalty
	// OnError says how a call is decided that the Store does not decide. The zero
	// OnError is OnErrorLocal: by this instance's share of the Limit, see
	// fleet.Fallback. OnErrorAllow: the function is called. OnErrorDeny: the error is
	// returned. Only OnErrorLocal can go with Wait.
	OnError OnError
	// Enabled is called at each call, from many goroutines at once. If it returns
	// false, the function is called and nothing is counted. nil: enabled.
	Enabled func() bool
	// Message is that of the RefusedError, for the caller who is refused.
	Message string
	// Wait makes calls wait for their turn rather than be refused; see
	// Limiter.WaitN and Limiter.ReserveWait.
	Wait bool
}

// Wrap returns f, limited. A call that is refused returns a *RefusedError and
// does not call f. A call that cannot be decided returns the Limiter's error and
// does not call f either, unless OnError says otherwise. It panics if f is nil, if
// Wait goes with a Penalty or with an OnError that it cannot go with, or if CostAfter
// goes with a Limit that it cannot go with.
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
	if g.CostAfter != nil && (!g.Limit.IsHeld() || g.Limit.spec.Algorithm == InFlight) {
		panic("stint: a Guard with a CostAfter needs a Limit that is held, such as 1000 per 1h fixed_window hold, and limit " + g.Limit.String() + " is not")
	}
	if g.Key == nil {
		g.Key = func(ctx context.Context, _ A) string { return Caller(ctx) }
	}
	if g.Limiter == nil {
		g.Limiter = new(Limiter)
	}
	if unnamed && g.Limit.spec.Name == "" && g.Limiter.mayBeShared() && isAmbiguous(g.Name) {
		slog.Default().Warn("stint: a Guard without a Name counts together with each function of that name, in other programs and versions too: set its Name, or name its Limit",
			"function", g.Name, "limit", g.Limit.Terms())
	}
	g.Limiter = Internal().WithFallback(g.Limiter)
	// The length goes first, so that no two pairs of name and key are equal.
	prefix := strconv.Itoa(len(g.Name)) + ":" + g.Name + ":"
	var undecidedLine logline.Line
	return func(ctx context.Context, a A) (R, error) {
		if g.Enabled == nil || g.Enabled() {
			held, err := g.pass(ctx, prefix, a)
			if err != nil && g.OnError == OnErrorAllow && undecided(ctx, err) {
				undecidedLine.Log(slog.LevelWarn, "stint: the store does not decide, so OnError does", err)
				err = nil
			}
			if err != nil {
				var none R
				return none, err
			}
			if held != nil {
				return g.settle(ctx, held, a, f)
			}
		}
		return f(ctx, a)
	}
}

// settle calls f and settles what it did cost.
func (g *Guard[A, R]) settle(ctx context.Context, held *Reservation, a A, f func(context.Context, A) (R, error)) (r R, err error) {
	var cost []int64
	defer func() {
		if err := held.Settle(ctx, cost...); err != nil {
			held.log(err)
		}
	}()
	r, err = f(ctx, a)
	if g.CostAfter != nil {
		cost = []int64{max(0, g.CostAfter(a, r, err))}
	}
	return r, err
}

// mayBeShared tells whether others may count in l's Store.
func (l *Limiter) mayBeShared() bool {
	_, own := As[*Memory](l.Store)
	return l.Store != nil && !own
}

// isAmbiguous tells whether a function of another program, or another function of another
// version of this one, may have the name of function.
func isAmbiguous(function string) bool {
	return strings.HasPrefix(function, "main.") || closure.MatchString(function)
}

// closure matches what the compiler puts into the name of a closure.
var closure = regexp.MustCompile(`\.func\d`)

// pass lets a call pass, or returns why not. The Reservation is nil if nothing is held.
func (g *Guard[A, R]) pass(ctx context.Context, prefix string, a A) (*Reservation, error) {
	key, err := g.Anonymous.key(g.Key(ctx, a))
	if err != nil {
		return nil, fmt.Errorf("limit %s: %w", g.Limit, err)
	}
	if key == "" {
		return nil, nil
	}
	ask := Ask{Key: prefix + key, Limit: g.Limit, Penalty: g.Penalty, OnError: g.OnError}
	if g.Cost != nil {
		Internal().SetUnits(&ask, g.Cost(a))
	}
	if g.Wait {
		held, err := g.Limiter.wait(ctx, &ask, g.Limit.IsHeld())
		var refused *RefusedError
		if errors.As(err, &refused) {
			refused.Message = g.Message
		}
		return held, err
	}
	held, d, err := g.Limiter.take(ctx, &ask)
	if err != nil {
		return nil, fmt.Errorf("limit %s: %w", g.Limit, err)
	}
	if !d.Allowed {
		return nil, &RefusedError{Decision: d, Message: g.Message}
	}
	return held, nil
}

// take decides a request of one ask, and holds its units if its limit is held.
func (l *Limiter) take(ctx context.Context, ask *Ask) (held *Reservation, d Decision, err error) {
	r := Request{Asks: []Ask{*ask}}
	if ask.Limit.IsHeld() {
		return l.Reserve(ctx, &r)
	}
	d, err = l.Take(ctx, &r, nil)
	return nil, d, err
}

// undecided tells whether err is the Store's, and neither a refusal nor the caller's own.
func undecided(ctx context.Context, err error) bool {
	var refused *RefusedError
	return ctx.Err() == nil && !errors.Is(err, ErrRequest) && !errors.As(err, &refused)
}

type (
	subjectKey struct{}
	clientKey  struct{}
)

// WithSubject returns a copy of ctx that holds on whose behalf something is done, such as
// the ID of the user who logged in. A Guard without a Key counts by it. "" holds nobody.
// The subject is stored as part of the key: hash it if it is secret.
func WithSubject(ctx context.Context, subject string) context.Context {
	return context.WithValue(ctx, subjectKey{}, subject)
}

// WithClient returns a copy of ctx that holds the address that a request came from, as the
// text that it counts by. httplimit.Middleware calls it if its Clients are set. A Guard
// without a Key counts by it if there is no subject. "" holds no address.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// Caller is the key of a Guard without a Key: "subject=" and the subject of WithSubject, else
// "client=" and the address of WithClient, else "". So no subject can pass for a client. A
// Key of your own may add to it, such as the argument of the call.
func Caller(ctx context.Context) string {
	if s, _ := ctx.Value(subjectKey{}).(string); s != "" {
		return "subject=" + s
	}
	if c, _ := ctx.Value(clientKey{}).(string); c != "" {
		return "client=" + c
	}
	return ""
}
