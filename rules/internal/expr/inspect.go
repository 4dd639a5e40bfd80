package expr

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// inspector finds what has the right types and yet cannot work.
type inspector struct {
	checked  *cel.Ast
	problems []Problem
	secrets  []SecretUse
	proper   map[int64]bool // uses of the variable secrets as an argument of hmac, by id
	headers  []string       // that are asked for literally
	maps     int            // uses of request.headers for anything else
}

func inspect(checked *cel.Ast) *inspector {
	i := &inspector{checked: checked, proper: map[int64]bool{}}
	root := checked.NativeRep().Expr()
	ast.PostOrderVisit(root, ast.NewExprVisitor(i.visit))
	ast.PostOrderVisit(root, ast.NewExprVisitor(i.secretsStay))
	return i
}

func (i *inspector) note(e ast.Expr, format string, args ...any) {
	i.problems = append(i.problems, Problem{startOf(i.checked, e.ID()), fmt.Sprintf(format, args...)})
}

func (i *inspector) visit(e ast.Expr) {
	if i.isHeaders(e) {
		i.maps++ // headerName takes it back
	}
	if e.Kind() == ast.SelectKind {
		if s := e.AsSelect(); i.isHeaders(s.Operand()) {
			i.headerName(e, s.FieldName())
		}
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
			if _, err := ParseNetwork(text); err != nil {
				i.note(args[0], "%s", err)
			}
		}
	case name == "hmac":
		i.takesSecret(args[0])
	case name == operators.Index && i.isHeaders(args[0]):
		if text, ok := literal(args[1]); ok {
			i.headerName(args[1], text)
		}
	case name == operators.In && i.isHeaders(args[1]):
		if text, ok := literal(args[0]); ok {
			i.headerName(args[0], text)
		}
	}
}

func (i *inspector) isVariable(e ast.Expr, name string) bool {
	named := i.checked.NativeRep().ReferenceMap()[e.ID()]
	return named != nil && named.Name == name
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

func (i *inspector) headerName(e ast.Expr, name string) {
	i.maps--
	switch lower := strings.ToLower(name); {
	case name != lower:
		i.note(e, "names in request.headers are in lower case: %q", lower)
	case name == "host":
		i.note(e, "the Host header is request.host, not one of request.headers")
	default:
		i.headers = append(i.headers, name)
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
	i.secrets = append(i.secrets, SecretUse{name, startOf(i.checked, of.ID())})
}

// secretsStay refuses every use of secrets but hmac(secrets.NAME, …).
func (i *inspector) secretsStay(e ast.Expr) {
	if i.isVariable(e, "secrets") && !i.proper[e.ID()] && len(i.problems) == 0 {
		i.note(e, "secrets are for hmac only, as in hmac(secrets.pepper, client.ip)")
	}
}
