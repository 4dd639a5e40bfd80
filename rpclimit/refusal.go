package rpclimit

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/friend"
)

// Refusal is the status of a call that does not reach its handler or server. The interceptors
// return it as an error of their library, in which errors.As finds it and the errors that it
// wraps. A Decide can return one as its error.
type Refusal struct {
	// Code is the code of the status.
	Code code.Code
	// Message is a sentence for the client.
	Message string
	// Details are the status details, such as *errdetails.RetryInfo.
	Details []proto.Message
	// Trailer is metadata, under header names. nil: none.
	Trailer http.Header
	// Err is the cause, for this process: a *stint.RefusedError if a limit refused, or why
	// nothing could be decided. It is not sent. nil: not known.
	Err error
}

// Error returns the code and the message.
func (r *Refusal) Error() string { return r.Code.String() + ": " + r.Message }

// Unwrap returns r.Err.
func (r *Refusal) Unwrap() error { return r.Err }

// undecided returns the refusal of a call for which Decide returned err; nil: it passes.
func (g *Gate) undecided(ctx context.Context, c *Call, err error) *Refusal {
	var refused *Refusal
	var full *httplimit.Overloaded
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &full):
		refused = overloaded(full.RetryAfter)
	case errors.Is(err, stint.ErrRequest):
		refused = &Refusal{Code: code.Code_INVALID_ARGUMENT, Message: "The call cannot be counted: the value that it is counted by is missing, too long, or sent more than once."}
		var detailed interface{ Detail() string }
		if errors.As(err, &detailed) {
			refused.Message = strings.ToValidUTF8(detailed.Detail(), "?")
		}
	case g.server.Undecided != nil && g.server.Undecided(ctx, c, err):
		return nil
	case ctx.Err() != nil:
		return ended(ctx.Err())
	default:
		refused = unavailable("The server cannot check the limits of this call right now.", time.Second)
	}
	refused.Err = err
	return refused
}

// unavailable returns a refusal that is due to the server, with the time to retry.
func unavailable(message string, retryAfter time.Duration) *Refusal {
	r := &Refusal{Code: code.Code_UNAVAILABLE, Message: message}
	r.retry(retryAfter)
	return r
}

// overloaded returns a refusal because this process has no capacity.
func overloaded(retryAfter time.Duration) *Refusal {
	return unavailable("The server is overloaded and accepts no more calls right now.", max(time.Second, retryAfter))
}

// ended returns the refusal of a call whose context ended with err while it waited.
func ended(err error) *Refusal {
	r := &Refusal{Code: code.Code_CANCELLED, Message: "The call was canceled while it waited for its turn.", Err: err}
	if errors.Is(err, context.DeadlineExceeded) {
		r.Code, r.Message = code.Code_DEADLINE_EXCEEDED, "The call's deadline passed while it waited for its turn."
	}
	return r
}

// metadata returns the metadata of the Dialect, and of Degraded.
func (g *Gate) metadata(a *Answer) http.Header {
	h := make(http.Header, 8)
	g.server.Dialect.SetHeaders(h, a.http())
	if g.server.Degraded {
		httplimit.Internal(friend.Of{}).SetDegraded(h, a.By)
	}
	return h
}

// refusal returns the refusal for an Answer that does not pass.
func (g *Gate) refusal(a *Answer) *Refusal {
	if a.Blocked {
		r := &Refusal{Code: code.Code_PERMISSION_DENIED, Message: strings.ToValidUTF8(a.Message, "?"), Trailer: http.Header{}}
		if r.Message == "" {
			r.Message = "This call is not accepted."
		}
		httplimit.Internal(friend.Of{}).SetID(r.Trailer, a.ID)
		return r
	}
	r := &Refusal{Code: code.Code_RESOURCE_EXHAUSTED, Trailer: g.metadata(a), Err: &stint.RefusedError{Decision: a.Decision}}
	if g.server.Violations {
		httplimit.Internal(friend.Of{}).SetViolations(r.Trailer, &a.Decision)
	}
	httplimit.Internal(friend.Of{}).SetID(r.Trailer, a.ID)
	wait := a.RetryAfter
	switch {
	case wait == stint.Never:
		wait = 0
	case a.Busy: // a hint: clients should not return together
		wait = max(wait, time.Millisecond)
		wait += rand.N(wait/2 + 1)
	}
	r.retry(wait)
	r.Message = strings.ToValidUTF8(httplimit.Internal(friend.Of{}).Detail(a.http(), g.server.Dialect, wait), "?")
	if g.server.Dialect != httplimit.NoHeaders {
		r.Details = append(r.Details, a.quotaFailure(r.Message))
	}
	return r
}

