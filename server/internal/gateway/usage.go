package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/usage"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// settlesAtEnd settles the holds of r, which t let pass, when it ends.
func (g *Gateway) settlesAtEnd(x *exchange, r *http.Request, t *decide.Request, a *httplimit.Answer) {
	if !x.settlement.Holds && len(x.settlement.Spared) == 0 {
		return
	}
	for _, rule := range t.Rules {
		addUsage(a, rule)
	}
	for i := range x.settlement.Spared {
		addUsage(a, x.settlement.Spared[i].Rule)
	}
	if len(a.Usage) > 0 {
		acceptReadable(r.Header)
	}
	a.OnEnd = func(ctx context.Context, resp *httplimit.Response) {
		if err := x.settlement.End(ctx, g.resultOf(x, r, resp)); err != nil {
			g.Watch.Uncharged("what a request did cost could not be charged", err)
		}
	}
}

// addUsage makes the response be read for the fields that rule needs.
func addUsage(a *httplimit.Answer, rule *rules.Rule) {
	if rule.Mode == rules.Off {
		return
	}
	for _, path := range rule.UsagePaths() {
		if !slices.ContainsFunc(a.Usage, func(known []string) bool { return slices.Equal(known, path) }) {
			a.Usage = append(a.Usage, path)
		}
	}
}

// resultOf returns how the request of x ended; nil: it did not reach the upstream.
func (g *Gateway) resultOf(x *exchange, r *http.Request, resp *httplimit.Response) *decide.Ended {
	how := &decide.Ended{
		Response: rules.Response{Status: resp.Status, Headers: resp.Header, Bytes: resp.Bytes, Seconds: resp.Took.Seconds(), JSON: resp.JSON},
		Failed:   func(err error) { g.Watch.Sampled.Failure("the cost of a request cannot be computed", err) },
		Store:    g.Decider.Limiter.Store,
		Unknown: func(rule *rules.Rule) {
			g.Watch.Current().UnknownEndpoint(rule, x.endpoint, r.Method, x.target.RawPath)
		},
	}
	how.Unzipped, how.Events = resp.Passed()
	if how.Prompt = x.prompt; resp.Status != http.StatusSwitchingProtocols {
		how.Endpoint = x.endpoint
	}
	if x.wrapped {
		return how
	}
	if x.out == nil || x.unsent {
		return nil
	}
	if how.Status = x.status; how.Status == 0 { // the response is the gateway's own
		how.Headers, how.Bytes, how.Unzipped, how.Events, how.JSON = nil, 0, 0, 0, nil
		if !x.clientFailed { // else leaving before the answer would make the input free
			how.Prompt = rules.Prompt{}
		}
	}
	return how
}

// acceptReadable leaves in Accept-Encoding the encodings that can be read for usage. The response passes as
// the upstream encodes it.
func acceptReadable(h http.Header) {
	lines, ok := h["Accept-Encoding"]
	if !ok {
		return
	}
	var kept []string
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(part, ";")
			if usage.Decodes(strings.TrimSpace(name)) {
				kept = append(kept, strings.TrimSpace(part))
			}
		}
	}
	if kept == nil {
		kept = []string{"identity"}
	}
	h["Accept-Encoding"] = []string{strings.Join(kept, ", ")}
}
