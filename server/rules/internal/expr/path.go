package expr

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// FoldPath returns one path for all those that some common server treats as the same. The
// result is folded itself. In this order:
//
//   - escapes are decoded, also those that appear when others have been decoded, and the
//     path ends at a NUL
//   - a backslash is a slash
//   - in each segment, a semicolon is removed with the text after it, and then spaces and dots at the end,
//     unless the segment is "." or ".."
//   - empty segments and "." are removed, and ".." with the segment before it
//   - letters of either case are one, as Unicode's simple folding has it: those of ASCII
//     are in lower case
//   - there is a slash at the beginning, and none at the end
//
// "" stays "". Extensions stay, too: /login.json is not /login, though it is to Rails.
func FoldPath(p string) string {
	if p == "" || isFolded(p) {
		return p
	}
	return joinFolded(foldBytes(p))
}

// isFolded reports whether p is surely folded. It is false for some folded paths.
func isFolded(p string) bool {
	if p[0] != '/' || len(p) > 1 && p[len(p)-1] == '/' {
		return false
	}
	for i := range len(p) {
		switch c := p[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		case c == '/' && (i == 0 || p[i-1] != '/'):
		case c == '.' && p[i-1] != '/' && i+1 < len(p) && p[i+1] != '/' && p[i+1] != '.':
		default:
			return false
		}
	}
	return true
}

func foldBytes(p string) string {
	b := make([]byte, 0, len(p))
	for i := range len(p) {
		b = append(b, p[i])
		for n := len(b) - 3; n >= 0 && b[n] == '%' && isHex(b[n+1]) && isHex(b[n+2]); n = len(b) - 3 {
			b = append(b[:n], unhex(b[n+1])<<4|unhex(b[n+2]))
		}
	}
	decoded, _, _ := strings.Cut(string(b), "\x00")
	return decoded
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

func joinFolded(p string) string {
	b := make([]byte, 0, len(p)+1)
	for segment := range strings.FieldsFuncSeq(p, func(c rune) bool { return c == '/' || c == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";")
		switch segment {
		case ".":
		case "..":
			for len(b) > 0 && b[len(b)-1] != '/' {
				b = b[:len(b)-1]
			}
			b = b[:max(0, len(b)-1)]
		default:
			if segment = strings.TrimRight(segment, " ."); segment != "" {
				b = appendFolded(append(b, '/'), segment)
			}
		}
	}
	if len(b) == 0 {
		return "/"
	}
	return string(b)
}

func appendFolded(b []byte, text string) []byte {
	for i, c := range text {
		if c == utf8.RuneError { // also for bytes that are not UTF-8, which stay
			_, size := utf8.DecodeRuneInString(text[i:])
			b = append(b, text[i:i+size]...)
			continue
		}
		b = utf8.AppendRune(b, foldRune(c))
	}
	return b
}

// foldRune is one of the letters that differ from c in case only: ASCII in lower case, or the
// smallest.
func foldRune(c rune) rune {
	least := c
	for r := unicode.SimpleFold(c); r != c; r = unicode.SimpleFold(r) {
		least = min(least, r)
	}
	if 'A' <= least && least <= 'Z' {
		return least + 'a' - 'A'
	}
	return least
}

const foldedPath, isPath, underPath = "folded", "is", "under"

func pathFunctions() []cel.EnvOption {
	text := []*cel.Type{cel.StringType}
	two := []*cel.Type{cel.StringType, cel.StringType}
	return []cel.EnvOption{
		cel.Function(foldedPath, cel.MemberOverload("string_folded", text, cel.StringType, cel.UnaryBinding(func(p ref.Val) ref.Val {
			return types.String(FoldPath(string(p.(types.String))))
		}))),
		cel.Function(isPath, cel.MemberOverload("string_is_string", two, cel.BoolType, cel.BinaryBinding(func(p, of ref.Val) ref.Val {
			return types.Bool(FoldPath(string(p.(types.String))) == FoldPath(string(of.(types.String))))
		}))),
		cel.Function(underPath, cel.MemberOverload("string_under_string", two, cel.BoolType, cel.BinaryBinding(func(p, of ref.Val) ref.Val {
			return types.Bool(isUnder(FoldPath(string(p.(types.String))), FoldPath(string(of.(types.String)))))
		}))),
		cel.CostModel(
			cost.MemberOverload("string_folded", foldCost(cost.Target()), cost.ResultSize(cost.Sum(cost.Const(1), cost.Length(cost.Target())))),
			cost.MemberOverload("string_is_string", foldCost(cost.Target(), cost.Arg(0))),
			cost.MemberOverload("string_under_string", foldCost(cost.Target(), cost.Arg(0)))),
	}
}

func foldCost(texts ...cost.QuantityExpr) cost.OverloadModelOption {
	work := []cost.QuantityExpr{cost.Const(cost.CallCost)}
	for _, text := range texts {
		work = append(work, cost.StringScan(cost.Length(text)))
	}
	return cost.EvalCost(cost.Sum(work...))
}

// isUnder reports whether p is of or lies below it. Both are folded.
func isUnder(p, of string) bool {
	rest, ok := strings.CutPrefix(p, strings.TrimSuffix(of, "/"))
	return ok && p != "" && of != "" && (rest == "" || rest[0] == '/')
}

// ofPath is request.path.is("…") or request.path.under("…"). It folds the request's path once for all of them, so
// that it is little work.
type ofPath struct {
	interpreter.InterpretableV2
	path  interpreter.InterpretableV2
	than  string // folded
	under bool
}

func newOfPath(call interpreter.InterpretableCall, args []interpreter.InterpretableV2) *ofPath {
	than := args[1].(interpreter.InterpretableConst).Value().(types.String)
	return &ofPath{call.(interpreter.InterpretableV2), args[0], FoldPath(string(than)), call.Function() == underPath}
}

func (o *ofPath) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if v := o.path.Exec(frame); types.IsUnknownOrError(v) {
		return v
	}
	path := scopeOf(frame).foldedPath()
	if o.under {
		return types.Bool(isUnder(path, o.than))
	}
	return types.Bool(path == o.than)
}

