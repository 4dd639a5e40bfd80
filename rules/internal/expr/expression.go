package rules

import (
	"errors"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// expression is a compiled one. It is any of three: a constant, a variable, which
// need no CEL, or a program.
type expression struct {
	source   string // as written, to be shown
	constant ref.Val
	variable string
	program  cel.Program
	// isList tells that its value is a list, whatever a request holds, and parts
	// of how many; 0: that depends.
	isList bool
	parts  int
	hashed bool   // its value is a hash: of sha256 or hmac
	only   onlyAt // of a program
	// folded is the value of a program that needs nothing of a request, always
	// tells that one which does is true whatever that holds.
	folded ref.Val
	always bool
	// reads is what of a request's target and method would make it read the wrong thing.
	reads Ambiguity
	// secrets are those that it names, and claims tells whether it uses claims.
	secrets []secretUse
	claims  bool
	// headers are the names, in lower case, of those that it asks for literally.
	headers []string
	// vain is what cannot be true in it; gone once it has been told.
	vain []problem
}

// fixed is the value that e has for every request; nil where there is none.
func (e *expression) fixed() ref.Val {
	if e.constant != nil {
		return e.constant
	}
	return e.folded
}

// eval is the expression's value; nil without an error where it is missing.
func (e *expression) eval(s *scope) (ref.Val, error) {
	var v ref.Val
	var err error
	switch {
	case e.constant != nil:
		return e.constant, nil
	case e.variable != "":
		value, _ := s.ResolveName(e.variable)
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

// isTrue is the value of a bool expression; a missing one is false.
func (e *expression) isTrue(s *scope) (bool, error) {
	if e.only.not(s) {
		return false, nil
	}
	v, err := e.eval(s)
	return v == types.True, err
}

// field says what the expression of a field must be.
type field struct {
	want string
	fits func(*cel.Type) bool
	hint string
}

var (
	condition = &field{want: "a bool", fits: isKind(types.BoolKind), hint: `compare it, as in attrs.plan == "free"`}
	number    = &field{want: "an int", fits: isKind(types.IntKind), hint: "convert it, as in int(attrs.size)"}
	subject   = &field{want: "a string, number, bool or null, or a list of those", fits: fitsKey, hint: "convert it, as in string(attrs.id)"}
)

func isKind(kinds ...types.Kind) func(*cel.Type) bool {
	return func(t *cel.Type) bool { return slices.Contains(kinds, t.Kind()) }
}

var fitsPart = isKind(types.StringKind, types.IntKind, types.UintKind, types.DoubleKind,
	types.BoolKind, types.DynKind, types.NullTypeKind)

func fitsKey(t *cel.Type) bool {
	if t.Kind() == types.ListKind {
		t = t.Parameters()[0]
	}
	return fitsPart(t)
}

// compiled makes the expression of a checked tree.
func (b *budget) compiled(checked *cel.Ast) (*expression, error) {
	tree := checked.NativeRep()
	e := &expression{reads: readsOf(tree)}
	root := tree.Expr()
	if root.Kind() == ast.LiteralKind {
		e.constant = root.AsLiteral()
		e.judge(checked, nil)
		return e, nil
	}
	if named := tree.ReferenceMap()[root.ID()]; named != nil && named.Value == nil && isVariable(named.Name) {
		e.variable = named.Name
		return e, nil
	}
	plan := newPlan(checked)
	e.only = onlyPath(tree, root)
	var err error
	if e.program, err = language().Program(checked, programOptions(plan)...); err != nil {
		return e, err
	}
	if err := b.take(plan); err != nil {
		return e, err
	}
	e.folded = plan.folded[root.ID()]
	e.judge(checked, plan.folded)
	return e, nil
}

// readsOf is what is ambiguous to an expression that uses these variables.
func readsOf(tree *ast.AST) (a Ambiguity) {
	for _, named := range tree.ReferenceMap() {
		switch named.Name {
		case "request.path":
			a |= PathAmbiguity
		case "request.query":
			a |= QueryAmbiguity
		case "request.method":
			a |= MethodCase
		}
	}
	return a
}

// foldProblem is the place and text of an error found while planning, if it is
// one of those.
func foldProblem(err error, checked *cel.Ast) (offset int, text string) {
	var fold foldError
	if errors.As(err, &fold) {
		return startOf(checked, fold.NodeID()), fold.Error()
	}
	return 0, err.Error()
}

// startOf is where in its source a part of an expression is, in characters.
func startOf(checked *cel.Ast, id int64) int {
	if place, ok := checked.NativeRep().SourceInfo().GetOffsetRange(id); ok {
		return int(place.Start)
	}
	return 0
}
