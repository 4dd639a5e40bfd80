package rpclimit

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/pause"
)

// Client keeps the calls of a client within its own limits, and within those of servers, which send
// google.rpc.RetryInfo. Calls wait for their turn as long as their deadlines allow, or are refused. A
// call that is refused here or cannot be decided is not sent, and its error has one of these codes:
//   - RESOURCE_EXHAUSTED, with RetryInfo unless no wait would help: Refuse is set, or no wait would
//     help. The error wraps a *stint.RefusedError
//   - DEADLINE_EXCEEDED, the call would wait for longer than its deadline allows, and is refused at
//     once. The error wraps a *stint.RefusedError or context.DeadlineExceeded
//   - CANCELLED, the call was canceled while it waited
//   - UNAVAILABLE, nothing could be decided; INVALID_ARGUMENT, the call cannot be counted
//
// When a server refuses a call with RESOURCE_EXHAUSTED or UNAVAILABLE and a RetryInfo, further calls
// of its method by the same key wait for that time. A unary call refused in this way is then
// repeated; a stream is not.
//
// The zero Client has no limits of its own, and obeys RetryInfo.
type Client struct {
	// Limit limits calls and streams. Give it a name if the Limiter's Store is shared; see By. If
	// it is held, a call or stream holds one unit until it ends, so an in-flight limit limits how
	// many run at once. nil: none.
	Limit *stint.Limit
	// Messages limits the messages that are sent on streams of several messages. It must not be
	// held. nil: none.
	Messages *stint.Limit
	// Limiter decides. Like By, Client asks a stint.Networked Store through its Fallback. nil: a
	// Limiter in memory.
	Limiter *stint.Limiter
	// Key returns the key that a call counts under. nil: Target.
	Key Key
	// Anonymous says what happens to calls and messages whose key is "". The zero Anonymous refuses
	// them.
	Anonymous stint.Anonymous
	// Refuse makes calls and messages fail instead of waiting, and calls are not repeated. A
	// refused message is not sent, and the stream goes on.
	Refuse bool
	// Attempts is how often at most a unary call is sent if its server refuses it with a
	// RetryInfo. 0: 3. 1, or negative: once.
	Attempts int
	// MaxRetryDelay is the longest RetryInfo that calls wait for. A refusal with a longer one, or
	// one past the call's deadline, is returned at once; further calls wait for MaxRetryDelay. 0:
	// 1 minute. Negative: RetryInfo is ignored.
	MaxRetryDelay time.Duration
}

const (
	defaultAttempts      = 3
	defaultMaxRetryDelay = time.Minute
)

// Pacer returns the Pacer of c, for interceptors. retryDelay must return RetryDelay for the status
// of an error, which is not nil. Pacer panics if c.Messages is held.
func (c Client) Pacer(retryDelay func(error) (time.Duration, bool)) *Pacer {
	if c.Messages != nil && c.Messages.IsHeld() {
		panic("rpclimit: limit " + c.Messages.String() + " is held, and a message holds nothing")
	}
	if c.Limiter == nil {
		c.Limiter = new(stint.Limiter)
	}
	for _, limit := range []*stint.Limit{c.Limit, c.Messages} {
		if limit != nil {
			stint.Internal(friend.Of{}).WarnUnnamed("rpclimit", c.Limiter, limit)
		}
	}
	c.Limiter = stint.Internal(friend.Of{}).WithFallback(c.Limiter)
	if c.Key == nil {
		c.Key = Target
	}
	if c.Attempts == 0 {
		c.Attempts = defaultAttempts
	}
	if c.MaxRetryDelay == 0 {
		c.MaxRetryDelay = defaultMaxRetryDelay
	}
	return &Pacer{client: c, retryDelay: retryDelay}
}

// Pacer delays or refuses the calls of a Client. It is for authors of interceptors: unary calls go
// through Unary, and streams through Begin. It may be used from many goroutines at once.
type Pacer struct {
	client     Client
	retryDelay func(error) (time.Duration, bool)
	pauses     pause.Pauses[pauseKey] // until servers allow the calls that they refused
}

