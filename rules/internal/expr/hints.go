package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// judgement finds what in a condition cannot be true, or is so always. It says so
// only where it is certain: of what it does not understand, it says nothing.
type judgement struct {
	tree   *ast.AST
	folded map[int64]ref.Val // see plan
}

// mostVain is how much is told of one condition.
const mostVain = 10

// judge sets what is known of a condition before any request.
func (e *expression) judge(checked *cel.Ast, folded map[int64]ref.Val) {
	if checked.OutputType().Kind() != types.BoolKind {
		return
	}
	j := &judgement{checked.NativeRep(), folded}
	root := j.tree.Expr()
	e.always = j.is(root, types.True)
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(part ast.Expr) {
		for _, l := range j.comparedWith(part) {
			if len(e.vain) == mostVain {
				return
			}
			if why := wrongText(l.subject, l.text); why != "" {
				e.vain = append(e.vain, problem{startOf(checked, l.id), why})
			}
		}
	}))
	if len(e.vain) == 0 && j.never(root) {
		e.vain = []problem{{0, "this is never true, so it never applies: its parts exclude each other, or one is false"}}
	}
}

// value is what e is for every request; nil: that depends.
func (j *judgement) value(e ast.Expr) ref.Val {
	if e.Kind() == ast.LiteralKind {
		return e.AsLiteral()
	}
	return j.folded[e.ID()]
}

// is tells whether e is want for every request, never missing and never an error.
func (j *judgement) is(e ast.Expr, want types.Bool) bool {
	if v := j.value(e); v != nil {
		return v == want
	}
	if e.Kind() != ast.CallKind {
		return false
	}
	args := e.AsCall().Args()
	isWant := func(e ast.Expr) bool { return j.is(e, want) }
	switch e.AsCall().FunctionName() {
	case operators.LogicalNot:
		return j.is(args[0], !want)
	case operators.LogicalOr, operators.LogicalAnd:
		decides := types.Bool(e.AsCall().FunctionName() == operators.LogicalOr)
		if want == decides { // one is enough, whatever the others come to
			return slices.ContainsFunc(args, isWant)
		}
		return all(args, isWant)
	}
	return false
}

// never tells whether e is true for no request. It may be missing or an error for
// some.
func (j *judgement) never(e ast.Expr) bool {
	if v := j.value(e); v != nil {
		return v != types.True
	}
	if e.Kind() != ast.CallKind {
		return false
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.LogicalNot:
		return j.is(args[0], types.True)
	case operators.LogicalOr:
		return all(args, j.never)
	case operators.LogicalAnd:
		return slices.ContainsFunc(args, j.never) || j.disjoint(j.conjuncts(e))
	case operators.Conditional:
		return (j.never(args[0]) || j.never(args[1])) && (j.is(args[0], types.True) || j.never(args[2]))
	}
	return false
}

func all(list []ast.Expr, f func(ast.Expr) bool) bool {
	return !slices.ContainsFunc(list, func(e ast.Expr) bool { return !f(e) })
}

// conjuncts are what all must be true for e to be.
func (j *judgement) conjuncts(e ast.Expr) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return []ast.Expr{e}
	}
	var list []ast.Expr
	for _, arg := range e.AsCall().Args() {
		list = append(list, j.conjuncts(arg)...)
	}
	return list
}

// disjoint tells whether two of the terms demand different texts of one variable.
func (j *judgement) disjoint(terms []ast.Expr) bool {
	demanded := map[string][]string{}
	for _, term := range terms {
		subject, texts := j.demands(term)
		if subject == "" {
			continue
		}
		if before, ok := demanded[subject]; ok {
			texts = slices.DeleteFunc(texts, func(t string) bool { return !slices.Contains(before, t) })
			if len(texts) == 0 {
				return true
			}
		}
		demanded[subject] = texts
	}
	return false
}

