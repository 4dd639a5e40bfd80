package expr

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// isCounted reports whether an expression might exceed MaxWork for texts of at most
// MaxRequestText: only then is its work counted, at several allocations for each evaluation.
func isCounted(checked *cel.Ast) bool {
	counted := false
	ast.PostOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind: // may nest values without end; the estimate does not see that
			counted = true
		case ast.CallKind:
			counted = counted || e.AsCall().FunctionName() == "format"
		}
	}))
	if counted {
		return true
	}
	most, err := language().EstimateCost(checked, shortTexts{})
	return err != nil || most.Max > MaxWork
}

// shortTexts estimates texts as long as MaxRequestText, and does not know lists and maps.
type shortTexts struct{}

func (shortTexts) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	if n.Path() == nil || n.Type().Kind() != types.StringKind {
		return nil
	}
	return &cost.SizeEstimate{Max: MaxRequestText}
}

func (shortTexts) EstimateCallCost(function, _ string, target *cost.AstNode, args []cost.AstNode) *cost.CallEstimate {
	if overloads.IsTypeConversionFunction(function) && len(args) == 1 && args[0].Type().Kind() == types.DynKind {
		// Values that cannot be converted are quoted. A few of the longest texts cost little.
		return cost.NewCallEstimate(cost.Estimate{Max: MaxWork / 4}, nil)
	}
	if function != overloads.Matches || len(args) == 0 {
		return nil
	}
	steps := maxPattern
	if text, ok := literal(args[len(args)-1].Expr()); ok {
		steps, _ = patternSteps(text)
	}
	return cost.NewCallEstimate(cost.Estimate{Max: matchWork(MaxRequestText, steps)}, nil)
}

// prices are for calls whose work CEL's own prices do not follow: functions that look through
// their arguments, and comparisons of lists. Work is in proportion to the arguments, so it is
// charged when done.
type prices struct{}

// CallCost gets an overload only if the types were known before.
func (prices) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	var units uint64
	switch function {
	case unitsOverload:
		units = uint64(args[0].(types.Int))
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals,
		operators.Greater, operators.GreaterEquals:
		units = unitsOf(lighter(args[0], args[1], 1)) // more is not read
	case operators.In:
		units = ofMembership(args[0], args[1])
	case operators.Add:
		if _, ok := args[0].(traits.Lister); ok { // it is not copied
			args = args[1:]
		}
		units = ofAll(args, result)
	case overloads.TimeGetFullYear, overloads.TimeGetMonth, overloads.TimeGetDayOfYear, overloads.TimeGetDate,
		overloads.TimeGetDayOfMonth, overloads.TimeGetDayOfWeek, overloads.TimeGetHours, overloads.TimeGetMinutes,
		overloads.TimeGetSeconds, overloads.TimeGetMilliseconds:
		if units = 1; len(args) > 1 {
			units = zoneWork
		}
	case overloads.Contains, "charAt", "indexOf", "lastIndexOf", "lowerAscii", "upperAscii", "reverse", "trim", "substring", "split",
		"replace", "join", "strings.quote", "format", "cidr", "sha256", "hmac", foldedPath, isPath, underPath,
		overloads.TypeConvertInt, overloads.TypeConvertUint, overloads.TypeConvertDouble, overloads.TypeConvertBool,
		overloads.TypeConvertString, overloads.TypeConvertBytes, overloads.TypeConvertDuration,
		overloads.TypeConvertTimestamp, overloads.Size:
		if function == overloads.Size && !isText(args[0]) {
			return nil
		}
		units = ofAll(args, result)
	default:
		return nil
	}
	return &units
}

// charges are prices for functions of libraries; CEL would prefer the libraries' own.
var charges = func() (list []cost.TrackerOption) {
	for _, id := range []string{
		"string_char_at_int", "string_index_of_string", "string_index_of_string_int",
		"string_last_index_of_string", "string_last_index_of_string_int", "string_lower_ascii",
		"string_upper_ascii", "string_reverse", "string_trim", "string_substring_int",
		"string_substring_int_int", "string_split_string", "string_split_string_int",
		"string_replace_string_string", "string_replace_string_string_int", "list_join",
		"list_join_string", sha256Overload, hmacOverload, "string_folded", "string_is_string", "string_under_string",
	} {
		list = append(list, cost.OverloadTracker(id, func(args []ref.Val, result ref.Val) *uint64 {
			units := ofAll(args, result)
			return &units
		}))
	}
	return list
}()

// zoneWork is the cost of a time zone: its file is read each time.
const zoneWork = 500

func ofAll(args []ref.Val, result ref.Val) uint64 {
	size := weigh(result)
	for _, arg := range args {
		size += weigh(arg)
	}
	return unitsOf(size)
}

func ofMembership(v, in ref.Val) uint64 {
	l, ok := in.(traits.Lister)
	if !ok {
		return unitsOf(weigh(v))
	}
	n, _ := l.Size().(types.Int)
	return uint64(n) + unitsOf(lighter(in, v, int(n)))
}

func isText(v ref.Val) bool {
	switch v.(type) {
	case types.String, types.Bytes:
		return true
	}
	return false
}

func unitsOf(size int) uint64 { return 1 + uint64(size)/10 }

const (
	unitsOverload = "stint_units"
	// overweight is where weigh stops: no evaluation can pay for more.
	overweight = 20 * MaxWork
)