// RefusalOf returns the refusal of a call whose handler got err, if err is or wraps a *stint.RefusedError,
// for example from a stint.Guard: like that of a Server with the Dialect d, with the Message of the error,
// and with UNAVAILABLE if Limiter.Instance refused. Refuse of packages grpclimit and connectlimit makes it an
// error of their library.
func RefusalOf(d httplimit.Dialect, err error) (refused *Refusal, ok bool) {
	decision, message, ok := stint.Internal(friend.Of{}).Refused(err)
	if !ok {
		return nil, false
	}
	if decision.By == stint.ByInstance {
		refused = overloaded(decision.RetryAfter)
	} else {
		refused = (&Gate{server: Server{Dialect: d}}).refusal(&Answer{Decision: decision, Message: message})
	}
	refused.Err = err
	return refused, true
}

// retry tells the client when to retry; 0: not at all.
func (r *Refusal) retry(after time.Duration) {
	if r.Trailer == nil {
		r.Trailer = make(http.Header, 1)
	}
	ms := int64(max(0, after) / time.Millisecond)
	if after%time.Millisecond > 0 {
		ms++
	}
	if ms == 0 || ms > math.MaxInt32 { // clients read 32 bits
		r.Trailer[pushback] = []string{"-1"}
	} else {
		r.Trailer[pushback] = []string{strconv.FormatInt(ms, 10)}
	}
	if ms > 0 {
		wait := durationpb.New(time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond)
		r.Details = append(r.Details, &errdetails.RetryInfo{RetryDelay: wait})
	}
}

// pushback is the metadata that tells clients with a retry policy when to retry.
const pushback = "Grpc-Retry-Pushback-Ms"

// quotaFailure names the limits that refused, or the penalty of the ban. It has no keys, because
// they may belong to other clients.
func (a *Answer) quotaFailure(message string) *errdetails.QuotaFailure {
	f := new(errdetails.QuotaFailure)
	each, units := a.Each, a.Units
	if a.Limit == nil || len(each) == 0 {
		each, units = []stint.Decision{a.Decision}, nil
	}
	for i := range each {
		d := &each[i]
		if d.Allowed {
			continue
		}
		v := &errdetails.QuotaFailure_Violation{Subject: "client", Description: message}
		if i < len(units) {
			v.QuotaMetric = strings.ToValidUTF8(units[i], "?")
		}
		switch {
		case d.Limit != nil:
			v.QuotaId, v.QuotaValue = d.Limit.Spec().Name, d.Limit.Spec().Amount
			v.Subject = "limit:" + v.QuotaId
			if v.QuotaId == "" {
				v.Subject = "limit:" + d.Limit.Terms()
			}
			v.Description = "The limit is " + d.Limit.Terms() + "."
		case d.Penalty != nil:
			v.QuotaId = d.Penalty.Spec().Name
			v.Subject = "penalty:" + v.QuotaId
		}
		f.Violations = append(f.Violations, v)
	}
	return f
}

// RetryDelay returns after what delay a server allows a refused call again: the delay of a
// google.rpc.RetryInfo in the details of a status with code RESOURCE_EXHAUSTED or UNAVAILABLE. A
// delay that is invalid or negative is not ok.
func RetryDelay(c code.Code, details []proto.Message) (delay time.Duration, ok bool) {
	if c != code.Code_RESOURCE_EXHAUSTED && c != code.Code_UNAVAILABLE {
		return 0, false
	}
	for _, d := range details {
		info, is := d.(*errdetails.RetryInfo)
		if !is || info.GetRetryDelay() == nil || info.GetRetryDelay().CheckValid() != nil {
			continue
		}
		delay = info.GetRetryDelay().AsDuration()
		return delay, delay >= 0
	}
	return 0, false
}
