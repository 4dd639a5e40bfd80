package stint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/stintdev/stint/internal/logline"
	"github.com/stintdev/stint/internal/message"
)

// Guard limits a function, as an annotation on a method does elsewhere:
//
//	guard := stint.Guard[int, User]{Limit: stint.MustLimit("load: 5 per 10s"), Message: "slow down"}
//	loadUser := guard.Wrap(loadUserFromDatabase)
//	user, err := loadUser(stint.WithSubject(ctx, "ann"), 42)
//
// A is the function's argument, R its result. The zero Guard limits each caller to
// 100 per 1m, in memory. A Guard is read when Wrap is called and may be reused.
//
// If its Store is Networked, a Guard uses the Store's fallback: while the store does not
// answer, OnError decides, within the fallback's deadline. Put a fleet.Fallback around a
// Store of your own that may hang.
type Guard[A, R any] struct {
	// Name separates the counts of this Guard from those of others under the same Limit:
	// Guards with the same Name share them. "": the name of the function, such as
	// "example.com/shop.Cart.Load", and in package main "Cart.Load", whether the receiver
	// is a pointer or not. All instances of a generic function have one name. Give a Name
	// if the function is a closure, whose name changes with the code around it, or is in
	// package main, because another program may have a function of that name: if Name and
	// the Limit's are empty and the Store is not a Memory, Wrap logs a warning.
	Name string
	// Limiter decides. nil: each function that Wrap returns has its own, in memory.
	Limiter *Limiter
	// Limit is the limit of each key. nil: 100 per 1m.
	Limit *Limit
	// More are further limits of the same key, such as one per hour beside one per second. A
	// call is charged under all limits or under none.
	More []*Limit
	// Key returns the key of a call. nil: the Caller of the context. In the Store, the Name
	// precedes it; see Guarded.Key.
	Key func(ctx context.Context, a A) string
	// Anonymous says what happens to calls whose key is "". The zero Anonymous refuses them: to
	// limit all calls of the function together, set AnonymousShare.
	Anonymous Anonymous
	// Cost returns how many units a call takes; 0 takes none. nil: 1. If there are More limits,
	// an InFlight one counts each call once.
	Cost func(a A) int64
	// CostAfter returns the final cost of a call, from its argument, result and error: the
	// units to charge when the function has returned, in place of the Cost, which is held
	// until then as an estimate. Less than 0 counts as 0. It needs a limit that is held
	// (Spec.Hold) and not InFlight. nil: the Cost. If the function panics, the Cost is
	// charged.
	//
	// A held limit holds the Cost while the function runs, with or without a CostAfter: an
	// InFlight one limits how many calls run at once.
	CostAfter func(a A, r R, err error) int64
	// Penalty says how refused keys are punished. nil: not at all. It cannot be combined
	// with Wait, which refuses no call.
	Penalty *Penalty
	// OnError says how to decide a call that the Store does not decide. The zero OnError is that of
	// the Limiter, else OnErrorLocal: by this instance's share of the Limit, see fleet.Fallback.
	// OnErrorAllow: the function is called. OnErrorDeny: the error is returned. Only OnErrorLocal
	// can be combined with Wait.
	OnError OnError
	// Enabled is called at each call, from many goroutines at once. If it returns
	// false, the function is called and nothing is counted. nil: enabled.
	Enabled func() bool
	// Message is the RefusedError's Message for the refused caller. Messages has texts for single
	// outcomes, which replace it. A text may contain {retry_after}, {ban_left}, {limit},
	// {violations}, {warn_after} and {ban_after}; {{ and }} are braces. Times are written as 12m 5s,
	// or as 12 分钟 5 秒 in a text with Chinese letters and no Japanese or Korean ones.
	Message  string
	Messages Messages
	// Fallback answers in place of the function if a call is refused or cannot be decided,
	// for example from a cache. why is the error that the caller would get: a *RefusedError,
	// or why nothing could be decided. nil: the caller gets the error.
	Fallback func(ctx context.Context, a A, why error) (R, error)
	// Wait makes calls wait for their turn rather than be refused; see
	// Limiter.WaitN and Limiter.ReserveWait.
	Wait bool
}

// Messages are the texts of a Guard for the outcomes Limited, Warned and Banned. "": the Guard's
// Message.
type Messages struct {
	Limited, Warned, Banned string
	// StillBanned is for calls during a ban; Banned is for the call that caused it. "": Banned.
	StillBanned string
}

// Wrap returns f, limited. A call that is refused returns a *RefusedError and
// does not call f. A call that cannot be decided returns the Limiter's error and
// does not call f either, unless OnError says otherwise. It panics if f is nil, if Wait is
// combined with a Penalty or an OnError other than OnErrorLocal, if CostAfter has no limit
// that it can settle, or if a text contains an unknown placeholder.
func (g Guard[A, R]) Wrap(f func(context.Context, A) (R, error)) func(context.Context, A) (R, error) {
	if f == nil {
		panic("stint: a Guard needs a function")
	}
	return g.For(f).Call
}