func (o *ofPath) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, o.Exec)
}

// isOfPath reports whether a call is one of this function on request.path.
func isOfPath(tree *ast.AST, call ast.CallExpr, function string) bool {
	return call.FunctionName() == function && call.IsMemberFunction() && variableOf(tree, call.Target()) == "request.path"
}

// onlyPath is the only path for which a condition can be true.
type onlyPath struct {
	path   string
	folded bool // path is folded, and all paths that fold to it count
	known  bool // there is such a path
}

// excludes reports whether the path of the request is another.
func (o *onlyPath) excludes(s *Scope) bool {
	switch {
	case !o.known || !s.HasRequest:
		return false
	case o.folded:
		return s.foldedPath() != o.path
	}
	return s.Path != o.path
}

// onlyPathOf finds the only path that a condition allows by request.path == "…" or .is("…"), alone or in an
// &&. Most rules have one, and a comparison is cheaper than an evaluation.
func onlyPathOf(tree *ast.AST, e ast.Expr) onlyPath {
	if e.Kind() != ast.CallKind {
		return onlyPath{}
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.LogicalAnd:
		for _, a := range args {
			if o := onlyPathOf(tree, a); o.known {
				return o
			}
		}
	case isPath:
		if text, ok := literal(args[0]); ok && isOfPath(tree, e.AsCall(), isPath) {
			return onlyPath{FoldPath(text), true, true}
		}
	case operators.Equals:
		for i, a := range args {
			other := args[1-i]
			if variableOf(tree, a) != "request.path" || other.Kind() != ast.LiteralKind {
				continue
			}
			text, ok := other.AsLiteral().(types.String)
			return onlyPath{path: string(text), known: ok}
		}
	}
	return onlyPath{}
}