// weigh is about how many bytes a value takes, shared parts counted twice, up to overweight.
func weigh(v ref.Val) int { return weighUpTo(v, overweight) }

// lighter is the smaller of a's weight and times b's weight, in time proportional to the result.
func lighter(a, b ref.Val, times int) int {
	for most := 256; ; most *= 4 {
		weight := min(weighUpTo(a, most), times*weighUpTo(b, most))
		if weight < most || most > overweight {
			return weight
		}
	}
}

func weighUpTo(v ref.Val, most int) (size int) {
	const slot = 16
	switch v := v.(type) {
	case types.String:
		return slot + len(v)
	case types.Bytes:
		return slot + len(v)
	case traits.Lister:
		size = slot
		for it := v.Iterator(); size < most && it.HasNext() == types.True; {
			size += weighUpTo(it.Next(), most-size)
		}
		return size
	case traits.Mapper:
		size = slot
		for it := v.Iterator(); size < most && it.HasNext() == types.True; {
			k := it.Next()
			size += slot + weighUpTo(k, most-size)
			if size < most {
				size += weighUpTo(v.Get(k), most-size)
			}
		}
		return size
	}
	return slot
}

// units is an interpreter call whose cost is its argument.
type units struct{}

func (units) Function() string   { return unitsOverload }
func (units) OverloadID() string { return unitsOverload }

// spend charges before work is done. Past MaxWork it panics, which CEL turns into its error.
func spend(frame *interpreter.ExecutionFrame, n uint64) {
	t := frame.CostTracker()
	if t == nil {
		return
	}
	if n > 8 {
		t.EvalUnary(nil, 0, units{}, types.Int(min(n, 2*MaxWork)), nil)
		return
	}
	for range n {
		t.Qualify(0) // one unit each, and no allocation
	}
}

// weighed is a step whose value is charged for, because CEL charges too little.
type weighed struct {
	interpreter.InterpretableV2
	work func(ref.Val) uint64
}

func (w *weighed) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := w.InterpretableV2.Exec(frame)
	spend(frame, w.work(v))
	return v
}

func (w *weighed) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, w.Exec)
}

// ofValue charges for lists and maps by weight: nested shared lists are small in memory, but not
// to look through.
func ofValue(v ref.Val) uint64 { return unitsOf(weigh(v)) }

// ofRange is the work of beginning a loop: the keys of a map are listed first.
func ofRange(v ref.Val) uint64 {
	if m, ok := v.(traits.Mapper); ok {
		n, _ := m.Size().(types.Int)
		return uint64(n)
	}
	return 0
}

// ofIteration is the work of one iteration of a loop, which CEL does not charge if the body is constant.
func ofIteration(ref.Val) uint64 { return 1 }

func (p *plan) findWeighed(e ast.Expr) {
	switch e.Kind() {
	case ast.ComprehensionKind:
		p.weighed[e.AsComprehension().IterRange().ID()] = ofRange
		p.weighed[e.AsComprehension().LoopStep().ID()] = ofIteration
	case ast.CallKind:
		if args := e.AsCall().Args(); e.AsCall().FunctionName() == operators.Index {
			p.weighed[args[1].ID()] = ofValue
			p.indexOf[args[1].ID()] = e.ID()
		}
	}
}

func (p *plan) weigh(step interpreter.InterpretableV2) interpreter.InterpretableV2 {
	if !p.counted {
		return step
	}
	if _, ok := step.(interpreter.InterpretableConstructor); ok {
		step = &weighed{step, ofValue}
	}
	work := p.weighed[step.ID()]
	if work == nil {
		return step
	}
	if p.unfinished[step.ID()] {
		delete(p.unfinished, step.ID())
		return step
	}
	if _, ok := step.(interpreter.InterpretableConst); ok {
		return step
	}
	if index, ok := p.indexOf[step.ID()]; ok {
		// CEL plans an indexing step in two parts; the first must stay as it is.
		p.unfinished[index] = true
	}
	return &weighed{step, work}
}

type folding struct {
	tracker *cost.Tracker // nil: nothing was folded yet
	size    int
}

func (f *folding) value(step interpreter.InterpretableV2) (v ref.Val, err error) {
	frame, err := interpreter.NewExecutionFrame(interpreter.EmptyActivation())
	if err != nil {
		return nil, err
	}
	defer frame.Close()
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(cost.LimitExceededError); !ok {
				panic(r)
			}
			v, err = nil, foldError{types.NewErrWithNodeID(step.ID(), "the constants here take more than %d steps to evaluate", MaxWork).(*types.Err)}
		}
	}()
	if f.tracker == nil {
		f.tracker = must(cost.NewTracker(prices{}, append([]cost.TrackerOption{cost.TrackerLimit(MaxWork)}, charges...)...))
	}
	frame.SetCostTracker(f.tracker)
	v = step.Exec(frame)
	if failed, ok := v.(*types.Err); ok {
		return nil, foldError{failed}
	}
	if list, ok := step.(interpreter.InterpretableConstructor); ok {
		f.size += 16 * (1 + len(list.InitVals())) // its elements are in the expression, or were counted
	} else {
		f.size += weighUpTo(v, MaxFolded+1)
	}
	if f.size > MaxFolded {
		return nil, foldError{types.NewErrWithNodeID(step.ID(), "constants here exceed %d bytes", MaxFolded).(*types.Err)}
	}
	return v, nil
}
