package quota_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// decider decides by one limit for each first value of a bucket, in memory, as a *server.Server does
// by the files of Envoy's form.
type decider struct {
	memory  *stint.Memory
	limit   func(value string) *stint.Limit // nil: none
	refused bool                            // charge what is refused
	delay   func() time.Duration            // before each call; nil: none

	mu      sync.Mutex
	set     *rules.Set
	err     error         // of all calls
	banned  time.Duration // how long a ban of all runs
	calls   int
	taken   int64 // ahead
	back    int64
	charged int64
}

func newDecider(limit string) *decider {
	l := stint.MustLimit(limit)
	return &decider{memory: new(stint.Memory), limit: func(string) *stint.Limit { return l }, refused: true, set: new(rules.Set)}
}

// Rules implements quota.Decider.
func (d *decider) Rules() *rules.Set {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.set
}

func (d *decider) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// Decide implements quota.Decider.
func (d *decider) Decide(ctx context.Context, in *rules.Input, _ time.Time) (v server.Verdict, err error) {
	if d.delay != nil {
		time.Sleep(d.delay())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	one := in.Descriptors.List[0]
	switch {
	case d.err != nil:
		return v, d.err
	case ctx.Err() != nil:
		return v, ctx.Err()
	case d.banned > 0:
		v.Decision = stint.Decision{Outcome: stint.Banned, RetryAfter: d.banned, BanLeft: d.banned}
		return v, nil
	}
	limit := d.limit(one.Entries[0].Value)
	if limit == nil {
		v.Decision = stint.Decision{Allowed: true, Outcome: stint.Allowed}
		return v, nil
	}
	key := in.Descriptors.Domain
	for _, e := range one.Entries {
		key += "|" + e.Key + "=" + e.Value
	}
	r := stint.Request{At: time.Now(), Asks: []stint.Ask{{Key: key, Limit: limit, Cost: one.Cost, Peek: one.Cost == 0}}}
	if one.GiveBack {
		d.back += one.Cost
		return v, d.memory.Refund(ctx, &r)
	}
	v.Each = make([]stint.Decision, 1)
	v.Decision, err = d.memory.Take(ctx, &r, v.Each)
	rule := &rules.Rule{Descriptor: &rules.DescriptorRule{ChargeRefused: d.refused}}
	v.Rules, v.Descriptors = []*rules.Rule{rule}, []rules.DescriptorMatch{{Rule: rule, Key: key}}
	switch {
	case v.Allowed && in.Descriptors.Ahead:
		d.taken += one.Cost
	case v.Allowed:
		d.charged += one.Cost
	case !in.Descriptors.Ahead && d.refused && one.Cost > 1:
		calls := []stint.HoldCall{{Action: stint.HoldCharge, Key: key, Limit: limit, Cost: one.Cost}}
		stint.Holds(ctx, d.memory, r.At, calls)
		d.charged += one.Cost
	}
	return v, err
}

// remaining is what is left for the bucket {"k": value} of domain "d".
func (d *decider) remaining(value string) int64 {
	in := &rules.Input{Descriptors: &rules.Descriptors{Domain: "d", List: []rules.Descriptor{{Entries: []rules.Entry{{Key: "k", Value: value}}}}}}
	v, err := d.Decide(context.Background(), in, time.Time{})
	if err != nil {
		panic(err)
	}
	return v.Remaining
}

var errAway = errors.New("the store is away")
