package rules

import (
	"errors"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

var errText = errors.New("the text made would be too long")

// boundedText declares replace and join again, as the strings extension does but
// bound to functions that keep to MaxText. Their other functions and operators
// make no more than a little longer text than they were given.
func boundedText() []cel.EnvOption {
	text, number, list := cel.StringType, cel.IntType, cel.ListType(cel.StringType)
	return []cel.EnvOption{
		cel.Function("replace",
			cel.MemberOverload("string_replace_string_string",
				[]*cel.Type{text, text, text}, text, cel.FunctionBinding(replace)),
			cel.MemberOverload("string_replace_string_string_int",
				[]*cel.Type{text, text, text, number}, text, cel.FunctionBinding(replace))),
		cel.Function("join",
			cel.MemberOverload("list_join", []*cel.Type{list}, text,
				cel.UnaryBinding(func(l ref.Val) ref.Val { return join(l, types.String("")) })),
			cel.MemberOverload("list_join_string", []*cel.Type{list, text}, text, cel.BinaryBinding(join))),
	}
}

func replace(args ...ref.Val) ref.Val {
	s, old, by := string(args[0].(types.String)), string(args[1].(types.String)), string(args[2].(types.String))
	n := strings.Count(s, old)
	if len(args) > 3 {
		if most := args[3].(types.Int); most >= 0 && most < types.Int(n) {
			n = int(most)
		}
	}
	if grow := len(by) - len(old); n > 0 && grow > 0 && n > (MaxText-len(s))/grow {
		return types.WrapErr(errText)
	}
	return types.String(strings.Replace(s, old, by, n))
}

func join(list, separator ref.Val) ref.Val {
	l, between := list.(traits.Lister), string(separator.(types.String))
	var b strings.Builder
	size := l.Size().(types.Int)
	for i := types.Int(0); i < size; i++ {
		part, ok := l.Get(i).(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(l.Get(i))
		}
		if i > 0 {
			b.WriteString(between)
		}
		b.WriteString(string(part))
		if b.Len() > MaxText {
			return types.WrapErr(errText)
		}
	}
	return types.String(b.String())
}
