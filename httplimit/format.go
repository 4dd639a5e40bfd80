package httplimit

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/errorformat"
	"github.com/stintdev/stint/internal/message"
	"github.com/stintdev/stint/internal/spelling"
)

// ErrorFormat is the format of refusals and other errors in place of problem details: status, headers
// and bodies, and the code for gRPC. NewErrorFormat makes it. It never changes and may be used from many
// goroutines at once. nil: problem details.
type ErrorFormat = errorformat.Format

// ErrorFormatSpec describes an ErrorFormat. Each field may be zero.
//
// The texts may contain these placeholders. Braces around anything else stay as they are.
//
//	{message}              the sentence for the client: Answer.Message, or the usual one
//	{outcome}              limited, warned, banned, blocked or overloaded; else the status, such as bad_request
//	{status}               the HTTP status, a number
//	{decision_id}          Answer.ID
//	{retry_after_seconds}  as in Retry-After, a number
//	{retry_after}          the same as 45s, 12m 5s or 1d 4h, in any language; ∞ if no wait helps
//	{ban_left}             how long a ban still runs, likewise
//	{limit}, {limit_name}  the limit that refused
//	{violations}, {warn_after}, {ban_after}  numbers, of refusals that count as violations
//
// An unknown value is empty; in JSON, an unknown number outside quotes is null. A header that would be
// empty is left out.
type ErrorFormatSpec struct {
	// Status is the status of refusals by limits and bans, 400 to 599. 0: 429. Answers to gRPC
	// ignore it, and clients such as Transport wait only if it is 429.
	Status int
	// Headers maps names to texts of printable ASCII. In the values of placeholders, % and all but
	// printable ASCII is written as %XX. Headers about limits, content, caches and the connection
	// cannot be set.
	Headers map[string]string
	// A client gets the body whose type it accepts by the header Accept, and the first if it accepts
	// any or none of them. A client that prefers application/problem+json by name gets problem
	// details. No Bodies: all clients get problem details.
	Bodies []ErrorBody
	// Code is the gRPC code of refusals by limits and bans, such as "unavailable"; see GRPC. "":
	// resource_exhausted.
	Code string
	// GRPCMessage is the message of a gRPC status. "": {message}.
	GRPCMessage string
}

// ErrorBody is a body of one media type.
type ErrorBody struct {
	// Type is a media type in lower case, without parameters.
	Type string
	// Text is the body. Values are escaped as Type needs it: in JSON, texts must be within quotes,
	// and in HTML and XML, values must be outside of tags, scripts and styles, or in the quoted value of
	// an attribute. Types other than JSON, XML, text/html and text/plain can have no placeholders. At
	// most 64 KiB.
	Text string
	// Status is the status of refusals by limits and bans with this body: 200, because some GraphQL
	// clients read JSON only then, or 400 to 599. A proxy that asks whether a request may pass must not
	// get 200: see ErrorFormat.ForProxies. 0: ErrorFormatSpec.Status.
	Status int
}

