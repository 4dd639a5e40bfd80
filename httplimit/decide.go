package httplimit

import (
	"context"
	"net/http"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/places"
)

// Answer is the decision about an HTTP request. The zero Answer refuses the request.
type Answer struct {
	// Decision is the decision about the request as a whole. If it is Allowed, the
	// request passes; otherwise it is refused with 429.
	stint.Decision
	// Each has the decisions of the single limits, which Draft11 lists. nil: only Decision.
	// It is ignored if Decision.Limit is nil, as for a ban.
	Each []stint.Decision
	// Units says what the limits of Each count, such as "tokens", in their order, for
	// headers and problem details. "": not known. nil: for none.
	Units []string
	// Message tells the client why the request is refused. "": a sentence made from
	// Cause and the Decision.
	Message string
	// Cause is the first sentence for the client, such as "Banned by an operator."
	// "": a sentence that fits the Outcome, such as "Too many requests."
	Cause string
	// Format is the format of the answer if a limit or a ban refuses. nil: Middleware.Refusals.
	Format *ErrorFormat
	// ID names the decision. A refusal has it in the header Stint-Decision, so that a
	// client's report leads to the log line. "": no header.
	ID string
	// Blocked refuses with 403 for a reason other than a limit, and sets no rate limit
	// headers. It takes precedence over all other fields.
	Blocked bool
	// Unlimited lets the request pass without headers, because no limit applies.
	Unlimited bool
	// Shape makes an allowed request wait for Decision.Delay before it passes, at the
	// even pace of a leaky bucket.
	Shape bool
	// Refund returns the units that the request took. It is called at most once, if the
	// request ends while it is delayed or cannot be delayed. Its context lasts a second and
	// outlives the request. It must not free the place in a leaky bucket's queue: later
	// requests may take it, so a freed place would be given twice. nil: nothing is
	// refunded.
	Refund func(context.Context)
	// OnStatus is called once with the status of the handler's response, before the
	// header is written or when the handler returns without writing one. It is not
	// called if the handler panics or hijacks the connection, nor for 1xx other than
	// 101. The client waits until it returns. ctx lasts a second and outlives the
	// request. nil: the handler gets the original ResponseWriter.
	OnStatus func(ctx context.Context, status int)
	// OnEnd is called once when a request that has passed ends: when the handler has returned
	// or panicked and, if it hijacked the connection, that is closed, too. So a hold can be
	// settled with its final cost. The client may wait for the end of the response until OnEnd
	// returns. ctx lasts a second and outlives the request. nil: nothing is called.
	OnEnd func(ctx context.Context, r *Response)
	// Usage are the paths in a JSON response that OnEnd asks Response.JSON for. The
	// response is read while it passes, and nothing of it is delayed. Empty: none.
	Usage [][]string

	// queue has the requests that take this one's turn if its client leaves while it waits.
	queue places.Queue
}

// wait waits for a.Delay among waiting. If that is longer than maxDelay, it turns a into a refusal
// instead. It returns the context's error if the context ends first.
func (a *Answer) wait(ctx context.Context, waiting *places.Waiting, maxDelay time.Duration) error {
	if a.Delay > maxDelay { // Decide ignored it
		stint.Internal(friend.Of{}).RefuseDelayed(&a.Decision, a.Each, maxDelay)
		return nil
	}
	return waiting.Wait(ctx, a.queue, a.Delay)
}

// refundTimeout bounds Answer.Refund.
const refundTimeout = time.Second

func (a *Answer) refund(ctx context.Context) {
	if a.Refund == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	a.Refund(ctx)
}

// Decide decides whether a request may pass. It returns an error if it cannot decide;
// an error that wraps stint.ErrRequest means that the request is at fault. It must not
// keep the request. If it reads the request's body, it must replace it, so that the handler
// can read it from the beginning. It is called concurrently.
//
// maxDelay is how long the Middleware can delay this request; negative if it cannot. A
// Decide that shapes traffic passes it on as stint.Ask.MaxDelay, so that a request that
// would wait longer is refused and takes no place in the queue. Others ignore it.
type Decide func(r *http.Request, maxDelay time.Duration) (Answer, error)

// By decides by one limit and one key. Under a held limit, a request holds one unit until it ends,
// and is charged that unit; see Budget for other costs. So with an in-flight limit, By limits how
// many requests run at once. nil means, for l, a Limiter in memory; for limit, 100 per 1m; for key,
// the address of the connection, which behind a proxy is the proxy's (see Clients).
//
// A request whose key is "" is refused as malformed, unless anonymous says otherwise. Only its
// first value counts.
//
// In a shared Store, limits without a name share their counts (see stint.Spec.Name). By
// logs a warning, once, if its limit has no name and the Store is not a stint.Memory.
//
// If the Store is stint.Networked, By asks it through its Fallback, so that decisions
// come in time whatever the network does. If the Instance limit of l refuses, the Decide
// returns *Overloaded.
func By(l *stint.Limiter, limit *stint.Limit, key Key, anonymous ...stint.Anonymous) Decide {
	return by(l, limit, key, anonymous, false)
}

// Shape is like By, and also delays each allowed request until its turn; see
// Answer.Shape. Use it with leaky buckets: no other algorithm makes requests wait.
//
// If the client of a delayed request leaves, the requests behind it with the same key in the same
// Middleware move up, and the next one takes the free turn. The Store counts that turn until it has
// passed. So a full queue refuses, with 429, until turns have passed, even if all clients have left. If
// the Instance is a leaky bucket, too, nothing moves up.
func Shape(l *stint.Limiter, limit *stint.Limit, key Key, anonymous ...stint.Anonymous) Decide {
	return by(l, limit, key, anonymous, true)
}

func by(l *stint.Limiter, limit *stint.Limit, key Key, anonymous []stint.Anonymous, shape bool) Decide {
	if l == nil {
		l = new(stint.Limiter)
	}
	limit = stint.Internal(friend.Of{}).OrDefault(limit)
	if key == nil {
		key = Clients{}.Key
	}
	stint.Internal(friend.Of{}).WarnUnnamed("httplimit", l, limit)
	nobody := stint.AnonymousRefuse
	if len(anonymous) > 0 {
		nobody = anonymous[0]
	}
	if limit.IsHeld() {
		return Budget{Limiter: l, Asks: func(r *http.Request) ([]stint.Ask, error) {
			k, err := stint.Internal(friend.Of{}).Counted(nobody, key(r))
			if k == "" {
				return nil, err
			}
			return []stint.Ask{{Key: k, Limit: limit}}, nil
		}}.Decide()
	}
	l = stint.Internal(friend.Of{}).WithFallback(l)
	return func(r *http.Request, maxDelay time.Duration) (Answer, error) {
		k, err := stint.Internal(friend.Of{}).Counted(nobody, key(r))
		if k == "" {
			return Answer{Unlimited: err == nil}, err
		}
		d, err := stint.Internal(friend.Of{}).TakeOne(r.Context(), l, k, limit, shape, maxDelay)
		if err != nil {
			return Answer{}, err
		}
		if d.By == stint.ByInstance {
			return Answer{}, &Overloaded{RetryAfter: d.RetryAfter}
		}
		a := Answer{Decision: d, Shape: shape}
		if d.Delay > 0 && shape {
			a.queue = places.QueueFor(l, k, limit)
		}
		return a, nil
	}
}
