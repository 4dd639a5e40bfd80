package stint

import (
	"context"
	"reflect"
	"runtime"
)

// Guarded is a function that a Guard limits, with access to what is stored about its
// callers:
//
//	users := guard.For(loadUserFromDatabase)
//	user, err := users.Call(ctx, 42)
//	...
//	found, err := users.Pardon(stint.WithSubject(ctx, "ann"), 42)
//
// Guard.For makes it. Its methods find the caller in the context and the argument, as Guard.Key does.
// They return an error that wraps ErrRequest if the caller is not known and Guard.Anonymous refuses
// such calls; under AnonymousAllow they change nothing. It may be used from many goroutines at once.
type Guarded[A, R any] struct {
	guard *guarded[A, R]
	f     func(context.Context, A) (R, error)
}

// For returns f, limited as by Wrap. f may be nil if g has a Name: for Do, and for a program that
// inspects the callers of another one. For panics if both are missing, and where Wrap does.
func (g Guard[A, R]) For(f func(context.Context, A) (R, error)) *Guarded[A, R] {
	var function string
	switch {
	case f != nil:
		function = runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	case g.Name == "":
		panic("stint: a Guard without a function needs a Name")
	}
	return &Guarded[A, R]{guard: g.prepare(function), f: f}
}

// Call calls the function, limited like that of Wrap. If there is none, it panics and charges nothing.
func (g *Guarded[A, R]) Call(ctx context.Context, a A) (R, error) {
	if g.f == nil {
		panic("stint: Call of a Guarded without a function: use Do")
	}
	return g.guard.call(ctx, a, g.f)
}

// Do calls a part of a function, limited like that of Inline.
func (g *Guarded[A, R]) Do(ctx context.Context, a A, call func(context.Context) (R, error)) (R, error) {
	return g.guard.call(ctx, a, func(ctx context.Context, _ A) (R, error) { return call(ctx) })
}

// Name is the Guard's Name, or the function's.
func (g *Guarded[A, R]) Name() string { return g.guard.Name }

// Key returns the key of a call in the Store, such as "loadUser:subject=ann": the Name, with colons as
// %3A and percent signs as %25, then a colon and the Guard's Key. Limiter.Pardon and other methods of
// the Limiter take this key, and Decision.Key and lists of bans show it. "": the call is not counted.
func (g *Guarded[A, R]) Key(ctx context.Context, a A) (string, error) { return g.guard.key(ctx, a) }

// Peek returns how the caller stands under the limits, as Limiter.Peek does: of several, under the one
// with the least Remaining. It ignores bans; see Record.
func (g *Guarded[A, R]) Peek(ctx context.Context, a A) (Decision, error) {
	key, err := g.guard.key(ctx, a)
	switch {
	case err != nil:
		return Decision{}, err
	case key == "":
		return Decision{Allowed: true, Outcome: Allowed, By: ByPolicy}, nil
	}
	r := Request{Asks: make([]Ask, 0, len(g.guard.limits))}
	for _, l := range g.guard.limits {
		r.Asks = append(r.Asks, Ask{Key: key, Limit: l, Peek: true, OnError: g.guard.OnError})
	}
	return g.guard.Limiter.Take(ctx, &r, nil)
}

// Record returns the violations and the ban of the caller under the Guard's Penalty, as Limiter.Record
// does. Without a Penalty, the error wraps ErrRequest.
func (g *Guarded[A, R]) Record(ctx context.Context, a A) (Record, error) {
	key, err := g.guard.key(ctx, a)
	if key == "" {
		return Record{}, err
	}
	return g.guard.Limiter.Record(ctx, key, g.guard.Penalty)
}

// Pardon forgets the violations of the caller under the Guard's Penalty and lifts the ban, as
// Limiter.Pardon does. found says whether there was anything to forget. Without a Penalty, the error wraps
// ErrRequest.
func (g *Guarded[A, R]) Pardon(ctx context.Context, a A) (found bool, err error) {
	key, err := g.guard.key(ctx, a)
	if key == "" {
		return false, err
	}
	return g.guard.Limiter.Pardon(ctx, key, g.guard.Penalty)
}

// Reset makes the caller as if unused under all limits, as Limiter.Reset does. A ban stays; see Pardon.
func (g *Guarded[A, R]) Reset(ctx context.Context, a A) error {
	key, err := g.guard.key(ctx, a)
	if key == "" {
		return err
	}
	return g.guard.Limiter.Reset(ctx, key, g.guard.limits...)
}
