package rules

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// onlyAt is the one path for which a condition can be true.
type onlyAt struct {
	path   string
	folded bool // path is folded, and what folds to it counts
	known  bool // there is such a path
}

// not tells whether the path of a request is another.
func (o *onlyAt) not(s *scope) bool {
	switch {
	case !o.known || s.in.Request == nil:
		return false
	case o.folded:
		return s.foldedPath() != o.path
	}
	return s.in.Request.Path != o.path
}

// onlyPath is the one path of a request for which a condition can be true: it says
// request.path == "…" or request.path.is("…"), alone or joined with && to anything
// else, and for another path && is false whatever its other operands come to, errors
// among them. Most rules of most files do, so that a file of a thousand of them costs
// a thousand comparisons, and not evaluations.
func onlyPath(tree *ast.AST, e ast.Expr) onlyAt {
	if e.Kind() != ast.CallKind {
		return onlyAt{}
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.LogicalAnd:
		for _, a := range args {
			if o := onlyPath(tree, a); o.known {
				return o
			}
		}
	case isPath:
		if text, ok := literal(args[0]); ok && isOfPath(tree, e.AsCall(), isPath) {
			return onlyAt{FoldPath(text), true, true}
		}
	case operators.Equals:
		for i, a := range args {
			named := tree.ReferenceMap()[a.ID()]
			other := args[1-i]
			if named == nil || named.Name != "request.path" || other.Kind() != ast.LiteralKind {
				continue
			}
			text, ok := other.AsLiteral().(types.String)
			return onlyAt{path: string(text), known: ok}
		}
	}
	return onlyAt{}
}