// Unary makes a call by invoke, once or several times. It returns the error of invoke, or a *Refusal
// if the call was not sent.
func (p *Pacer) Unary(ctx context.Context, c *Call, invoke func() error) error {
	for attempt := 1; ; attempt++ {
		delay, again, err := p.once(ctx, c, invoke)
		if !again || p.client.Refuse || attempt >= p.client.Attempts || delay > p.client.MaxRetryDelay {
			return err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
	}
}

// once makes a call. again says that the server allows a retry after delay.
func (p *Pacer) once(ctx context.Context, c *Call, invoke func() error) (delay time.Duration, again bool, err error) {
	o, refused := p.Begin(ctx, c)
	if refused != nil {
		return 0, false, refused
	}
	defer func() { delay, again = o.End(err) }() // also if invoke panics
	return 0, false, invoke()
}

// Begin waits until a call may go. Call Outgoing.End when it has ended.
func (p *Pacer) Begin(ctx context.Context, c *Call) (*Outgoing, *Refusal) {
	o := &Outgoing{pacer: p, ctx: ctx, call: *c, key: p.client.Key(ctx, c)}
	if err := p.unpaused(ctx, pauseKey{o.key, c.Target, c.Method}); err != nil {
		return nil, unsent(ctx, err)
	}
	if p.client.Limit == nil {
		return o, nil
	}
	key, err := stint.Internal(friend.Of{}).Counted(p.client.Anonymous, o.key)
	if err != nil {
		return nil, unsent(ctx, err)
	}
	if key == "" {
		return o, nil
	}
	held, err := p.take(ctx, key, p.client.Limit)
	if err != nil {
		return nil, unsent(ctx, err)
	}
	o.held = held
	return o, nil
}

// unpaused waits for the end of a pause that a server has asked for.
func (p *Pacer) unpaused(ctx context.Context, key pauseKey) error {
	for {
		wait := p.pauses.Left(key)
		if wait <= 0 {
			return nil
		}
		if p.client.Refuse {
			return &stint.RefusedError{Decision: stint.Decision{Outcome: stint.Limited, Key: key.key, RetryAfter: wait}}
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return errPaused
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// errPaused is returned at once if a server's pause ends after the deadline.
var errPaused error = pausedError{}

type pausedError struct{}

func (pausedError) Error() string {
	return "the server asks to wait for longer than the deadline allows"
}
func (pausedError) Unwrap() error { return context.DeadlineExceeded }

// take takes the unit of a call or message, and holds it if the limit is held.
func (p *Pacer) take(ctx context.Context, key string, limit *stint.Limit) (*stint.Reservation, error) {
	r := &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit}}}
	return stint.Internal(friend.Of{}).TakeOrWait(ctx, p.client.Limiter, r, p.client.Refuse)
}

// unsent returns the status of a call that was not sent because of err.
func unsent(ctx context.Context, err error) *Refusal {
	r := &Refusal{Code: code.Code_UNAVAILABLE, Message: strings.ToValidUTF8(err.Error(), "?"), Err: err}
	var refused *stint.RefusedError
	isOwn := ctx.Err() != nil || errors.As(err, &refused) || err == errPaused // not a timeout of the Store
	switch {
	case isOwn && errors.Is(err, context.DeadlineExceeded):
		r.Code = code.Code_DEADLINE_EXCEEDED
	case isOwn && errors.Is(err, context.Canceled):
		r.Code = code.Code_CANCELLED
	case errors.Is(err, stint.ErrRequest):
		r.Code = code.Code_INVALID_ARGUMENT
	case refused != nil:
		r.Code = code.Code_RESOURCE_EXHAUSTED
		if refused.RetryAfter != stint.Never {
			r.retry(refused.RetryAfter)
		}
	}
	return r
}

// Outgoing is a call or a stream that has begun.
type Outgoing struct {
	pacer *Pacer
	ctx   context.Context
	call  Call
	key   string
	held  *stint.Reservation
	ended sync.Once
}

// End ends the call with its error, and returns the result of the Pacer's retryDelay for it. Only the
// first call of End has an effect.
func (o *Outgoing) End(err error) (delay time.Duration, again bool) {
	o.ended.Do(func() {
		if o.held != nil {
			outlive(o.ctx, func(ctx context.Context) { _ = o.held.Settle(ctx) }) // a lost unit is as free
		}
		if err == nil || o.pacer.client.MaxRetryDelay < 0 {
			return
		}
		if delay, again = o.pacer.retryDelay(err); again && delay > 0 {
			o.pacer.pauses.Add(pauseKey{o.key, o.call.Target, o.call.Method}, min(delay, o.pacer.client.MaxRetryDelay))
		}
	})
	return delay, again
}

// Send waits until a message may be sent on a stream. several says that the method lets the client
// send several messages; otherwise the message is not limited.
func (o *Outgoing) Send(message any, several bool) *Refusal {
	p := o.pacer
	if p.client.Messages == nil || !several {
		return nil
	}
	c := o.call
	c.Message = message
	key, err := stint.Internal(friend.Of{}).Counted(p.client.Anonymous, p.client.Key(o.ctx, &c))
	if err != nil {
		return unsent(o.ctx, err)
	}
	if key == "" {
		return nil
	}
	if _, err := p.take(o.ctx, key, p.client.Messages); err != nil {
		return unsent(o.ctx, err)
	}
	return nil
}

// pauseKey identifies a pause: a server may limit each method and each caller separately.
type pauseKey struct{ key, target, method string }
