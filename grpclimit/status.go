package grpclimit

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/stintdev/stint/rpclimit"
)

// statusError is a refusal as an error of grpc-go, in which errors.As finds the *rpclimit.Refusal and
// what that wraps.
type statusError struct{ *rpclimit.Refusal }

func (e *statusError) Unwrap() error { return e.Refusal }

func (e *statusError) Error() string {
	return status.FromProto(&spb.Status{Code: int32(e.Code), Message: e.Message}).Err().Error()
}

// statusOf returns err, which may be a *rpclimit.Refusal, as an error of grpc-go.
func statusOf(err error) error {
	if refused, ok := err.(*rpclimit.Refusal); ok {
		return &statusError{refused}
	}
	return err
}

// GRPCStatus is for package status.
func (e *statusError) GRPCStatus() *status.Status {
	s := &spb.Status{Code: int32(e.Code), Message: e.Message}
	for _, d := range e.Details {
		if detail, err := anypb.New(d); err == nil { // it fails only for text that is no UTF-8
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
