package watch

import (
	"context"

	"github.com/stintdev/stint/server/internal/offenders"
)

// offenderWatcher counts offenders.
type offenderWatcher struct{ counter *offenders.Counter }

func (w offenderWatcher) decided(_ context.Context, e event) {
	if e.Err != nil || e.Allowed && len(e.Each) == 0 {
		return
	}
	r := offenders.Request{
		Start: e.Start, Client: e.In.Addr(), IPv6Prefix: e.set.IPv6Prefix,
		Decision: &e.Decision, Rule: e.Rule, Rules: e.Rules, Each: e.Each, Asks: e.Asks,
	}
	if e.In.Request != nil {
		r.Path = e.In.Request.Path
	}
	w.counter.Observe(&r)
}

func (w offenderWatcher) violated(_ context.Context, v violation) {
	w.counter.Violated(v.Rule, v.Ask.Key, &offenders.Request{Start: v.Start, Client: v.Client, IPv6Prefix: v.set.IPv6Prefix, Path: v.Path})
}
