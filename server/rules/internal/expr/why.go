package expr

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/stintdev/stint/internal/address"
)

// WhyFalse says why a Condition is not true, and which part of it decided.
func (e *Expression) WhyFalse(ctx context.Context, s *Scope) string {
	v, err := e.eval(s)
	if v == nil && err == nil {
		return "match needs " + e.whatIsMissing(s)
	}
	why := "match is false: " + Clip(e.Source)
	if part := e.falsePart(ctx, s); part != "" {
		why = "match is false, because this part of it is: " + Clip(part)
	}
	if e.only.known && e.only.excludes(s) && s.foldedPath() == FoldPath(e.only.path) {
		why += fmt.Sprintf("; to some servers this path is %q, and request.path.is(%[1]q) is true of it", Clip(e.only.path))
	}
	return why
}

// WhyKeyless says why Key has no text for the request.
func (e *Expression) WhyKeyless(s *Scope) string {
	s.inKey = true
	defer func() { s.inKey = false }()
	if v, err := e.eval(s); v != nil || err != nil {
		return "is null, or has a part that is: " + Clip(e.Source)
	}
	return "needs " + e.whatIsMissing(s)
}

// Needs are the variables that e reads and the request lacks, if that is why e has no value.
func (e *Expression) Needs(s *Scope) (names []string) {
	if v, err := e.eval(s); v != nil || err != nil {
		return nil
	}
	for _, name := range e.Variables {
		if v, ok := s.ResolveName(name); ok && v == missing {
			names = append(names, name)
		}
	}
	return names
}

// falsePart is the first part joined by && that is false; else empty.
func (e *Expression) falsePart(ctx context.Context, s *Scope) string {
	checked := dissect(e.Source)
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
		c := NewCompiler(ctx)
		c.NAT64 = e.nat64
		alone, problems := c.Compile(text, Condition)
		if len(problems) > 0 {
			continue
		}
		if v, err := alone.eval(s); err == nil && v == types.False {
			return text
		}
	}
	return ""
}

// Conjuncts are the parts of a condition that && joins, in a common spelling regardless of spaces; nil: not
// known.
func (e *Expression) Conjuncts() (all []string) {
	checked := dissect(e.Source)
	if checked == nil {
		return nil
	}
	for _, part := range conjuncts(checked.NativeRep().Expr(), nil) {
		text, err := cel.ExprToString(part, checked.NativeRep().SourceInfo())
		if err != nil {
			return nil
		}
		all = append(all, text)
	}
	return all
}

func conjuncts(e ast.Expr, parts []ast.Expr) []ast.Expr {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return append(parts, e)
	}
	for _, arg := range e.AsCall().Args() {
		parts = conjuncts(arg, parts)
	}
	return parts
}

// whatIsMissing names the values that an expression needs and the request lacks.
func (e *Expression) whatIsMissing(s *Scope) string {
	if e.Variable != "" {
		return e.Variable + ", which is not known of this request"
	}
	checked := dissect(e.Source)
	if checked == nil {
		return "something that is missing: " + Clip(e.Source)
	}
	if text := absent(checked, s, e.nat64); text != "" {
		return Clip(text) + ", which is missing"
	}
	if names := unknownVariables(checked, s); len(names) > 0 {
		return strings.Join(names, " and ") + ", which this request does not have"
	}
	return "something that is missing: " + Clip(e.Source)
}

// dissect compiles with macros; nil if that fails.
func dissect(source string) *cel.Ast {
	checked, issues := macroLanguage().Compile(source)
	if issues.Err() != nil {
		return nil
	}
	return checked
}

// absent is the part of an expression whose value is missing; empty if CEL does not say.
func absent(checked *cel.Ast, s *Scope, nat64 address.NAT64) string {
	program, err := language().Program(checked, newPlan(checked, nat64).options()...)
	if err != nil {
		return ""
	}
	v, _, _ := program.Eval(s)
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
func unknownVariables(checked *cel.Ast, s *Scope) []string {
	var names []string
	for _, ref := range checked.NativeRep().ReferenceMap() {
		if v, ok := s.ResolveName(ref.Name); ok && v == missing && !slices.Contains(names, ref.Name) {
			names = append(names, ref.Name)
		}
	}
	slices.Sort(names)
	return names
}
