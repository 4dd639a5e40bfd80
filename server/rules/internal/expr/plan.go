package expr

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/stintdev/stint/internal/address"
)

// plan replaces steps while CEL plans, parts before wholes. cel.OptOptimize would drop our steps
// and does not evaluate cidr("…") at load.
type plan struct {
	logic map[int64]ast.CallExpr                // the calls of || and &&, by id
	terms map[int64]interpreter.InterpretableV2 // the planned operands of those, by id
	// ofPath are the ids of the calls of is and under on request.path.
	ofPath map[int64]bool
	// folded are the values of the parts that read nothing of a request, by id.
	folded  map[int64]ref.Val
	folding folding
	steps   int // of the patterns
	nat64   address.NAT64

	counted bool // see isCounted
	// The charges for steps if counted, by id; the calls of [] by the ids of their indices; and the calls of
	// which CEL has planned only the first part.
	weighed    map[int64]func(ref.Val) uint64
	indexOf    map[int64]int64
	unfinished map[int64]bool
}

type foldError struct{ *types.Err }

func newPlan(checked *cel.Ast, nat64 address.NAT64) *plan {
	p := &plan{
		logic: map[int64]ast.CallExpr{}, terms: map[int64]interpreter.InterpretableV2{},
		ofPath: map[int64]bool{}, folded: map[int64]ref.Val{}, counted: isCounted(checked), nat64: nat64,
		weighed: map[int64]func(ref.Val) uint64{}, indexOf: map[int64]int64{}, unfinished: map[int64]bool{},
	}
	ast.PostOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if p.counted {
			p.findWeighed(e)
		}
		if e.Kind() != ast.CallKind {
			return
		}
		switch call := e.AsCall(); call.FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr:
			p.logic[e.ID()] = call
			for _, term := range call.Args() {
				p.terms[term.ID()] = nil
			}
		case isPath, underPath:
			p.ofPath[e.ID()] = isOfPath(checked.NativeRep(), call, call.FunctionName())
		}
	}))
	return p
}

// done drops what only planning needs: a program keeps its options, and so p.
func (p *plan) done() { *p = plan{} }

func (p *plan) options() []cel.ProgramOption {
	options := []cel.ProgramOption{cel.CustomDecoratorV2(p.decorate)}
	if p.counted {
		options = append(options, cel.CostTracking(prices{}), cel.CostTrackerOptions(charges...), cel.CostLimit(MaxWork))
	}
	return options
}

func (p *plan) decorate(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	step, err := p.simplify(step)
	if err != nil {
		return nil, err
	}
	if c, ok := step.(interpreter.InterpretableConst); ok {
		p.folded[c.ID()] = c.Value()
	}
	if call, ok := p.logic[step.ID()]; ok {
		step = p.newLogic(step, call)
	}
	step = p.weigh(step)
	if _, ok := p.terms[step.ID()]; ok {
		p.terms[step.ID()] = step
	}
	return step, nil
}

func (p *plan) simplify(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch s := step.(type) {
	case interpreter.InterpretableConstructor:
		if s.Type() == types.ListType && constant(s.InitVals()) {
			return p.fold(s)
		}
	case interpreter.InterpretableCall:
		args := s.Args()
		if s.Function() == "cidr" && len(p.nat64) > 0 {
			s = &inNAT64{s, p.nat64}
			step = s
		}
		if s.Function() == listFunction && constant(args) {
			return &namedList{s, string(args[0].(interpreter.InterpretableConst).Value().(types.String)), p.nat64}, nil
		}
		if len(args) > 0 && constant(args) {
			return p.fold(s)
		}
		if p.ofPath[s.ID()] && constant(args[1:]) {
			return newOfPath(s, args), nil
		}
		if s.Function() == overloads.Matches && constant(args[1:]) {
			pattern := args[1].(interpreter.InterpretableConst).Value().Value().(string)
			m, err := newMatch(s, args[0], pattern)
			if err != nil {
				return nil, err
			}
			p.steps += m.steps
			return m, nil
		}
		if s.OverloadID() == overloads.InList && constant(args[1:]) {
			return oneOf(s, args[0], args[1].(interpreter.InterpretableConst).Value().(traits.Lister)), nil
		}
	}
	return step, nil
}

func (p *plan) fold(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	v, err := p.folding.value(step)
	if err != nil {
		return nil, err
	}
	return interpreter.NewConstValue(step.ID(), v), nil
}

func constant(steps []interpreter.InterpretableV2) bool {
	for _, s := range steps {
		if _, ok := s.(interpreter.InterpretableConst); !ok {
			return false
		}
	}
	return true
}

// membership is "in" with a list of literal strings.
type membership struct {
	interpreter.InterpretableV2
	of      interpreter.InterpretableV2
	list    map[types.String]struct{}
	longest int // the length of a text in list; a longer one is no work
}

func oneOf(call, of interpreter.InterpretableV2, list traits.Lister) interpreter.InterpretableV2 {
	m := &membership{InterpretableV2: call, of: of, list: map[types.String]struct{}{}}
	for it := list.Iterator(); it.HasNext() == types.True; {
		text, ok := it.Next().(types.String)
		if !ok {
			return call
		}
		m.list[text] = struct{}{}
		m.longest = max(m.longest, len(text))
	}
	return m
}

func (m *membership) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := m.of.Exec(frame)
	if types.IsUnknownOrError(v) {
		return v
	}
	text, ok := v.(types.String)
	if ok {
		spend(frame, unitsOf(min(len(text), m.longest)))
		if ok = len(text) <= m.longest; ok {
			_, ok = m.list[text]
		}
	}
	return types.Bool(ok)
}

func (m *membership) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, m.Exec)
}

// logic is || or &&. It reports errors before missing values, so that a request cannot hide an error behind a
// missing value.
type logic struct {
	interpreter.InterpretableV2
	terms   []interpreter.InterpretableV2
	decides types.Bool // true for ||, false for &&
}

func (p *plan) newLogic(step interpreter.InterpretableV2, call ast.CallExpr) interpreter.InterpretableV2 {
	l := &logic{InterpretableV2: step, decides: call.FunctionName() == operators.LogicalOr}
	for _, term := range call.Args() {
		planned := p.terms[term.ID()]
		if planned == nil {
			return step
		}
		l.terms = append(l.terms, planned)
	}
	return l
}

func (l *logic) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	var failed ref.Val
	for _, term := range l.terms {
		v := term.Exec(frame)
		if b, ok := v.(types.Bool); !ok {
			if failed == nil || isMissingValue(failed) {
				failed = types.MaybeNoSuchOverloadErr(v)
			}
		} else if b == l.decides {
			return v
		}
	}
	if failed != nil {
		return failed
	}
	return !l.decides
}

func (l *logic) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, l.Exec)
}