// Inline returns a function that limits a part of any function, which passes that part as call.
// The Guard needs a Name. Inline panics without one, and where Wrap does.
//
//	var load = stint.Guard[int, User]{Name: "load", Limit: stint.MustLimit("load: 5 per 10s")}.Inline()
//
//	func (s *Shop) Load(ctx context.Context, id int, deep bool) (u User, err error) {
//		return load(ctx, id, func(ctx context.Context) (User, error) { return s.db.Load(ctx, id, deep) })
//	}
func (g Guard[A, R]) Inline() func(ctx context.Context, a A, call func(context.Context) (R, error)) (R, error) {
	if g.Name == "" {
		panic("stint: a Guard that is used inline needs a Name")
	}
	return g.For(nil).Do
}

// guarded is a Guard prepared for calls.
type guarded[A, R any] struct {
	Guard[A, R]
	prefix    string   // of keys
	limits    []*Limit // all of them
	holds     bool     // one of them is held
	texts     [stillBanned + 1]message.Template
	undecided logline.Line
}

// stillBanned is the place of Messages.StillBanned among the texts, which are by Outcome.
const stillBanned = Banned + 1

// prepare checks g and sets its defaults, for the function of that name.
func (g Guard[A, R]) prepare(function string) *guarded[A, R] {
	switch {
	case g.Wait && g.Penalty != nil:
		panic("stint: a Guard that waits cannot have a Penalty")
	case g.Wait && g.OnError != OnErrorLocal:
		panic("stint: a Guard that waits goes on by the local share: its OnError must be OnErrorLocal")
	}
	g.Limit = g.Limit.orDefault()
	limits := append([]*Limit{g.Limit}, g.More...)
	if g.CostAfter != nil && !slices.ContainsFunc(limits, func(l *Limit) bool {
		return l.IsHeld() && l.spec.Algorithm != InFlight || l.IsUnlimited() || l.letsNothingPass()
	}) {
		panic("stint: a Guard with a CostAfter needs a Limit that is held, such as 1000 per 1h fixed_window hold, and limit " + g.Limit.String() + " is not")
	}
	if g.Key == nil {
		g.Key = func(ctx context.Context, _ A) string { return Caller(ctx) }
	}
	if g.Limiter == nil {
		g.Limiter = new(Limiter)
	}
	unnamed := g.Name == ""
	if unnamed {
		g.Name = nameOf(function)
	}
	if unnamed && g.Limiter.mayBeShared() && isAmbiguous(function) {
		for _, l := range limits {
			if l.spec.Name == "" {
				slog.Default().Warn("stint: a Guard without a Name counts together with each function of that name, in other programs and versions too: set its Name, or name its Limit",
					"function", g.Name, "limit", l.Terms())
			}
		}
	}
	g.Limiter = internals{}.WithFallback(g.Limiter)
	p := &guarded[A, R]{Guard: g, prefix: keyPrefix.Replace(g.Name) + ":", limits: limits}
	p.holds = slices.ContainsFunc(limits, (*Limit).IsHeld)
	for outcome, text := range [...]string{Limited: g.Messages.Limited, Warned: g.Messages.Warned, Banned: g.Messages.Banned, stillBanned: cmp.Or(g.Messages.StillBanned, g.Messages.Banned)} {
		t, _, err := message.Parse(cmp.Or(text, g.Message))
		if err != nil {
			panic(fmt.Sprintf("stint: the text %q of a Guard: %s", cmp.Or(text, g.Message), err))
		}
		p.texts[outcome] = t
	}
	return p
}

// call calls f or the Fallback, or returns the error.
func (g *guarded[A, R]) call(ctx context.Context, a A, f func(context.Context, A) (R, error)) (R, error) {
	if g.Enabled != nil && !g.Enabled() {
		return f(ctx, a)
	}
	held, err := g.pass(ctx, a)
	switch {
	case err != nil && g.Fallback != nil:
		return g.Fallback(ctx, a, err)
	case err != nil:
		var none R
		return none, err
	case held != nil:
		return g.settle(ctx, held, a, f)
	}
	return f(ctx, a)
}

