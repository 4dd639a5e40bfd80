package expr

import (
	"errors"
	"reflect"

	"cel.dev/cel-go/common/containers"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// missingError is why a variable without a value has none.
type missingError struct{}

func (missingError) Error() string { return "not known of this request" }

// missing is the value of a variable that has none: an error, so that it spreads
// through an expression as a missing header does. CEL notes in an error where it
// first met it unless it is noted already; with an id from the start, this one, which
// all requests share, is never written to.
var missing = types.NewErrWithNodeID(-1, "%w", missingError{}).(*types.Err)

func init() {
	// These belong to CEL, which would write to them, unguarded, when they first
	// occur.
	types.LabelErrNode(-1, types.NoSuchOverloadErr())
	types.LabelErrNode(-1, types.String("0000-01-01T00:00:00Z").ConvertToType(types.TimestampType))
}

// noSuchKey is the type of CEL's errors for a key or index that is not there.
// CEL neither exports it nor wraps a value that could be compared; its text
// would be no proof, because it quotes what a request says. So we provoke one.
var noSuchKey = func() reflect.Type {
	attributes := interpreter.NewAttributeFactory(
		containers.DefaultContainer, types.DefaultTypeAdapter, types.NewEmptyRegistry())
	key, err := attributes.NewQualifier(nil, 1, "key", false)
	if err == nil {
		_, err = key.Qualify(interpreter.EmptyActivation(), map[string]string{})
	}
	return reflect.TypeOf(err)
}()

// isMissing reports whether an expression lacked a value that it needed; otherwise it failed.
func isMissing(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if _, ok := err.(missingError); ok || reflect.TypeOf(err) == noSuchKey {
			return true
		}
	}
	return false
}

// isMissingValue is isMissing of a value that may be an error.
func isMissingValue(v ref.Val) bool {
	err, ok := v.(*types.Err)
	return ok && isMissing(err)
}
