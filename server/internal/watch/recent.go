package watch

import (
	"context"

	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/internal/recent"
	"github.com/stintdev/stint/server/rules"
)

// ReadsOf returns the parts of a request that set reads beyond those recorded of every request.
func ReadsOf(set *rules.Set) *recent.Reads {
	r := &recent.Reads{Claims: set.UsesClaims()}
	r.Headers, r.AnyHeader = set.Headers()
	return r
}

// recentWatcher records requests for previews.
type recentWatcher struct {
	watchesNothing
	*recent.Recorder
}

// decided is for watcher. Malformed requests are left out: no rule decides them.
func (r recentWatcher) decided(_ context.Context, e event) {
	if e.Kind == kind.Malformed {
		return
	}
	q := recent.Request{At: e.Start, Input: e.In, Claims: e.Claims, MaxDelay: e.MaxDelay}
	if !e.In.Addr().IsValid() && len(e.Asks) > 0 {
		q.Subject = e.Asks[0].Key
	}
	r.Add(&q, e.set.IPv6Prefix, e.set.reads)
}
