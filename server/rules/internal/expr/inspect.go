package expr

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// inspector finds parts that have the right types and yet cannot work.
type inspector struct {
	checked  *cel.Ast
	problems []Problem
	outside  []Use
	proper   map[int64]bool // secrets as arguments of hmac, and operands whose fields are read, by id
	headers  []string       // literal names
	paths    [][]string     // into response.json
	maps     int            // uses of request.headers for anything else
	attrs    []string       // literal names
	anyAttr  int            // uses of attrs for anything else
}

func inspect(checked *cel.Ast, when phase) *inspector {
	i := &inspector{checked: checked, proper: map[int64]bool{}}
	root := checked.NativeRep().Expr()
	i.allKnown(when)
	ast.PostOrderVisit(root, ast.NewExprVisitor(i.visit))
	ast.PostOrderVisit(root, ast.NewExprVisitor(i.secretsStay))
	ast.PreOrderVisit(root, ast.NewExprVisitor(i.fieldOf))
	return i
}

// allKnown refuses variables that are not known when the expression is evaluated.
func (i *inspector) allKnown(when phase) {
	ast.PostOrderVisit(i.checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		name := variableOf(i.checked.NativeRep(), e)
		if name == "" || phaseOf(name) == when {
			return
		}
		if when == after {
			i.note(e, "%s: cost_after is evaluated after the request, and sees only the response (variables: %s)", name, strings.Join(after.variables(), ", "))
		} else {
			i.note(e, "%s: only cost_after sees the response", name)
		}
	}))
}

// fieldOf refuses every use of body and response.json except their fields, and records the paths of
// response.json's: nothing else is looked for while a response passes. It visits a field before its operand.
func (i *inspector) fieldOf(e ast.Expr) {
	if i.proper[e.ID()] {
		return
	}
	var path []string
	for of, name, ok := e, "", true; ok; {
		switch {
		case i.isVariable(of, "response.json") && len(path) > 0:
			slices.Reverse(path)
			if !slices.ContainsFunc(i.paths, func(p []string) bool { return slices.Equal(p, path) }) {
				i.paths = append(i.paths, path)
			}
			return
		case i.isVariable(of, "response.json"):
			i.note(e, "response.json is read field by field, as in response.json.usage.total_tokens")
			return
		case i.isVariable(of, "body") && len(path) == 0:
			i.note(e, "body is read field by field, as in body.max_tokens")
			return
		}
		if of, name, ok = field(of); ok {
			path = append(path, name)
			i.proper[of.ID()] = true
		}
	}
}

// field returns the operand of which e is a field, and the field's literal name.
func field(e ast.Expr) (of ast.Expr, name string, ok bool) {
	switch {
	case e.Kind() == ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName(), true
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
		name, ok = literal(e.AsCall().Args()[1])
		return e.AsCall().Args()[0], name, ok
	}
	return nil, "", false
}

func (i *inspector) note(e ast.Expr, format string, args ...any) {
	i.problems = append(i.problems, Problem{startOf(i.checked, e.ID()), fmt.Sprintf(format, args...)})
}

func (i *inspector) visit(e ast.Expr) {
	if i.isHeaders(e) {
		i.maps++ // headerName takes it back
	}
	if i.isVariable(e, "attrs") {
		i.anyAttr++ // attribute takes it back
	}
	if e.Kind() == ast.SelectKind {
		i.headerName(e.AsSelect().Operand(), e, e.AsSelect().FieldName())
		i.attribute(e.AsSelect().Operand(), e.AsSelect().FieldName())
	}
	if e.Kind() != ast.CallKind {
		return
	}
	args := e.AsCall().Args()
	switch name := e.AsCall().FunctionName(); {
	case name == overloads.Matches:
		i.pattern(args[len(args)-1])
	case name == "cidr":
		if text, ok := literal(args[0]); ok {
			if _, err := ParseNetwork(text, nil); err != nil {
				i.note(args[0], "%s", err)
			}
		}
	case name == "hmac":
		i.takesSecret(args[0])
	case name == listFunction:
		if text, ok := literal(args[0]); ok {
			i.outside = append(i.outside, Use{true, text, startOf(i.checked, args[0].ID())})
		} else {
			i.note(args[0], `the name of a list must be a literal string, as in client.ip in list("bad")`)
		}
	case name == operators.Index:
		if text, ok := literal(args[1]); ok {
			i.headerName(args[0], args[1], text)
			i.attribute(args[0], text)
		}
	case name == operators.In:
		if text, ok := literal(args[0]); ok {
			i.headerName(args[1], args[0], text)
			i.attribute(args[1], text)
		}
	}
}

func (i *inspector) isVariable(e ast.Expr, name string) bool {
	return variableOf(i.checked.NativeRep(), e) == name
}

func (i *inspector) isHeaders(e ast.Expr) bool { return i.isVariable(e, "request.headers") }

// pattern refuses patterns that a request could choose, because compiling is expensive.
func (i *inspector) pattern(e ast.Expr) {
	text, ok := literal(e)
	if !ok {
		i.note(e, "the pattern of matches must be a literal string")
	} else if _, err := patternSteps(text); err != nil {
		i.note(e, "%s", err)
	}
}

// headerName records the field name at e, if the map has headers.
func (i *inspector) headerName(of, e ast.Expr, name string) {
	requests := i.isHeaders(of)
	if !requests && !i.isVariable(of, "response.headers") {
		return
	}
	if requests {
		i.maps--
	}
	switch lower := strings.ToLower(name); {
	case name != lower:
		i.note(e, "header names are in lower case: %q", lower)
	case !requests:
	case name == "host":
		i.note(e, "the Host header is request.host, not one of request.headers")
	default:
		i.headers = append(i.headers, name)
	}
}

// attribute records the field name, if the map has attributes.
func (i *inspector) attribute(of ast.Expr, name string) {
	if i.isVariable(of, "attrs") {
		i.anyAttr--
		i.attrs = append(i.attrs, name)
	}
}

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

func (i *inspector) takesSecret(e ast.Expr) {
	var of ast.Expr
	var name string
	var ok bool
	switch {
	case e.Kind() == ast.SelectKind:
		of, name, ok = e.AsSelect().Operand(), e.AsSelect().FieldName(), !e.AsSelect().IsTestOnly()
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
		of = e.AsCall().Args()[0]
		name, ok = literal(e.AsCall().Args()[1])
	}
	if !ok || !i.isVariable(of, "secrets") {
		i.note(e, "hmac takes a secret, as in hmac(secrets.pepper, client.ip)")
		return
	}
	i.proper[of.ID()] = true
	i.outside = append(i.outside, Use{false, name, startOf(i.checked, of.ID())})
}

// secretsStay refuses every use of secrets except hmac(secrets.NAME, …).
func (i *inspector) secretsStay(e ast.Expr) {
	if i.isVariable(e, "secrets") && !i.proper[e.ID()] && len(i.problems) == 0 {
		i.note(e, "secrets are for hmac only, as in hmac(secrets.pepper, client.ip)")
	}
}
