package admin

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/control"
)

// callError is the error of a call.
type callError struct {
	status   int
	detail   string
	problems []adminapi.Problem
	newest   *int64 // number of the rules' newest version, if another push was faster
}

func (e *callError) Error() string {
	return (&adminapi.Error{Detail: e.detail, Problems: e.problems}).Error()
}

func badCall(format string, args ...any) error {
	return &callError{status: http.StatusBadRequest, detail: fmt.Sprintf(format, args...)}
}

// impossible is the error of a well-formed call that cannot be done because of a field.
func impossible(where, format string, args ...any) error {
	return &callError{
		status:   http.StatusUnprocessableEntity,
		detail:   "The call cannot be carried out. Nothing was changed.",
		problems: []adminapi.Problem{{Where: where, Text: fmt.Sprintf(format, args...)}},
	}
}

func notFound(format string, args ...any) error {
	return &callError{status: http.StatusNotFound, detail: fmt.Sprintf(format, args...)}
}

// unavailable is the error of a call that the store did not answer.
func unavailable(err error) error {
	return &callError{status: http.StatusServiceUnavailable, detail: "The store does not answer: " + err.Error()}
}

// callErrorOf converts the error of a change. field is the member of the call at fault if the change is
// invalid; empty: unknown.
func callErrorOf(err error, field string) error {
	var refused *control.RefusedError
	var conflict *control.ConflictError
	switch {
	case errors.As(err, &conflict):
		e := &callError{status: http.StatusConflict, newest: new(int64), detail: conflict.Error()}
		if conflict.Newest != nil {
			e.newest = &conflict.Newest.Number
		}
		return e
	case !errors.As(err, &refused):
		return unavailable(err)
	case refused.Reason == control.NotFound:
		return notFound("%s", refused.Text)
	case refused.Reason == control.Invalid:
		return impossible(field, "%s", refused.Text)
	case refused.Reason == control.Rivals:
		return &callError{status: http.StatusConflict, detail: refused.Text}
	}
	return &callError{status: http.StatusServiceUnavailable, detail: refused.Text}
}
