// Package expr compiles and evaluates the expressions of rules. They are written in CEL
// (https://cel.dev), and this is the only package that imports it. It knows nothing of
// files, rules or limits.
//
//	c := expr.NewCompiler(ctx) // one for all expressions that share bounds
//	e, problems := c.Compile(`client.ip in cidr("192.0.2.0/24")`, expr.Condition)
//
//	var s expr.Scope // one for each goroutine, used again and again
//	s.Open(expr.Variables{Client: addr})
//	ok, err := e.True(&s)
//	s.Close()
//
// A [Compiler] checks types and refuses expressions that cannot work. An [Expression] never changes and may
// be used from many goroutines at once. A caller can evaluate it, or ask what it reads (Variables, Headers,
// Outside), what is known of its value before any request (FixedBool, Parts, IsHash and so on) and why it was
// not true ([Expression.WhyFalse]).
//
// # Bounds
//
// Files and requests may be hostile. The Max constants bound an expression before it is compiled (length,
// depth, patterns), while its constant parts are worked out (MaxFolded), and while it is evaluated.
// Expressions whose work a request could multiply are counted step by step and fail beyond MaxWork; all
// others skip the counting, which costs allocations (see isCounted).
//
// # Missing values
//
// A variable, header, attribute or index that is not there is missing, and so is an expression that needs it.
// That is not an error: True is false then, Int and Key have no value. If one operand of || or && is missing
// and another fails, the failure counts.
package expr

import (
	"fmt"
	"math"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/stintdev/stint/internal/address"
)

// Expression is a compiled expression.
type Expression struct {
	only onlyPath // first, because True reads it for every rule, and often nothing else

	// Source is the expression as written, without the blanks around it.
	Source string
	// Variable is set if the expression is just this variable; empty: there is more.
	Variable string
	// IsList: the value is a list. Parts is its number of elements; 0: that depends.
	IsList bool
	Parts  int
	// IsHash: the value is a hash, as of sha256 or hmac.
	IsHash bool
	// Variables are the names of all variables that it reads, in order.
	Variables []string
	// Headers are the literal names that it reads in request.headers, in lower case.
	Headers []string
	// AnyHeader: it may read other headers, too.
	AnyHeader bool
	// Attrs are the literal names that it reads in attrs.
	Attrs []string
	// AnyAttr: it may read other attributes, too.
	AnyAttr bool
	// JSONPaths are the fields of response.json that it reads, each once: field names from the root.
	JSONPaths [][]string
	// Outside are the secrets and lists that it names, and where.
	Outside []Use
	// Hints are comparisons that are surely not meant as written, such as of request.path with a text without
	// a slash.
	Hints []Problem
	// Patterns are comparisons with what looks like a pattern, such as of request.path with "/a/*".
	Patterns []Problem
	// Guards are those that were found for a Condition, each enough by itself.
	Guards []Guard

	// One of constant, Variable and program is set. The first two need no CEL to evaluate.
	constant ref.Val
	program  cel.Program
	folded   ref.Val // the value of a program that reads nothing of a request
	nat64    address.NAT64
}

// Use is where an expression names a secret or a list, Offset characters from its beginning.
type Use struct {
	IsList bool // else a secret
	Name   string
	Offset int
}

// Uses reports whether e reads a variable, such as "request.path".
func (e *Expression) Uses(variable string) bool { return slices.Contains(e.Variables, variable) }

// True is the value of a Condition; missing is false.
func (e *Expression) True(s *Scope) (bool, error) {
	if e.only.excludes(s) {
		return false, nil
	}
	v, err := e.eval(s)
	return v == types.True, err
}

// Int is the value of a Number, rounded up; ok is false if it is missing or null.
func (e *Expression) Int(s *Scope) (n int64, ok bool, err error) {
	v, err := e.eval(s)
	if v == nil || err != nil {
		return 0, false, err
	}
	return wholeNumber(v)
}

// wholeNumber is the value of a Number: a JSON number may have any numeric type.
func wholeNumber(v ref.Val) (n int64, ok bool, err error) {
	switch v := v.(type) {
	case types.Int:
		return int64(v), true, nil
	case types.Uint:
		if v <= math.MaxInt64 {
			return int64(v), true, nil
		}
	case types.Double:
		if up := math.Ceil(float64(v)); math.Abs(up) <= 1<<53 { // false for NaN
			return int64(up), true, nil
		}
	case types.Null:
		return 0, false, nil
	default:
		return 0, false, fmt.Errorf("want a number, have a %s", v.Type().TypeName())
	}
	return 0, false, fmt.Errorf("%v: too large", v.Value())
}

// Key is the text of a Key, perhaps empty, and cut off soon after most bytes; ok is false if it is missing or
// null, or a part is null. In a list, a NUL byte, which no part has, follows each part.
func (e *Expression) Key(s *Scope, most int) (key string, ok bool, err error) {
	s.inKey = true
	v, err := e.eval(s)
	s.inKey = false
	if v == nil || err != nil {
		return "", false, err
	}
	return keyText(v, most)
}

// FixedBool is the value of a Condition that does not depend on the request.
func (e *Expression) FixedBool() (value, ok bool) {
	b, ok := e.fixed().(types.Bool)
	return bool(b), ok
}

// FixedInt is the value of a Number that does not depend on the request.
func (e *Expression) FixedInt() (n int64, ok bool) {
	v := e.fixed()
	if v == nil {
		return 0, false
	}
	n, ok, err := wholeNumber(v)
	return n, ok && err == nil
}

// FixedKey is Key of a Key that does not depend on the request; ok is false if it does, or is null.
func (e *Expression) FixedKey(most int) (key string, ok bool, err error) {
	v := e.fixed()
	if v == nil {
		return "", false, nil
	}
	return keyText(v, most)
}

// fixed is the value that e has for every request; nil: it depends on the request.
func (e *Expression) fixed() ref.Val {
	if e.constant != nil {
		return e.constant
	}
	return e.folded
}

// eval returns nil without an error if the value is missing.
func (e *Expression) eval(s *Scope) (ref.Val, error) {
	var v ref.Val
	var err error
	switch {
	case e.constant != nil:
		return e.constant, nil
	case e.Variable != "":
		value, _ := s.ResolveName(e.Variable)
		v = value.(ref.Val)
		if failed, ok := v.(*types.Err); ok {
			err = failed
		}
	default:
		v, _, err = e.program.Eval(s)
	}
	if isMissing(err) {
		return nil, nil
	}
	return v, err
}
