package expr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"

	"github.com/stintdev/stint/internal/address"
)

// Compiler compiles expressions that share the bounds MaxExpressions, MaxConstants and MaxPatterns,
// such as a file's. It is called on one goroutine, for which others may work: see Work.
type Compiler struct {
	// NAT64 are the prefixes that networks may lie in.
	NAT64 address.NAT64

	ctx       context.Context
	source    int // bytes of expressions that may still come
	constants int // bytes that constant parts may still come to
	steps     int // steps of patterns that may still come
	entries   map[typed]*entry
	begun     chan<- *entry // nil: nobody works
}

type typed struct {
	source string
	as     *Type
}

// compiled is an Expression, and what it takes of the bounds.
type compiled struct {
	*Expression
	constants, steps int
}

// NewCompiler is a Compiler that stops when ctx ends.
func NewCompiler(ctx context.Context) *Compiler {
	return &Compiler{ctx: ctx, source: MaxExpressions, constants: MaxConstants, steps: MaxPatterns, entries: map[typed]*entry{}}
}

// Err says why nothing more is compiled: it wraps the cause of the context's end. nil: compiling goes on.
func (c *Compiler) Err() error {
	if c.ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("compiling stopped: %w", context.Cause(c.ctx))
}

// Problem is an error in an expression, Offset characters from its beginning.
type Problem struct {
	Offset int
	Text   string
}

// Type is the use of an expression; it determines the types that its value may have.
type Type struct {
	want string
	fits func(*cel.Type) bool
	hint string
	when phase
}

// The types of expressions.
var (
	Condition = &Type{want: "a bool", fits: isKind(types.BoolKind), hint: `compare it, as in attrs.plan == "free"`}
	Number    = &Type{want: "a number", fits: fitsNumber, hint: "convert it, as in int(attrs.size)"}
	Key       = &Type{want: "a string, number, bool or null, or a list of those", fits: fitsKey, hint: "convert it, as in string(attrs.id)"}
	// NumberAfter is a Number of the response, and the only type that sees it.
	NumberAfter = &Type{want: "a number", fits: fitsNumber, hint: `convert it, as in int(response.headers["x-cost"])`, when: after}
)

var fitsNumber = isKind(types.IntKind, types.UintKind, types.DoubleKind, types.DynKind)

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

// Compile compiles an expression of a type. It returns nil where there are problems, and one Expression for
// equal ones, as rules often have the same key.
func (c *Compiler) Compile(source string, want *Type) (*Expression, []Problem) {
	if text := c.tooLong(source); text != "" {
		return nil, []Problem{{0, text}}
	}
	e, problems := c.result(c.entry(typed{source, want}))
	if problems != nil {
		return nil, problems
	}
	if text := c.tooLarge(e); text != "" {
		return nil, []Problem{{0, text}}
	}
	return e.Expression, nil
}

// compile depends on its arguments and NAT64 alone, and may run on several goroutines at once.
func (c *Compiler) compile(source string, want *Type) (compiled, []Problem) {
	checked, issues := language().Compile(source)
	if errs := issues.Errors(); len(errs) > 0 { // Err would write all of the source for each
		return compiled{}, explain(source, errs, want.when)
	}
	found := inspect(checked, want.when)
	if len(found.problems) > 0 {
		return compiled{}, found.problems
	}
	if t := checked.OutputType(); !want.fits(t) {
		return compiled{}, []Problem{{0, fmt.Sprintf("want %s, have %s: %s", want.want, cel.FormatCELType(t), want.hint)}}
	}
	e := newExpression(source, checked, found)
	e.nat64 = c.NAT64
	e.Hints, e.Patterns = hints(checked, c.NAT64)
	if e.isSimple(checked) {
		return compiled{Expression: e}, nil
	}
	p := newPlan(checked, c.NAT64)
	var err error
	if e.program, err = language().Program(checked, p.options()...); err != nil {
		offset, text := foldProblem(err, checked)
		return compiled{}, []Problem{{offset, text}}
	}
	defer p.done()
	e.folded = p.folded[checked.NativeRep().Expr().ID()]
	if want == Condition {
		e.Guards = guardsOf(checked, c.NAT64, p.counted)
	}
	return compiled{e, p.folding.size, p.steps}, nil
}

// tooLarge takes what e needs of the bounds.
func (c *Compiler) tooLarge(e compiled) string {
	if c.constants -= e.constants; c.constants < 0 {
		return fmt.Sprintf("constants in all expressions exceed %d bytes", MaxConstants)
	}
	if c.steps -= e.steps; c.steps < 0 {
		return fmt.Sprintf("the patterns of all expressions take more than %d steps", MaxPatterns)
	}
	return ""
}

func (c *Compiler) tooLong(source string) string {
	if strings.TrimSpace(source) == "" {
		return "the expression is empty"
	}
	if len(source) > MaxExpression {
		return fmt.Sprintf("the expression has %d bytes: at most %d", len(source), MaxExpression)
	}
	if c.source -= len(source); c.source < 0 {
		return fmt.Sprintf("all expressions together have more than %d bytes", MaxExpressions)
	}
	return ""
}

func newExpression(source string, checked *cel.Ast, found *inspector) *Expression {
	tree := checked.NativeRep()
	e := &Expression{
		Source: strings.TrimSpace(source), IsList: checked.OutputType().Kind() == types.ListKind,
		Headers: found.headers, AnyHeader: found.maps > 0, Attrs: found.attrs, AnyAttr: found.anyAttr > 0,
		Outside: found.outside, JSONPaths: found.paths, only: onlyPathOf(tree, tree.Expr()),
	}
	for _, named := range tree.ReferenceMap() {
		if isVariable(named.Name) && !e.Uses(named.Name) {
			e.Variables = append(e.Variables, named.Name)
		}
	}
	slices.Sort(e.Variables)
	switch root := tree.Expr(); root.Kind() {
	case ast.ListKind:
		if len(root.AsList().OptionalIndices()) == 0 {
			e.Parts = root.AsList().Size()
		}
	case ast.CallKind:
		e.IsHash = isHash(root.AsCall().FunctionName())
	}
	return e
}

// isSimple reports whether e is a constant or a variable, and needs no program.
func (e *Expression) isSimple(checked *cel.Ast) bool {
	root := checked.NativeRep().Expr()
	if root.Kind() == ast.LiteralKind {
		e.constant = root.AsLiteral()
		return true
	}
	e.Variable = variableOf(checked.NativeRep(), root)
	return e.Variable != ""
}

// foldProblem is the place and text of an error found while planning, if it is one.
func foldProblem(err error, checked *cel.Ast) (offset int, text string) {
	var fold foldError
	if errors.As(err, &fold) {
		return startOf(checked, fold.NodeID()), fold.Error()
	}
	return 0, err.Error()
}

func startOf(checked *cel.Ast, id int64) int {
	if place, ok := checked.NativeRep().SourceInfo().GetOffsetRange(id); ok {
		return int(place.Start)
	}
	return 0
}

// Clip shortens a text of a request or a file for a message, and replaces unprintable characters, so that it
// neither fills a log nor breaks its lines.
func Clip(text string) string {
	const longest = 300
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return unicode.ReplacementChar
		}
		return c
	}, text)
}