// demands is a variable that must have one of these texts for e to be true; "":
// nothing is known.
func (j *judgement) demands(e ast.Expr) (subject string, texts []string) {
	if e.Kind() != ast.CallKind {
		return "", nil
	}
	switch e.AsCall().FunctionName() {
	case operators.LogicalOr:
		for i, arg := range e.AsCall().Args() {
			s, t := j.demands(arg)
			if s == "" || i > 0 && s != subject {
				return "", nil
			}
			subject, texts = s, append(texts, t...)
		}
	case operators.Equals, operators.In:
		for _, l := range j.comparedWith(e) {
			subject, texts = l.subject, append(texts, l.text)
		}
	}
	return subject, texts
}

// compared is a literal text that a variable is compared with.
type compared struct {
	subject, text string
	id            int64 // of the literal
}

// comparedWith are the literals that e, by ==, !=, in, startsWith, is or under, compares
// a variable with; nil if there are others beside them.
func (j *judgement) comparedWith(e ast.Expr) []compared {
	if e.Kind() != ast.CallKind {
		return nil
	}
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case operators.Equals, operators.NotEquals:
		for i, arg := range args {
			if text, ok := literal(args[1-i]); ok && j.subject(arg) != "" {
				return []compared{{j.subject(arg), text, args[1-i].ID()}}
			}
		}
	case operators.In:
		if args[1].Kind() != ast.ListKind || j.subject(args[0]) == "" {
			return nil
		}
		var list []compared
		for _, element := range args[1].AsList().Elements() {
			text, ok := literal(element)
			if !ok {
				return nil
			}
			list = append(list, compared{j.subject(args[0]), text, element.ID()})
		}
		return list
	case overloads.StartsWith, isPath, underPath:
		if text, ok := literal(args[0]); ok && isOfPath(j.tree, call, call.FunctionName()) {
			return []compared{{"the start of request.path", text, args[0].ID()}}
		}
	}
	return nil
}

// subject names a variable, or a field of one; "": e is none.
func (j *judgement) subject(e ast.Expr) string {
	if named := j.tree.ReferenceMap()[e.ID()]; named != nil && named.Value == nil && isVariable(named.Name) {
		return named.Name
	}
	var of, field string
	switch e.Kind() {
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			of, field = j.subject(s.Operand()), s.FieldName()
		}
	case ast.CallKind:
		c := e.AsCall()
		if isOfPath(j.tree, c, foldedPath) {
			return "request.path.folded()"
		}
		if c.FunctionName() == operators.Index {
			if text, ok := literal(c.Args()[1]); ok {
				of, field = j.subject(c.Args()[0]), text
			}
		}
	}
	if of == "" {
		return ""
	}
	return of + "[" + strconv.Quote(field) + "]"
}

// wrongText says why a variable cannot have a text; "": it can.
func wrongText(subject, text string) string {
	switch subject {
	case "request.path", "the start of request.path":
		switch {
		case text == "":
		case text[0] != '/':
			return fmt.Sprintf("request.path begins with a slash: it is never %q; write %q", clip(text), clip("/"+text))
		case strings.Contains(text, "?"):
			return fmt.Sprintf("request.path is without the query: ? in %q stands for an escaped one, %%3F; compare request.query", clip(text))
		case strings.Contains(text, "#"):
			return fmt.Sprintf("a fragment is never sent: # in %q stands for an escaped one, %%23", clip(text))
		}
	case "request.path.folded()":
		if folded := FoldPath(text); text != folded {
			return fmt.Sprintf("request.path.folded() is never %q: write %q", clip(text), clip(folded))
		}
	case "request.method":
		if upper := strings.ToUpper(text); text != upper {
			return fmt.Sprintf("methods are in upper case, and no usual client sends %q: write %q", clip(text), clip(upper))
		}
	case "client.ip":
		return wrongAddress(text)
	}
	return ""
}

func wrongAddress(text string) string {
	a, err := netip.ParseAddr(text)
	if err == nil {
		if canonical := plainAddr(a).String(); canonical != text {
			return fmt.Sprintf("client.ip is never written %q: write %q", clip(text), canonical)
		}
		return ""
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return fmt.Sprintf(`client.ip is an address and never %q: write client.ip in cidr("%s")`, text, p)
	}
	return fmt.Sprintf("client.ip is never %q, which is no address", clip(text))
}
