package rpclimit

import (
	"context"
	"time"
)

// Received decides a message received on a stream, before the handler gets it. several says that the
// method lets the client send several messages; otherwise the message passes. It waits for up to
// Server.MessageWait. After a refusal, each further message is refused, too.
func (r *Running) Received(message any, several bool) *Refusal {
	r.received.Add(1)
	if !several || r.gate.server.Received == nil {
		return r.refused.Load()
	}
	return r.message(r.gate.server.Received, message)
}

// Sending decides a message before it is sent on a stream, like Received. If it passes, send it, and
// call Sent.
func (r *Running) Sending(message any, several bool) *Refusal {
	if !several || r.gate.server.Sent == nil {
		return r.refused.Load()
	}
	return r.message(r.gate.server.Sent, message)
}

// Sent notes a message that was sent.
func (r *Running) Sent(message any) {
	r.sent.Add(1)
	if r.onEnd != nil {
		r.last = message
	}
}

func (r *Running) message(d Decide, message any) *Refusal {
	if refused := r.refused.Load(); refused != nil {
		return refused
	}
	c := r.call
	c.Message = message
	refused := r.gate.pace(r.Context, d, &c)
	if refused != nil && !r.refused.CompareAndSwap(nil, refused) {
		return r.refused.Load()
	}
	return refused
}

// pace decides a message, and waits until it may pass.
func (g *Gate) pace(ctx context.Context, d Decide, c *Call) *Refusal {
	end := time.Now().Add(max(0, g.server.MessageWait))
	for {
		longest := untilDeadline(ctx, time.Until(end))
		if longest <= 0 {
			longest = -1
		}
		a, err := d(g.asking(ctx), c, longest)
		if err != nil {
			return g.undecided(ctx, c, err)
		}
		if err := a.delay(ctx, g.waiting, longest); err != nil {
			return ended(err)
		}
		if a.pass() {
			if a.OnEnd != nil {
				outlive(ctx, func(ctx context.Context) { a.OnEnd(ctx, &End{Last: c.Message}) })
			}
			return nil
		}
		// Time has passed since longest was computed.
		if wait := a.RetryAfter; a.Blocked || wait <= 0 || wait > untilDeadline(ctx, time.Until(end)) {
			return g.refusal(&a)
		}
		if err := sleep(ctx, a.RetryAfter); err != nil {
			return ended(err)
		}
	}
}
