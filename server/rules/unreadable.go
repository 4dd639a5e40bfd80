package rules

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/stintdev/stint/server/rules/internal/expr"
)

// ErrUnreadable is an error of Body.Lookup: there is a body, and it is not readable JSON.
var ErrUnreadable = expr.ErrUnreadable

// UnreadableBody says how to treat a request whose body a rule reads, but cannot be read. The zero
// UnreadableBody refuses it as malformed, unless the rule has tokens: there the response counts.
type UnreadableBody struct {
	// Given means that the file has the field.
	Given bool
	// AsNone treats the body as one without fields.
	AsNone bool
	// Cost, if more than 0, is the request's cost. Otherwise its body counts as one without fields.
	Cost int64
}

// String is "refuse", "default" or the cost.
func (u UnreadableBody) String() string {
	switch {
	case u.Cost > 0:
		return strconv.FormatInt(u.Cost, 10)
	case u.AsNone:
		return "default"
	}
	return "refuse"
}

func parseUnreadable(text string) (UnreadableBody, error) {
	switch text {
	case "refuse":
		return UnreadableBody{Given: true}, nil
	case "default":
		return UnreadableBody{Given: true, AsNone: true}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return UnreadableBody{Given: true, Cost: n}, nil
	}
	return UnreadableBody{}, fmt.Errorf("unreadable_body %q: must be refuse, default, or the cost of such a request", expr.Clip(text))
}

// readsBody reports whether an expression of r, or its tokens, may look at a request's body.
func (r *Rule) readsBody() bool {
	uses := func(e *expr.Expression) bool { return e != nil && e.Uses("body") }
	for _, e := range r.costs {
		if uses(e) {
			return true
		}
	}
	return uses(r.match) || uses(r.key) || uses(r.cost) || r.Tokens.API != NoTokens && r.cost == nil
}

// unreadable is how r treats unreadable bodies.
func (r *Rule) unreadable() UnreadableBody {
	if u := r.Unreadable; u.Given || r.Tokens.API == NoTokens || r.cost != nil {
		return u
	}
	return UnreadableBody{AsNone: true}
}

// readsLeniently makes r's expressions take an unreadable body for one without fields, if r says so.
func (r *Rule) readsLeniently(ev *evaluation) {
	u := r.unreadable()
	ev.scope.LenientBody = u.AsNone || u.Cost > 0
}

// costIn is numberIn, or the cost of an unreadable body.
func (r *Rule) costIn(ev *evaluation, e *expr.Expression) (n int64, unread bool, err error) {
	u := r.unreadable()
	ev.scope.LenientBody = u.AsNone
	n, err = numberIn(ev, e)
	if u.Cost > 0 {
		ev.scope.LenientBody = true
		if errors.Is(err, ErrUnreadable) {
			return u.Cost, true, nil
		}
	}
	return n, false, err
}
