package rules

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// onlyPath is the one path of a request for which a condition can be true: it says
// request.path == "…", alone or joined with && to anything else, and for another
// path && is false whatever its other operands come to, errors among them. Most
// rules of most files do, so that a file of a thousand of them costs a thousand
// comparisons, and not evaluations. ok is false where there is no such path.
func onlyPath(tree *ast.AST, e ast.Expr) (path string, ok bool) {
	if e.Kind() != ast.CallKind {
		return "", false
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.LogicalAnd:
		for _, a := range args {
			if path, ok := onlyPath(tree, a); ok {
				return path, true
			}
		}
	case operators.Equals:
		for i, a := range args {
			named := tree.ReferenceMap()[a.ID()]
			other := args[1-i]
			if named == nil || named.Name != "request.path" || other.Kind() != ast.LiteralKind {
				continue
			}
			text, ok := other.AsLiteral().(types.String)
			return string(text), ok
		}
	}
	return "", false
}