// settle calls f and settles its final cost.
func (g *guarded[A, R]) settle(ctx context.Context, held *Reservation, a A, f func(context.Context, A) (R, error)) (r R, err error) {
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

// mayBeShared reports whether other programs may count in l's Store.
func (l *Limiter) mayBeShared() bool {
	_, own := As[*Memory](l.Store)
	return l.Store != nil && !own
}

// key returns the key of a call in the Store, and "" if the call is not counted. The error names the limit.
func (g *guarded[A, R]) key(ctx context.Context, a A) (string, error) {
	key, err := g.Anonymous.key(g.Key(ctx, a))
	if err != nil {
		return "", fmt.Errorf("limit %s: %w", g.Limit, err)
	}
	if key == "" {
		return "", nil
	}
	return g.prefix + key, nil
}

// pass lets a call pass, or returns why not. The Reservation is nil if nothing is held.
func (g *guarded[A, R]) pass(ctx context.Context, a A) (*Reservation, error) {
	key, err := g.key(ctx, a)
	if key == "" {
		return nil, err
	}
	var few [1]Ask // no allocation for most calls
	asks := few[:0]
	cost, costs := int64(0), g.Cost != nil
	if costs {
		cost = g.Cost(a)
	}
	for _, l := range g.limits {
		ask := Ask{Key: key, Limit: l, Penalty: g.Penalty, OnError: g.OnError}
		if costs && (l.spec.Algorithm != InFlight || len(g.limits) == 1) {
			internals{}.SetUnits(&ask, cost)
		}
		asks = append(asks, ask)
	}
	if g.Wait {
		held, err := g.Limiter.waitFor(ctx, &Request{Asks: slices.Clone(asks)}, g.holds, nil)
		var refused *RefusedError
		if errors.As(err, &refused) {
			refused.Message = g.text(&refused.Decision)
		}
		return held, err
	}
	held, d, err := g.Limiter.take(ctx, asks, g.holds)
	if err != nil && g.OnError == OnErrorAllow && undecided(ctx, err) {
		g.undecided.Log(slog.LevelWarn, "stint: the store does not decide; OnError decides instead", err, "key", key)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("limit %s: %w", g.Limit, err)
	}
	if !d.Allowed {
		return nil, &RefusedError{Decision: d, Message: g.text(&d)}
	}
	return held, nil
}

// text is the message for a caller that d refuses.
func (g *guarded[A, R]) text(d *Decision) string {
	v := message.Values{Violations: d.Violations, RetryAfter: d.RetryAfter, BanLeft: d.BanLeft, Limit: func() string {
		if d.Limit != nil {
			return d.Limit.Terms()
		}
		var all []string // a ban ran
		for _, l := range g.limits {
			all = append(all, l.Terms())
		}
		return strings.Join(all, ", ")
	}}
	if g.Penalty != nil {
		v.WarnAfter, v.BanAfter = g.Penalty.spec.WarnAfter, g.Penalty.spec.BanAfter
		if v.Violations == 0 && d.Outcome == Banned {
			v.Violations = v.BanAfter // which led to the ban that runs
		}
	}
	place := max(d.Outcome, Limited)
	if (internals{}).BanRan(d) {
		place = stillBanned
	}
	return g.texts[place].Fill(&v)
}

// take decides asks, and holds their units if hold is set.
func (l *Limiter) take(ctx context.Context, asks []Ask, hold bool) (held *Reservation, d Decision, err error) {
	r := Request{Asks: asks}
	if hold {
		return l.Reserve(ctx, &r)
	}
	d, err = l.Take(ctx, &r, nil)
	return nil, d, err
}

// undecided reports whether err is from the Store: neither a refusal nor a mistake or
// timeout of the caller.
func undecided(ctx context.Context, err error) bool {
	var refused *RefusedError
	return ctx.Err() == nil && !errors.Is(err, ErrRequest) && !errors.As(err, &refused)
}

type (
	subjectKey struct{}
	clientKey  struct{}
)

// WithSubject returns a copy of ctx with the subject on whose behalf something is done,
// such as the ID of the user who logged in. A Guard without a Key counts by it. "": none.
// The subject is stored as part of the key: hash it if it is secret.
func WithSubject(ctx context.Context, subject string) context.Context {
	return context.WithValue(ctx, subjectKey{}, subject)
}

// WithClient returns a copy of ctx with the address of the client, as the text to count by.
// httplimit.Middleware calls it if its Clients are set. A Guard without a Key counts by it
// if there is no subject. "": none.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// Caller returns the key of a Guard without a Key: "subject=" and the subject of WithSubject,
// else Client. So no subject can pass for a client. Your own Key may extend it, for example
// with the argument of the call.
func Caller(ctx context.Context) string {
	if s, _ := ctx.Value(subjectKey{}).(string); s != "" {
		return "subject=" + s
	}
	return Client(ctx)
}

// Client returns "client=" and the address of WithClient, or "" without one. Use it as the Key
// of a Guard that counts by address even if the subject is known.
func Client(ctx context.Context) string {
	if c, _ := ctx.Value(clientKey{}).(string); c != "" {
		return "client=" + c
	}
	return ""
}
