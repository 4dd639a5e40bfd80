package rules

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// patternSteps is at least how many steps a pattern compiles to, told before it is
// compiled: (a{1000}){1000} is short, and its program is not.
func patternSteps(pattern string) (int, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	if n := stepsOf(tree); n <= maxPattern {
		return n, nil
	}
	return 0, fmt.Errorf("the pattern takes more than %d steps: repeat fewer characters, or less often", maxPattern)
}

// stepsOf stops counting beyond maxPattern.
func stepsOf(e *syntax.Regexp) int {
	const atOnce = 8 // numbers of a class of characters in the memory of a step
	n := 2
	for _, sub := range e.Sub {
		n += stepsOf(sub)
		if n > maxPattern {
			return n
		}
	}
	switch e.Op {
	case syntax.OpLiteral:
		n += len(e.Rune)
	case syntax.OpCharClass:
		n += len(e.Rune) / atOnce
	case syntax.OpRepeat:
		n = min(n*max(1, e.Min, e.Max), maxPattern+1)
	}
	return n
}

// matchWork is the work of matching a text of so many bytes with a pattern of so many
// steps, in CEL's units: at worst, each byte takes each of the steps.
func matchWork(size, steps int) uint64 { return 1 + uint64(size)*uint64(steps)/40 }

// match is the function matches with a literal pattern.
type match struct {
	interpreter.InterpretableV2
	of      interpreter.InterpretableV2
	pattern *regexp.Regexp
	steps   int
}

func newMatch(call, of interpreter.InterpretableV2, pattern string) (*match, error) {
	steps, err := patternSteps(pattern)
	if err != nil {
		return nil, err
	}
	compiled, err := regexp.Compile(pattern)
	return &match{call, of, compiled, steps}, err
}

// Exec implements interpreter.InterpretableV2.
func (m *match) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := m.of.Exec(frame)
	if types.IsUnknownOrError(v) {
		return v
	}
	text, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	spend(frame, matchWork(len(text), m.steps))
	return types.Bool(m.pattern.MatchString(string(text)))
}

// Eval implements interpreter.Interpretable.
func (m *match) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}
