// Package door has what the doors of a server share: who is let in, who asks, how the decision is asked for and
// how it is told.
package door

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/watch"
	"github.com/stintdev/stint/server/rules"
)

// Door is what all doors share. It may be used from many goroutines at once.
type Door struct {
	Settings  *config.Settings
	Watch     *watch.Watch
	Decider   *decide.Decider
	Admission *Admission
	// Callers says who may use the check API, and who may ask about requests.
	Callers *auth.Authenticator
	// Calls is how calls of Envoy's service are decided.
	Calls Calls
	// TrustedClaims means that tokens are not verified here.
	TrustedClaims bool
	// CutOff counts what a stop cuts off.
	CutOff CutOff
}

// Rules are the rules in force.
func (d *Door) Rules() *rules.Set { return d.Watch.Current().Set.Set }

// Decide decides requests that arrived together, and traces that; see decide.Decider.Decide.
func (d *Door) Decide(ctx context.Context, all []decide.Request, at time.Time, shadows bool) {
	whole := ctx
	var span trace.Span
	if at.IsZero() {
		ctx, span = d.Watch.Tracing.Start(ctx, "decide")
	}
	d.Decider.Decide(ctx, all, at, shadows)
	d.Watch.Tracing.Decided(whole, span, all)
}

// Calls is how an Envoy rate limit service decides its calls: rules.Descriptors.Each and Quota for all of
// them. The check API and Explain decide such calls in the same way.
type Calls struct{ Each, Quota bool }

// Set makes call, which may be nil, be decided that way.
func (c Calls) Set(call *rules.Descriptors) {
	if call != nil {
		call.Each, call.Quota = call.Each || c.Each, call.Quota || c.Quota
	}
}

// Capped bounds the requests in flight of next, a handler of the check API. Requests without a
// place are refused before anything else happens.
func (d *Door) Capped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		place, headers, ok := d.Admission.Enter(d.Admission.Check, w, r)
		if !ok {
			return
		}
		defer func() {
			d.Admission.Bytes.Refund(headers)
			d.CutOff.Left(r, false)
			d.Admission.Check.Leave(place)
		}()
		next.ServeHTTP(w, r)
	})
}

// RefusedCaller logs that a caller of an API was refused.
func (d *Door) RefusedCaller(a *auth.Authenticator, r *http.Request, who auth.Caller, err error) {
	text := "the " + a.API() + " API refused a caller"
	args := []any{"address", r.RemoteAddr, "why", err}
	if who.Name != "" {
		args = append(args, "name", who.Name)
	}
	d.Watch.Sampled.Log(slog.LevelWarn, text, text, args...)
}
