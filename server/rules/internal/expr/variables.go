package expr

import (
	"slices"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/ext"
)

// The bounds of expressions.
const (
	// MaxExpression is the length of the longest expression, in bytes.
	MaxExpression = 4096
	// MaxExpressions is the total length of all expressions of a Compiler, in bytes. Compiled, they take up
	// to a hundred times as much.
	MaxExpressions = 1 << 20
	// MaxDepth is how deep the parts of an expression may nest. In a chain of
	// sums each + is a level, in one of && or || it is not.
	MaxDepth = 64
	// MaxWork bounds the work of one evaluation, in CEL's units: a step is 1, reading or making text 1 for
	// each 10 bytes. It is reached within milliseconds.
	MaxWork = 100_000
	// MaxText bounds texts that replace, join and format make, in bytes, and 16 times the parts of
	// split: their work is counted only when done, and a few of them would fill the memory.
	MaxText = 1 << 20
	// MaxRequestText bounds a text of a request, in bytes. A longer one, which no gateway accepts, is an
	// error for expressions that use it. Work with attrs and claims is always counted.
	MaxRequestText = 68 << 10
	// MaxBodyFields is how many fields of a request's body all expressions together may look up: each lookup
	// reads the body, and an expression may loop over names that the client chose.
	MaxBodyFields = 100
	// MaxFolded bounds the constant parts of an expression, in bytes, and MaxConstants those of all.
	MaxFolded    = 64 << 10
	MaxConstants = 16 << 20
	// MaxPatterns bounds the steps of all patterns of a Compiler, and maxPattern those of each.
	MaxPatterns = 500_000
	maxPattern  = 10_000
)

// variable may be used by expressions. If you add one, resolve it in Scope.ResolveName; a test
// then asks for its line in docs/rules-reference.md.
type variable struct {
	name  string
	kind  *cel.Type
	known phase
}

// phase is when a variable is known, and an expression evaluated.
type phase uint8

const (
	before phase = iota // when a request is decided
	after               // when it has ended
)

var variables = []variable{
	{"request.method", cel.StringType, before},
	{"request.path", cel.StringType, before},
	{"request.host", cel.StringType, before},
	{"request.route", cel.StringType, before},
	{"request.headers", cel.MapType(cel.StringType, cel.StringType), before},
	{"request.query", cel.MapType(cel.StringType, cel.StringType), before},
	{"request.cookies", cel.MapType(cel.StringType, cel.StringType), before},
	{"request.credential", cel.StringType, before},
	{"body", cel.MapType(cel.StringType, cel.DynType), before},
	{"client.ip", cel.StringType, before},
	{"operation", cel.StringType, before},
	{"attrs", cel.MapType(cel.StringType, cel.DynType), before},
	{"claims", cel.MapType(cel.StringType, cel.DynType), before},
	{"secrets", cel.MapType(cel.StringType, secretType), before},
	{"cost", cel.IntType, before},
	{"response.status", cel.IntType, after},
	{"response.headers", cel.MapType(cel.StringType, cel.StringType), after},
	{"response.bytes", cel.IntType, after},
	{"response.seconds", cel.DoubleType, after},
	{"response.json", cel.MapType(cel.StringType, cel.DynType), after},
}

func (p phase) variables() (names []string) {
	for _, v := range variables {
		if v.known == p {
			names = append(names, v.name)
		}
	}
	return names
}

func phaseOf(name string) phase {
	i := slices.IndexFunc(variables, func(v variable) bool { return v.name == name })
	return variables[i].known
}

func isVariable(name string) bool {
	return slices.ContainsFunc(variables, func(v variable) bool { return v.name == name })
}

// variableOf is the variable that an expression is; empty: it is something else.
func variableOf(tree *ast.AST, e ast.Expr) string {
	if named := tree.ReferenceMap()[e.ID()]; named != nil && named.Value == nil && isVariable(named.Name) {
		return named.Name
	}
	return ""
}

// language is shared: making it takes as long as compiling many expressions.
var language = sync.OnceValue(func() *cel.Env {
	options := []cel.EnvOption{
		ext.Strings(),
		cel.ParserExpressionSizeLimit(MaxExpression),
		cel.ParserRecursionLimit(MaxDepth),
		// No binding: CEL's own "in" asks the right operand, a network.
		cel.Function(operators.In,
			cel.Overload("in_string_cidr", []*cel.Type{cel.StringType, networkType}, cel.BoolType)),
		cel.Function("cidr",
			cel.Overload("cidr_string", []*cel.Type{cel.StringType}, networkType, cel.UnaryBinding(newNetwork))),
	}
	options = append(options, lists()...)
	options = append(options, boundedText()...)
	options = append(options, hashes()...)
	options = append(options, pathFunctions()...)
	for _, v := range variables {
		options = append(options, cel.Variable(v.name, v.kind))
	}
	return must(cel.NewEnv(options...))
})

// must panics on errors that only a mistake in this package's declarations, or a change of CEL, causes.
func must[T any](v T, err error) T {
	if err != nil {
		panic("expr: " + err.Error())
	}
	return v
}

// macroLanguage keeps macros as written.
var macroLanguage = sync.OnceValue(func() *cel.Env {
	return must(language().Extend(cel.EnableMacroCallTracking()))
})
