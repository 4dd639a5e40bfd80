package decide

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// Some answers are made after the response to their request: background responses, batches, and streams that
// a client has left. Such a request is charged an estimate. When the answer is read later and reports its
// usage, the usage beyond the estimate is charged, once, however often it is read.
//
// The store keeps the request's charge meanwhile, as usage of a limit of its own: the key is made of the
// caller, the budget and the answer. The first reader takes all that remains of that limit, so only one
// reader can.

// announced is the limit that keeps the charges for answers that are made later. Its period is how long after
// the request the rest is charged.
var announced = stint.MustLimit("later: 4503599627370495 per 7d sliding_log")

// laterAsk is a budget to which an answer is charged.
type laterAsk rules.Spared

// ask is the request about the charge for the answer with this ID.
func (l *laterAsk) ask(id string, cost int64) *stint.Request {
	sum := sha256.New()
	for _, part := range []string{l.Key, l.Limit.ID(), id} {
		text := sha256.Sum256([]byte(part))
		sum.Write(text[:])
	}
	return &stint.Request{Asks: []stint.Ask{{Key: hex.EncodeToString(sum.Sum(nil)), Limit: announced, Cost: cost, Peek: cost == 0, OnError: stint.OnErrorDeny}}}
}

// announce records the units charged to l for the answer with this ID.
func (l *laterAsk) announce(ctx context.Context, store stint.Store, id string, charged int64) error {
	_, err := stint.NewLimiter(store).Take(ctx, l.ask(id, max(1, charged)), nil)
	return err
}

// read charges the usage of the answer with this ID beyond its earlier charge, if this is the first to read
// it.
func (l *laterAsk) read(ctx context.Context, store stint.Store, id string, used int64) error {
	limiter := stint.NewLimiter(store)
	d, err := limiter.Take(ctx, l.ask(id, 0), nil)
	if err != nil || d.Used() == 0 || d.Remaining == 0 {
		return err // it was not announced, or was read before
	}
	before := d.Used()
	if d, err = limiter.Take(ctx, l.ask(id, d.Remaining), nil); err != nil || !d.Allowed || used <= before {
		return err
	}
	_, err = limiter.Charge(ctx, l.Key, l.Limit, used-before)
	return err
}

// readLater charges an answer that how's response has to each of the spared budgets.
func (e *Settlement) readLater(ctx context.Context, how *Ended) (err error) {
	if how == nil || len(e.Spared) == 0 {
		return nil
	}
	ctx, cancel := Outliving(ctx)
	defer cancel()
	for i := range e.Spared {
		rule := e.Spared[i].Rule
		if id, used, ok := rule.Tokens.Later(&how.Response); ok && rule.After == "" {
			err = errors.Join(err, (*laterAsk)(&e.Spared[i]).read(ctx, how.Store, id, used))
		}
	}
	return err
}
