package rpclimit

import (
	"context"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/places"
)

// Answer is the decision about a call or a message. The zero Answer refuses it.
type Answer struct {
	// Decision is the decision as a whole. If it is Allowed, the call passes; otherwise it is
	// refused with RESOURCE_EXHAUSTED.
	stint.Decision
	// Each has the decisions of the single limits, for the metadata of httplimit.Draft11 and
	// for the violations of google.rpc.QuotaFailure. nil: only Decision. It is ignored if
	// Decision.Limit is nil, as for a ban.
	Each []stint.Decision
	// Units says what the limits of Each count, such as "tokens", in their order. "": not
	// known. nil: for none.
	Units []string
	// Message tells the client why the call is refused. "": a sentence made from Cause and the
	// Decision.
	Message string
	// Cause is the first sentence for the client, such as "Banned by an operator." "": a
	// sentence that fits the Outcome, such as "Too many requests."
	Cause string
	// ID names the decision. A refusal has it in the metadata stint-decision. "": it is not
	// sent.
	ID string
	// Blocked refuses with PERMISSION_DENIED for a reason other than a limit, and sends no
	// metadata of limits. It takes precedence over all other fields.
	Blocked bool
	// Unlimited lets the call pass without metadata, because no limit applies.
	Unlimited bool
	// Shape makes an allowed call wait for Decision.Delay before it passes, at the even pace of
	// a leaky bucket.
	Shape bool
	// Refund returns the units that the call took. It is called at most once, if the call ends
	// while it is delayed or cannot be delayed. Its context lasts a second and outlives the
	// call. It must not free the place in a leaky bucket's queue. nil: nothing is refunded.
	Refund func(context.Context)
	// OnEnd is called once when a call that has passed ends: when the handler has returned or
	// panicked, whatever the client or the connection did before. A message ends as soon as it
	// has passed. The client waits for the end of the call until OnEnd returns. ctx lasts a
	// second and outlives the call. nil: nothing is called.
	OnEnd func(ctx context.Context, e *End)

	// queue has the calls that take this one's turn if it ends while it waits.
	queue places.Queue
}

// http returns a for httplimit's dialects.
func (a *Answer) http() *httplimit.Answer {
	return &httplimit.Answer{
		Decision: a.Decision, Each: a.Each, Units: a.Units, Message: a.Message, Cause: a.Cause,
		ID: a.ID, Blocked: a.Blocked, Unlimited: a.Unlimited,
	}
}

// pass says whether the call passes.
func (a *Answer) pass() bool { return !a.Blocked && (a.Allowed || a.Unlimited) }

// endTimeout bounds Answer.Refund and Answer.OnEnd.
const endTimeout = time.Second

// outlive calls f, if it is not nil, with a context that outlives the call.
func outlive(ctx context.Context, f func(context.Context)) {
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	f(ctx)
}

// delay waits among waiting for a.Delay, if there is one. If that is longer than longest, it turns a into a
// refusal instead. It returns the context's error if the context ends first. Units that the call does not use
// are refunded.
func (a *Answer) delay(ctx context.Context, waiting *places.Waiting, longest time.Duration) error {
	if a.Blocked || !a.Shape || !a.Allowed || a.Delay <= 0 {
		return nil
	}
	if a.Delay > longest { // Decide ignored it
		outlive(ctx, a.Refund)
		stint.Internal(friend.Of{}).RefuseDelayed(&a.Decision, a.Each, longest)
		return nil
	}
	err := waiting.Wait(ctx, a.queue, a.Delay)
	if err != nil {
		outlive(ctx, a.Refund)
	}
	return err
}

// sleep waits for d, and returns the context's error if the context ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() // both channels may have been ready
}

// Decide decides whether a call, or a message of a stream, may pass. It returns an error if it
// cannot decide; see Server for what the client then gets. It must not keep c. It is called
// concurrently.
//
// maxDelay is how long this call can be delayed; negative if it cannot. A Decide that shapes
// traffic passes it on as stint.Ask.MaxDelay. Others ignore it.
type Decide func(ctx context.Context, c *Call, maxDelay time.Duration) (Answer, error)

// By decides by one limit and one key. Under a held limit, a call holds one unit until it ends,
// and is charged that unit; see Budget for other costs. So with an in-flight limit, By limits how
// many calls and streams run at once. nil means, for l, a Limiter in memory; for limit, 100 per
// 1m; for key, Peer.
//
// A call whose key is "" is refused as malformed, unless anonymous says otherwise. Only its first
// value counts.
//
// In a shared Store, limits without a name share their counts (see stint.Spec.Name). By logs a
// warning, once, if its limit has no name and the Store is not a stint.Memory.
//
// If the Store is stint.Networked, By asks it through its Fallback, so that decisions come in time
// whatever the network does. If the Instance limit of l refuses, the Decide returns
// *httplimit.Overloaded.
func By(l *stint.Limiter, limit *stint.Limit, key Key, anonymous ...stint.Anonymous) Decide {
	return by(l, limit, key, anonymous, false)
}

// Shape is like By, and also delays each allowed call until its turn; see Answer.Shape. Use it with
// leaky buckets: no other algorithm makes calls wait. If a delayed call ends, those behind it at the
// same Gate move up, as httplimit.Shape describes.
func Shape(l *stint.Limiter, limit *stint.Limit, key Key, anonymous ...stint.Anonymous) Decide {
	return by(l, limit, key, anonymous, true)
}

func by(l *stint.Limiter, limit *stint.Limit, key Key, anonymous []stint.Anonymous, shape bool) Decide {
	if l == nil {
		l = new(stint.Limiter)
	}
	limit = stint.Internal(friend.Of{}).OrDefault(limit)
	if key == nil {
		key = Peer
	}
	stint.Internal(friend.Of{}).WarnUnnamed("rpclimit", l, limit)
	nobody := stint.AnonymousRefuse
	if len(anonymous) > 0 {
		nobody = anonymous[0]
	}
	if limit.IsHeld() {
		return Budget{Limiter: l, Asks: func(ctx context.Context, c *Call) ([]stint.Ask, error) {
			k, err := stint.Internal(friend.Of{}).Counted(nobody, key(ctx, c))
			if k == "" {
				return nil, err
			}
			return []stint.Ask{{Key: k, Limit: limit}}, nil
		}}.Decide()
	}
	l = stint.Internal(friend.Of{}).WithFallback(l)
	return func(ctx context.Context, c *Call, maxDelay time.Duration) (Answer, error) {
		k, err := stint.Internal(friend.Of{}).Counted(nobody, key(ctx, c))
		if k == "" {
			return Answer{Unlimited: err == nil}, err
		}
		d, err := stint.Internal(friend.Of{}).TakeOne(ctx, l, k, limit, shape, maxDelay)
		if err != nil {
			return Answer{}, err
		}
		if d.By == stint.ByInstance {
			return Answer{}, &httplimit.Overloaded{RetryAfter: d.RetryAfter}
		}
		a := Answer{Decision: d, Shape: shape}
		if d.Delay > 0 && shape {
			a.queue = places.QueueFor(l, k, limit)
		}
		return a, nil
	}
}
