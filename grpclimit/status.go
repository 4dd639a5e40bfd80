package grpclimit

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/rpclimit"
)

// statusError is a refusal as an error of grpc-go. errors.As finds in it the *rpclimit.Refusal and
// the errors that it wraps.
type statusError struct {
	*rpclimit.Refusal
	told bool // the call's trailer has its metadata, or will get it
}

func (e *statusError) Unwrap() error { return e.Refusal }

func (e *statusError) Error() string {
	return status.FromProto(&spb.Status{Code: int32(e.Code), Message: e.Message}).Err().Error()
}

// statusOf returns err, which may be a *rpclimit.Refusal, as an error of grpc-go.
func statusOf(err error) error {
	if refused, ok := err.(*rpclimit.Refusal); ok {
		return &statusError{Refusal: refused}
	}
	return err
}

// Refuse returns the error that a handler should return for err. If err is or wraps a *stint.RefusedError,
// for example from a stint.Guard, that is RESOURCE_EXHAUSTED with the details of ServerOptions and the
// Message of the error, and the trailer of the call of ctx gets the metadata of the Dialect d. Other errors,
// and nil, are returned unchanged:
//
//	user, err := loadUser(ctx, id)
//	if err != nil {
//		return nil, grpclimit.Refuse(ctx, httplimit.XRateLimit, err)
//	}
//
// A refusal that Refuse or an interceptor of ServerOptions has made is returned unchanged.
func Refuse(ctx context.Context, d httplimit.Dialect, err error) error {
	var made *statusError
	if errors.As(err, &made) && made.told { // clients that get a wait twice do not retry
		return made
	}
	refused, ok := rpclimit.RefusalOf(d, err)
	if !ok {
		return err
	}
	_ = grpc.SetTrailer(ctx, lower(refused.Trailer)) // fails only if ctx is not of a call, or that is over
	return &statusError{refused, true}
}

// GRPCStatus is for package status.
func (e *statusError) GRPCStatus() *status.Status {
	s := &spb.Status{Code: int32(e.Code), Message: e.Message}
	for _, d := range e.Details {
		if detail, err := anypb.New(d); err == nil { // it fails only for text that is not UTF-8
			s.Details = append(s.Details, detail)
		}
	}
	return status.FromProto(s)
}

// retryDelay returns the delay of the RetryInfo in an error's status.
func retryDelay(err error) (time.Duration, bool) {
	s, ok := status.FromError(err)
	if !ok {
		return 0, false
	}
	var details []proto.Message
	for _, d := range s.Details() {
		if m, ok := d.(proto.Message); ok {
			details = append(details, m)
		}
	}
	return rpclimit.RetryDelay(code.Code(s.Code()), details)
}
