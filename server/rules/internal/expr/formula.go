package expr

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/stintdev/stint/internal/spelling"
)

// Formula is a condition about measured numbers, as a tree. Package rules gives it a meaning;
// CEL parses it and checks its types.
type Formula struct {
	// Op is an operator as it is written, with two Args; "!" or "-" with one; NumberOp or
	// TextOp; or the name of a function with Args.
	Op     string
	Args   []*Formula
	Number float64
	Text   string
	// Offset is where it begins, in characters.
	Offset int
}

// The literals of a Formula.
const (
	NumberOp = "number"
	TextOp   = "text"
)

// Function is a function of formulas that returns a number. Calls have between Least and all of Args.
type Function struct {
	Name  string
	Args  []FunctionArg
	Least int
}

// FunctionArg is the type of an argument of a Function.
type FunctionArg uint8

const (
	TextArg FunctionArg = iota
	NumberArg
)

// Formulas is a language of formulas with these functions. It may be used from many goroutines
// at once.
type Formulas struct {
	functions []string
	language  func() *cel.Env
}

// NewFormulas returns the language that has these functions, and the operators of numbers and
// of comparisons: no variables, no macros, no other functions.
func NewFormulas(functions []Function) *Formulas {
	f := &Formulas{}
	for _, of := range functions {
		f.functions = append(f.functions, of.Name)
	}
	slices.Sort(f.functions)
	f.language = sync.OnceValue(func() *cel.Env { return formulaLanguage(functions) })
	return f
}

// written are the operators of formulas, by CEL's names.
var written = map[string]string{
	operators.LogicalAnd: "&&", operators.LogicalOr: "||", operators.LogicalNot: "!",
	operators.Less: "<", operators.LessEquals: "<=", operators.Greater: ">", operators.GreaterEquals: ">=",
	operators.Equals: "==", operators.NotEquals: "!=",
	operators.Add: "+", operators.Subtract: "-", operators.Multiply: "*", operators.Divide: "/", operators.Negate: "-",
}

func formulaLanguage(functions []Function) *cel.Env {
	options := []cel.EnvOption{cel.ClearMacros(), cel.ParserExpressionSizeLimit(MaxExpression), cel.ParserRecursionLimit(MaxDepth)}
	numbers := []*cel.Type{cel.DoubleType, cel.IntType}
	operator := func(name string, result *cel.Type, args ...*cel.Type) {
		options = append(options, cel.Function(name, cel.Overload(overloadID(name, args), args, result)))
	}
	for _, name := range [...]string{operators.LogicalAnd, operators.LogicalOr} {
		operator(name, cel.BoolType, cel.BoolType, cel.BoolType)
	}
	operator(operators.LogicalNot, cel.BoolType, cel.BoolType)
	for _, a := range numbers {
		operator(operators.Negate, cel.DoubleType, a)
		for _, b := range numbers {
			for _, name := range [...]string{operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.Equals, operators.NotEquals} {
				operator(name, cel.BoolType, a, b)
			}
			for _, name := range [...]string{operators.Add, operators.Subtract, operators.Multiply, operators.Divide} {
				operator(name, cel.DoubleType, a, b)
			}
		}
	}
	for _, f := range functions {
		for n := f.Least; n <= len(f.Args); n++ {
			options = append(options, callsOf(f.Name, f.Args[:n]))
		}
	}
	return must(cel.NewCustomEnv(options...))
}

// callsOf declares a function for arguments. A number may be an int or a double.
func callsOf(name string, args []FunctionArg) cel.EnvOption {
	all := [][]*cel.Type{{}}
	for _, a := range args {
		kinds := []*cel.Type{cel.StringType}
		if a == NumberArg {
			kinds = []*cel.Type{cel.DoubleType, cel.IntType}
		}
		var longer [][]*cel.Type
		for _, before := range all {
			for _, kind := range kinds {
				longer = append(longer, append(slices.Clone(before), kind))
			}
		}
		all = longer
	}
	var declared []cel.FunctionOpt
	for _, types := range all {
		declared = append(declared, cel.Overload(overloadID(name, types), types, cel.DoubleType))
	}
	return cel.Function(name, declared...)
}

func overloadID(name string, args []*cel.Type) string {
	id := "formula_" + name
	for _, a := range args {
		id += "_" + a.String()
	}
	return id
}

var percent = regexp.MustCompile(`\d\s*%`)

// Formula parses a formula of f and checks its types. It returns nil if there are problems.
func (c *Compiler) Formula(source string, f *Formulas) (*Formula, []Problem) {
	if text := c.tooLong(source); text != "" {
		return nil, []Problem{{0, text}}
	}
	if at := percent.FindStringIndex(source); at != nil {
		return nil, []Problem{{len([]rune(source[:at[1]])) - 1, "a share is written as a number: 0.1 is 10 %"}}
	}
	checked, issues := f.language().Compile(source)
	if errs := issues.Errors(); len(errs) > 0 {
		return nil, explainIn(source, errs, f.unknownName)
	}
	if t := checked.OutputType(); t.Kind() != types.BoolKind {
		return nil, []Problem{{0, fmt.Sprintf("want a bool, have a number: compare it, as in %s > 0.1", Clip(strings.TrimSpace(source)))}}
	}
	l := &lowering{checked: checked}
	root := l.lower(checked.NativeRep().Expr())
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	return root, nil
}

// unknownName is the problem with a name that is neither a function nor an operator here.
func (f *Formulas) unknownName(name string, source []rune, offset int) Problem {
	if op := strings.Trim(name, "_@[]"); name != op || op == "?_:" {
		return Problem{offset, fmt.Sprintf("%q is not an operator here (operators: && || ! < <= > >= == != + - * /)", strings.ReplaceAll(op, "_", " "))}
	}
	what := "name"
	if offset < len(source) && source[offset] == '(' {
		what = "function"
	}
	return Problem{offset, fmt.Sprintf("unknown %s %q", what, name) + spelling.Hint(name, f.functions) +
		" (functions: " + strings.Join(f.functions, ", ") + "; the name of a rule is quoted)"}
}

type lowering struct {
	checked  *cel.Ast
	problems []Problem
}

// lower makes a Formula from CEL's checked expression.
func (l *lowering) lower(e ast.Expr) *Formula {
	n := &Formula{Offset: startOf(l.checked, e.ID())}
	switch e.Kind() {
	case ast.LiteralKind:
		switch v := e.AsLiteral().(type) {
		case types.Double:
			n.Op, n.Number = NumberOp, float64(v)
		case types.Int:
			n.Op, n.Number = NumberOp, float64(v)
		case types.String:
			n.Op, n.Text = TextOp, string(v)
		}
		if n.Op == NumberOp && (math.IsInf(n.Number, 0) || math.IsNaN(n.Number)) {
			n.Op = ""
		}
	case ast.CallKind:
		call := e.AsCall()
		n.Op = call.FunctionName()
		if op, ok := written[n.Op]; ok {
			n.Op = op
		}
		for _, arg := range call.Args() {
			n.Args = append(n.Args, l.lower(arg))
		}
	}
	if n.Op == "" {
		l.problems = append(l.problems, Problem{n.Offset, "want a comparison of numbers, as in rate() > 100"})
	}
	return n
}