// NewErrorFormat returns an error if a field of spec is out of its bounds, names an unknown placeholder,
// or has one where its value could make a body malformed.
func NewErrorFormat(spec ErrorFormatSpec) (*ErrorFormat, error) {
	var p errorformat.Parts
	failed := func(what string, offset int, err error) error {
		return fmt.Errorf("httplimit: %s: at character %d: %w", what, offset+1, err)
	}
	if p.Status = spec.Status; p.Status != 0 {
		if err := errorformat.CheckStatus(p.Status); err != nil {
			return nil, fmt.Errorf("httplimit: %w", err)
		}
	}
	if len(spec.Headers) > errorformat.MaxHeaders || len(spec.Bodies) > errorformat.MaxBodies {
		return nil, fmt.Errorf("httplimit: %s and %s: at most %d and %d", spelling.Several(len(spec.Headers), "header"), spelling.Several(len(spec.Bodies), "body"), errorformat.MaxHeaders, errorformat.MaxBodies)
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Headers)) {
		h, offset, err := errorformat.ReadHeader(name, spec.Headers[name])
		if err != nil {
			return nil, failed("header "+name, offset, err)
		}
		if slices.ContainsFunc(p.Headers, func(other errorformat.Header) bool { return other.Name == h.Name }) {
			return nil, fmt.Errorf("httplimit: header %s is given twice", h.Name)
		}
		p.Headers = append(p.Headers, h)
	}
	for _, b := range spec.Bodies {
		body, offset, err := errorformat.ReadBody(b.Type, b.Text, b.Status)
		if err != nil {
			return nil, failed("body "+b.Type, offset, err)
		}
		if slices.ContainsFunc(p.Bodies, func(other errorformat.Body) bool { return other.Type == body.Type }) {
			return nil, fmt.Errorf("httplimit: body %s is given twice", body.Type)
		}
		p.Bodies = append(p.Bodies, body)
	}
	if spec.Code != "" {
		var err error
		if p.Code, err = errorformat.ReadCode(spec.Code); err != nil {
			return nil, fmt.Errorf("httplimit: %w", err)
		}
	}
	if spec.GRPCMessage != "" {
		var offset int
		var err error
		if p.Message, offset, err = errorformat.ReadMessage(spec.GRPCMessage); err != nil {
			return nil, failed("gRPC message", offset, err)
		}
	}
	return errorformat.New(p), nil
}

type formatKey struct{}

// WithErrorFormat returns a context for requests that Problem, Overloaded.Refuse and every Middleware
// without its own format answer in f. Status and Code apply only to refusals by limits and bans.
func WithErrorFormat(ctx context.Context, f *ErrorFormat) context.Context {
	return context.WithValue(ctx, formatKey{}, f)
}

// formatted sets the status and the headers of the format of p, and returns the body that r accepts;
// nil: problem details.
func (p *problem) formatted(h http.Header, r *http.Request) (contentType string, body []byte) {
	if p.format == nil {
		return "", nil
	}
	v := p.values()
	chosen := p.format.Choose(r.Header["Accept"])
	if p.counted {
		p.Status = p.format.StatusOf(chosen, p.Status)
	}
	v.Status = p.Status
	p.format.SetHeaders(h, &v)
	if p.format.Negotiates() {
		vary(h, "Accept")
	}
	if chosen == nil {
		return "", nil
	}
	return chosen.ContentType(), chosen.Fill(&v)
}

// formattedGRPC sets the headers and the message of the format of p, and returns the code.
func (p *problem) formattedGRPC(h http.Header) (code int) {
	code = grpcCode(p.Status)
	if p.format == nil {
		return code
	}
	v := p.values()
	v.Status = p.Status
	p.format.SetHeaders(h, &v)
	p.Detail = p.format.MessageOf(&v)
	if p.counted {
		code = p.format.CodeOf(code)
	}
	return code
}

// values returns the placeholders of p, except the status.
func (p *problem) values() errorformat.Values {
	v := errorformat.Values{Message: p.Detail, Outcome: p.Outcome, RetryAfterSeconds: p.RetryAfter}
	if v.Outcome == "" {
		v.Outcome = strings.ToLower(strings.ReplaceAll(http.StatusText(p.Status), " ", "_"))
	}
	switch {
	case p.RetryAfter > 0:
		v.RetryAfter = message.Wait(time.Duration(min(p.RetryAfter, longestWait)) * time.Second)
	case p.counted:
		v.RetryAfter = message.Wait(stint.Never)
	}
	if p.answer == nil {
		return v
	}
	v.DecisionID = p.answer.ID
	if !p.counted {
		return v
	}
	d := &p.answer.Decision
	if d.Limit != nil {
		v.Limit, v.LimitName = d.Limit.Terms(), d.Limit.Spec().Name
	}
	if d.BanLeft > 0 {
		v.BanLeft = message.Wait(d.BanLeft)
	}
	if d.Penalty != nil {
		s := d.Penalty.Spec()
		v.Violations, v.WarnAfter, v.BanAfter = d.Violations, s.WarnAfter, s.BanAfter
		if v.Violations == 0 && d.Outcome == stint.Banned {
			v.Violations = s.BanAfter // that led to the running ban
		}
	}
	return v
}

// longestWait is the longest time.Duration, in seconds.
const longestWait = int64(stint.Never / time.Second)
