package expr

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// patternSteps bounds the steps of a pattern before it is compiled: (a{1000}){1000} is short, its
// program is not.
func patternSteps(pattern string) (int, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	if n := stepsOf(tree) + 2; n <= maxPattern {
		return n, nil
	}
	return 0, fmt.Errorf("the pattern takes more than %d steps: repeat fewer characters, or less often", maxPattern)
}

func stepsOf(e *syntax.Regexp) (n int) {
	const atOnce = 8 // numbers of a class of characters in the memory of a step
	for _, sub := range e.Sub {
		if n += stepsOf(sub); n > maxPattern {
			return n
		}
	}
	switch e.Op {
	case syntax.OpLiteral:
		return max(1, len(e.Rune))
	case syntax.OpCharClass:
		return 1 + len(e.Rune)/atOnce
	case syntax.OpConcat:
		return max(1, n)
	case syntax.OpAlternate:
		return n + len(e.Sub)
	case syntax.OpRepeat: // each optional repetition is one more step
		most := max(e.Min+1, e.Max)
		return min(1+n*most+most-e.Min, maxPattern+1)
	}
	return n + 2
}

// matchWork is the work of matching, in CEL's units: at worst each byte takes each step.
func matchWork(size, steps int) uint64 { return 1 + uint64(size)*uint64(steps)/40 }

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

func (m *match) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}
