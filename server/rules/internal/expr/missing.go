package expr

import (
	"errors"
	"reflect"

	"cel.dev/cel-go/common/containers"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

type missingError struct{}

func (missingError) Error() string { return "not known of this request" }

// missing spreads through an expression. CEL writes into an error where it met it, unless the error has an
// id: with one, this value, which all requests share, is never written.
var missing = types.NewErrWithNodeID(-1, "%w", missingError{}).(*types.Err)

func init() {
	// CEL would write to these, without a lock, when they first occur.
	types.LabelErrNode(-1, types.NoSuchOverloadErr())
	types.LabelErrNode(-1, types.String("0000-01-01T00:00:00Z").ConvertToType(types.TimestampType))
}

// noSuchKey is the type of CEL's errors for a missing key or index. CEL does not export it, and its text may
// quote a request, so we provoke one.
var noSuchKey = func() reflect.Type {
	attributes := interpreter.NewAttributeFactory(
		containers.DefaultContainer, types.DefaultTypeAdapter, types.NewEmptyRegistry())
	key, err := attributes.NewQualifier(nil, 1, "key", false)
	if err == nil {
		_, err = key.Qualify(interpreter.EmptyActivation(), map[string]string{})
	}
	return reflect.TypeOf(err)
}()

// isMissing reports whether an expression lacked a value; otherwise it failed.
func isMissing(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if _, ok := err.(missingError); ok || reflect.TypeOf(err) == noSuchKey {
			return true
		}
	}
	return false
}

func isMissingValue(v ref.Val) bool {
	err, ok := v.(*types.Err)
	return ok && isMissing(err)
}
