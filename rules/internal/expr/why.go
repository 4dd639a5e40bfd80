package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// whyFalse says of a match that is not true why, and which part of it decided.
func (e *expression) whyFalse(ctx context.Context, sc *scope) string {
	v, err := e.eval(sc)
	if v == nil && err == nil {
		return "match needs " + e.whatIsMissing(sc)
	}
	why := "match is false: " + clip(e.source)
	if part := e.falsePart(ctx, sc); part != "" {
		why = "match is false, because this part of it is: " + clip(part)
	}
	if e.only.known && e.only.not(sc) && sc.foldedPath() == FoldPath(e.only.path) {
		why += fmt.Sprintf("; to some servers this path is %q, and request.path.is(%[1]q) is true of it", clip(e.only.path))
	}
	return why
}

// falsePart is the first of the parts joined by && that is false; empty where
// there are no parts, or none of them can be told.
func (e *expression) falsePart(ctx context.Context, sc *scope) string {
	checked := dissect(e.source)
	if checked == nil {
		return ""
	}
	parts := conjuncts(checked.NativeRep().Expr(), nil)
	if len(parts) < 2 {
		return ""
	}
	for _, part := range parts {
		if ctx.Err() != nil {
			return ""
		}
		text, err := cel.ExprToString(part, checked.NativeRep().SourceInfo())
		if err != nil {
			continue
		}
		alone, problems := (&compiler{headerNames: map[string]string{}, budget: newBudget(ctx)}).check(text, condition)
		if len(problems) > 0 {
			continue
		}
		if v, err := alone.eval(sc); err == nil && v == types.False {
			return text
		}
	}
	return ""
}

// conjuncts appends to parts what e joins by &&.
func conjuncts(e ast.Expr, parts []ast.Expr) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return append(parts, e)
	}
	for _, arg := range e.AsCall().Args() {
		parts = conjuncts(arg, parts)
	}
	return parts
}

// whatIsMissing names what an expression needs that the request does not have.
func (e *expression) whatIsMissing(sc *scope) string {
	if e.variable != "" {
		return e.variable + ", which is not known of this request"
	}
	checked := dissect(e.source)
	if checked == nil {
		return "something that is missing: " + clip(e.source)
	}
	if text := absent(checked, sc); text != "" {
		return clip(text) + ", which is missing"
	}
	if names := unknownVariables(checked, sc); len(names) > 0 {
		return strings.Join(names, " and ") + ", which this request does not tell"
	}
	return "something that is missing: " + clip(e.source)
}

// tracking is the language, and keeps macros as written, which expressions in use
// do without.
var tracking = sync.OnceValue(func() *cel.Env {
	env, err := language().Extend(cel.EnableMacroCallTracking())
	if err != nil {
		panic("rules: the language cannot be extended: " + err.Error())
	}
	return env
})

// dissect compiles once more what was compiled, to look into it; nil where that
// fails.
func dissect(source string) *cel.Ast {
	checked, issues := tracking().Compile(source)
	if issues.Err() != nil {
		return nil
	}
	return checked
}

// absent is the part of an expression that stands for a header, an attribute or
// the like that is not there; empty where CEL does not tell it.
func absent(checked *cel.Ast, sc *scope) string {
	program, err := language().Program(checked, programOptions(newPlan(checked))...)
	if err != nil {
		return ""
	}
	v, _, _ := program.Eval(sc)
	failed, ok := v.(*types.Err)
	if !ok || failed.NodeID() <= 0 {
		return ""
	}
	var text string
	ast.PostOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.ID() == failed.NodeID() {
			text, _ = cel.ExprToString(e, checked.NativeRep().SourceInfo())
		}
	}))
	return text
}

// unknownVariables are the variables of an expression without a value.
func unknownVariables(checked *cel.Ast, sc *scope) []string {
	var names []string
	for _, ref := range checked.NativeRep().ReferenceMap() {
		if v, ok := sc.ResolveName(ref.Name); ok && v == missing && !slices.Contains(names, ref.Name) {
			names = append(names, ref.Name)
		}
	}
	slices.Sort(names)
	return names
}
