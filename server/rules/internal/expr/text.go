package expr

import (
	"errors"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/ext"
)

var errText = errors.New("the resulting text would be too long")

// boundedText replaces functions of the strings extension by equivalent ones: replace, join, split and format
// are limited to MaxText, and searches take time in proportion to the sum of both lengths, not their product.
func boundedText() []cel.EnvOption {
	text, number, list := cel.StringType, cel.IntType, cel.ListType(cel.StringType)
	return []cel.EnvOption{
		cel.Function("contains",
			cel.MemberOverload("contains_string",
				[]*cel.Type{text, text}, cel.BoolType, cel.BinaryBinding(contains))),
		cel.Function("indexOf",
			cel.MemberOverload("string_index_of_string",
				[]*cel.Type{text, text}, number, cel.FunctionBinding(firstIndex)),
			cel.MemberOverload("string_index_of_string_int",
				[]*cel.Type{text, text, number}, number, cel.FunctionBinding(firstIndex))),
		cel.Function("lastIndexOf",
			cel.MemberOverload("string_last_index_of_string",
				[]*cel.Type{text, text}, number, cel.FunctionBinding(lastIndex)),
			cel.MemberOverload("string_last_index_of_string_int",
				[]*cel.Type{text, text, number}, number, cel.FunctionBinding(lastIndex))),
		cel.Function("split",
			cel.MemberOverload("string_split_string",
				[]*cel.Type{text, text}, list, cel.FunctionBinding(split)),
			cel.MemberOverload("string_split_string_int",
				[]*cel.Type{text, text, number}, list, cel.FunctionBinding(split))),
		cel.Function("format",
			cel.MemberOverload("string_format",
				[]*cel.Type{text, cel.ListType(cel.DynType)}, text, cel.FunctionBinding(boundedFormat()))),
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

// mostLookedFor bounds the product of the lengths of a text and the text to find: package strings compares
// hashes, which a caller can make equal everywhere.
const mostLookedFor = 1 << 32

var errLookedFor = errors.New("the search text and the text to search are too long together")

func tooLong(s, wanted string) ref.Val {
	if uint64(len(s))*uint64(len(wanted)) <= mostLookedFor {
		return nil
	}
	return types.WrapErr(errLookedFor)
}

func contains(in, what ref.Val) ref.Val {
	s, ok := in.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(in)
	}
	wanted, ok := what.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(what)
	}
	if err := tooLong(string(s), string(wanted)); err != nil {
		return err
	}
	return types.Bool(strings.Contains(string(s), string(wanted)))
}

// readable is text as CEL reads it, in characters: invalid UTF-8 is replaced.
func readable(text ref.Val) string {
	s := string(text.(types.String))
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

func byteAt(s string, n int64) int {
	for at := range s {
		if n--; n < 0 {
			return at
		}
	}
	return len(s)
}

func firstIndex(args ...ref.Val) ref.Val {
	s, wanted, from := readable(args[0]), readable(args[1]), int64(0)
	if len(args) > 2 {
		from = int64(args[2].(types.Int))
	}
	if from < 0 {
		return types.NewErr("index out of range: %d", from)
	}
	if wanted == "" {
		return types.Int(min(from, int64(utf8.RuneCountInString(s))))
	}
	if err := tooLong(s, wanted); err != nil {
		return err
	}
	start := byteAt(s, from)
	at := strings.Index(s[start:], wanted)
	if at < 0 {
		return types.Int(-1)
	}
	return types.Int(utf8.RuneCountInString(s[:start+at]))
}

func lastIndex(args ...ref.Val) ref.Val {
	s, wanted := readable(args[0]), readable(args[1])
	size := int64(utf8.RuneCountInString(s))
	from := size
	if len(args) > 2 {
		from = int64(args[2].(types.Int))
		switch {
		case from < 0:
			return types.NewErr("index out of range: %d", from)
		case wanted != "" && from >= size:
			return types.Int(-1)
		}
	}
	if wanted == "" {
		return types.Int(min(from, size))
	}
	if err := tooLong(s, wanted); err != nil {
		return err
	}
	end := min(len(s), byteAt(s, from)+len(wanted))
	at := strings.LastIndex(s[:end], wanted)
	if at < 0 {
		return types.Int(-1)
	}
	return types.Int(utf8.RuneCountInString(s[:at]))
}

func split(args ...ref.Val) ref.Val {
	s, separator, most := string(args[0].(types.String)), string(args[1].(types.String)), -1
	if len(args) > 2 {
		most = int(args[2].(types.Int))
	}
	if err := tooLong(s, separator); err != nil {
		return err
	}
	const slot = 16
	if parts := strings.Count(s, separator) + 1; parts > MaxText/slot && (most < 0 || most > MaxText/slot) {
		return types.NewErr("the list made would be too long")
	}
	return types.NewStringList(types.DefaultTypeAdapter, strings.SplitN(s, separator, most))
}

// boundedFormat is the extension's format, for values of at most MaxText together.
func boundedFormat() func(...ref.Val) ref.Val {
	for _, b := range must(must(cel.NewEnv(ext.Strings())).Functions()["format"].Bindings()) {
		if b.Operator == "string_format" {
			return func(args ...ref.Val) ref.Val {
				if weighUpTo(args[1], MaxText)+len(args[0].(types.String)) > MaxText {
					return types.WrapErr(errText)
				}
				return b.Function(args...)
			}
		}
	}
	panic("expr: the strings extension has no format")
}

func replace(args ...ref.Val) ref.Val {
	s, old, by := string(args[0].(types.String)), string(args[1].(types.String)), string(args[2].(types.String))
	if err := tooLong(s, old); err != nil {
		return err
	}
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
