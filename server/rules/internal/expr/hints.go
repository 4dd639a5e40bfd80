package expr

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"

	"github.com/stintdev/stint/internal/address"
)

const mostHints = 10

// hints are the comparisons of an expression with texts that a variable never has, and networks that do not
// contain what they seem to; patterns are comparisons with texts that look like patterns.
func hints(checked *cel.Ast, nat64 address.NAT64) (list, patterns []Problem) {
	tree := checked.NativeRep()
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(part ast.Expr) {
		for _, c := range comparisons(tree, part) {
			if len(list)+len(patterns) == mostHints {
				return
			}
			if why := patternText(&c); why != "" {
				patterns = append(patterns, Problem{startOf(checked, c.id), why})
			} else if why := wrongText(&c, nat64); why != "" {
				list = append(list, Problem{startOf(checked, c.id), why})
			}
		}
	}))
	return list, patterns
}

// aNetwork is the subject of the text of a network.
const aNetwork = "cidr"

type comparison struct {
	subject, text string
	id            int64 // of the literal
}

// comparisons are e's comparisons with literals; nil if it compares with anything else.
func comparisons(tree *ast.AST, e ast.Expr) []comparison {
	if e.Kind() != ast.CallKind {
		return nil
	}
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case operators.Equals, operators.NotEquals:
		for i, arg := range args {
			if text, ok := literal(args[1-i]); ok && subjectOf(tree, arg) != "" {
				return []comparison{{subjectOf(tree, arg), text, args[1-i].ID()}}
			}
		}
	case operators.In:
		if args[1].Kind() != ast.ListKind || subjectOf(tree, args[0]) == "" {
			return nil
		}
		var list []comparison
		for _, element := range args[1].AsList().Elements() {
			text, ok := literal(element)
			if !ok {
				return nil
			}
			list = append(list, comparison{subjectOf(tree, args[0]), text, element.ID()})
		}
		return list
	case "cidr":
		if text, ok := literal(args[0]); ok {
			return []comparison{{aNetwork, text, args[0].ID()}}
		}
	case overloads.StartsWith, isPath, underPath:
		if text, ok := literal(args[0]); ok && isOfPath(tree, call, call.FunctionName()) {
			return []comparison{{"the start of request.path", text, args[0].ID()}}
		}
	}
	return nil
}

// subjectOf names a variable, or a field of one; else "".
func subjectOf(tree *ast.AST, e ast.Expr) string {
	if v := variableOf(tree, e); v != "" {
		return v
	}
	var of, field string
	switch e.Kind() {
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			of, field = subjectOf(tree, s.Operand()), s.FieldName()
		}
	case ast.CallKind:
		c := e.AsCall()
		if isOfPath(tree, c, foldedPath) {
			return "request.path.folded()"
		}
		if c.FunctionName() == operators.Index {
			if text, ok := literal(c.Args()[1]); ok {
				of, field = subjectOf(tree, c.Args()[0]), text
			}
		}
	}
	if of == "" {
		return ""
	}
	return of + "[" + strconv.Quote(field) + "]"
}

// wrongText says why a variable cannot have a text; "": it can.
func wrongText(c *comparison, nat64 address.NAT64) string {
	text := c.text
	switch c.subject {
	case "request.path", "the start of request.path":
		switch {
		case text == "":
		case text[0] != '/':
			return fmt.Sprintf("request.path begins with a slash: it is never %q; write %q", Clip(text), Clip("/"+text))
		case strings.Contains(text, "?"):
			return fmt.Sprintf("request.path is without the query: ? in %q means an escaped one, %%3F; compare request.query", Clip(text))
		case strings.Contains(text, "#"):
			return fmt.Sprintf("a fragment is never sent: # in %q means an escaped one, %%23", Clip(text))
		}
	case "request.path.folded()":
		if folded := FoldPath(text); text != folded {
			return fmt.Sprintf("request.path.folded() is never %q: write %q", Clip(text), Clip(folded))
		}
	case "request.method":
		if upper := strings.ToUpper(text); text != upper {
			return fmt.Sprintf("methods are in upper case, and no usual client sends %q: write %q", Clip(text), Clip(upper))
		}
	case "client.ip":
		return wrongAddress(text, nat64)
	case aNetwork:
		if p, err := nat64.ParseNetwork(text); err == nil {
			return nat64.Hollow(p)
		}
	}
	return ""
}

func wrongAddress(text string, nat64 address.NAT64) string {
	a, err := netip.ParseAddr(text)
	if err == nil {
		if canonical := nat64.Plain(a).String(); canonical != text {
			return fmt.Sprintf("client.ip is never written %q: write %q", Clip(text), canonical)
		}
		return ""
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return fmt.Sprintf(`client.ip is an address and never %q: write client.ip in cidr("%s")`, text, p)
	}
	if a, err := address.Parse(text); err == nil {
		return fmt.Sprintf("client.ip is never written %q: write %q", Clip(text), nat64.Plain(a))
	} else if !errors.Is(err, address.ErrAddress) {
		return fmt.Sprintf("client.ip is never %q: %s", Clip(text), err)
	}
	return fmt.Sprintf("client.ip is never %q, which is not an address", Clip(text))
}
