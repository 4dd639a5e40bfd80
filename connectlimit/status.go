package connectlimit

import (
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/proto"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/rpclimit"
)

// errorOf returns err as an error of connect if it is a *rpclimit.Refusal. In the result, errors.As
// finds the refusal and what it wraps.
func errorOf(err error) error {
	refused, ok := err.(*rpclimit.Refusal)
	if !ok {
		return err
	}
	e := connect.NewError(connect.Code(refused.Code), said{refused})
	for _, d := range refused.Details {
		if detail, err := connect.NewErrorDetail(d); err == nil { // it fails only for text that is not UTF-8
			e.AddDetail(detail)
		}
	}
	set(e.Meta(), refused.Trailer)
	return e
}

// Refuse returns the error that a handler should return for err. If err is or wraps a *stint.RefusedError,
// for example from a stint.Guard, that is a *connect.Error with connect.CodeResourceExhausted, the details
// and metadata of a Server's refusals with the Dialect d, and the Message of the error. Other errors, and
// nil, are returned unchanged.
func Refuse(d httplimit.Dialect, err error) error {
	refused, ok := rpclimit.RefusalOf(d, err)
	if !ok {
		return err
	}
	return errorOf(refused)
}

// refusalOf is errorOf; nil for nil.
func refusalOf(refused *rpclimit.Refusal) error {
	if refused == nil {
		return nil
	}
	return errorOf(refused)
}

// said is a refusal whose Error is the message alone: connect adds the code.
type said struct{ *rpclimit.Refusal }

func (s said) Error() string { return s.Message }
func (s said) Unwrap() error { return s.Refusal }

// retryDelay returns the delay of the RetryInfo in an error of a server.
func retryDelay(err error) (time.Duration, bool) {
	var e *connect.Error
	if !errors.As(err, &e) {
		return 0, false
	}
	var details []proto.Message
	for _, d := range e.Details() {
		if m, err := d.Value(); err == nil {
			details = append(details, m)
		}
	}
	return rpclimit.RetryDelay(code.Code(e.Code()), details)
}
