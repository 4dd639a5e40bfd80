package rules

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"

	"github.com/stintdev/stint/internal/yamlnode"
)

// compiler turns the scalars of a file into expressions.
type compiler struct {
	r *yamlnode.Reader
	// headerNames gathers the canonical forms of the header names that
	// expressions ask for literally.
	headerNames map[string]string
	// findings is where to put what is found on the way, and secrets where the names
	// of secrets in expressions.
	findings *[]Finding
	secrets  *[]secretAt
	budget   *budget
}

// problem is something wrong with an expression, offset characters from its
// beginning.
type problem struct {
	offset int
	text   string
}

// compile reads the expression n for a field; nil, having reported why, where
// there is none.
func (c *compiler) compile(n *yamlnode.Node, f *field) *expression {
	if len(n.Content) > 0 {
		c.r.Report(n, "want an expression: quote one that begins with a bracket, as in '[client.ip, request.path]'")
		return nil
	}
	source, ok := c.r.Scalar(n, "an expression")
	if !ok || c.budget.stopped() != nil {
		return nil
	}
	e, problems := c.check(source, f)
	for _, p := range problems {
		c.r.ReportWithin(n, p.offset, "%s", p.text)
	}
	if len(problems) > 0 {
		return nil
	}
	for _, use := range e.secrets {
		line, column := c.r.Position(n, use.offset)
		*c.secrets = append(*c.secrets, secretAt{use.name, c.r.File(), line, column})
	}
	if f == condition {
		for _, p := range e.vain {
			c.found(CodeNeverMatches, c.r.PlaceWithin(n, p.offset), "%s", p.text)
		}
		e.vain = nil
	}
	return e
}

func (c *compiler) check(source string, f *field) (*expression, []problem) {
	if strings.TrimSpace(source) == "" {
		return nil, []problem{{0, "the expression is empty"}}
	}
	if len(source) > MaxExpression {
		return nil, []problem{{0, fmt.Sprintf("the expression has %d bytes: at most %d", len(source), MaxExpression)}}
	}
	if c.budget.source -= len(source); c.budget.source < 0 {
		return nil, []problem{{0, fmt.Sprintf("all expressions together have more than %d bytes", MaxExpressions)}}
	}
	checked, issues := language().Compile(source)
	if errs := issues.Errors(); len(errs) > 0 { // Err would write all of the source for each
		return nil, explain(source, errs)
	}
	i := c.inspect(checked)
	if len(i.problems) > 0 {
		return nil, i.problems
	}
	t := checked.OutputType()
	if !f.fits(t) {
		return nil, []problem{{0, fmt.Sprintf("want %s, have %s: %s", f.want, cel.FormatCELType(t), f.hint)}}
	}
	e, err := c.budget.compiled(checked)
	if err != nil {
		offset, text := foldProblem(err, checked)
		return nil, []problem{{offset, text}}
	}
	e.secrets, e.claims, e.headers = i.secrets, i.claims, i.headers
	e.source, e.isList = strings.TrimSpace(source), t.Kind() == types.ListKind
	switch root := checked.NativeRep().Expr(); root.Kind() {
	case ast.ListKind:
		if len(root.AsList().OptionalIndices()) == 0 {
			e.parts = root.AsList().Size()
		}
	case ast.CallKind:
		e.hashed = isHash(root.AsCall().FunctionName())
	}
	return e, nil
}

// explain puts CEL's errors in our words where those say more. What other languages
// write for an operator explains all that CEL says of a source with such.
func explain(source string, issues []*cel.Error) []problem {
	if len(issues) > 0 && strings.Contains(issues[0].Message, "Syntax error") {
		if problems := foreign(source); len(problems) > 0 {
			return problems
		}
	}
	characters, lines := []rune(source), strings.SplitAfter(source, "\n")
	problems := make([]problem, 0, len(issues))
	for _, issue := range issues {
		p := problem{offset: max(0, issue.Location.Column())}
		for _, line := range lines[:min(len(lines), max(0, issue.Location.Line()-1))] {
			p.offset += utf8.RuneCountInString(line)
		}
		if name, ok := strings.CutPrefix(issue.Message, "undeclared reference to '"); ok {
			name, _, _ = strings.Cut(name, "'")
			p = unknownName(name, characters, p.offset)
		} else {
			p.text = plainSyntax(issue.Message)
		}
		p.text = clip(p.text)
		problems = append(problems, p)
	}
	return problems
}

// plainSyntax spares the reader the list of all that the parser would have taken.
func plainSyntax(message string) string {
	message, _, _ = strings.Cut(message, " expecting ")
	message = strings.Replace(message, "mismatched input '<EOF>'", "the expression ends too soon", 1)
	return strings.Replace(message, "Syntax error", "syntax error", 1)
}

// unknownName is the problem with a name that CEL does not know. Of a function CEL
// tells the place of its parenthesis, of a variable that of its beginning, or of
// its last dot where it knows the part before.
func unknownName(name string, source []rune, offset int) problem {
	if offset < len(source) && source[offset] == '(' {
		return problem{offset, fmt.Sprintf("unknown function %q", name)}
	}
	if start := offset - strings.LastIndex(name, "."); start < offset && start >= 0 &&
		strings.HasPrefix(string(source[start:]), name) {
		offset = start
	}
	end := offset
	for end < len(source) && (source[end] == '_' || source[end] == '.' || unicode.IsLetter(source[end]) || unicode.IsDigit(source[end])) {
		end++
	}
	full := strings.TrimRight(string(source[min(offset, end):end]), ".")
	if !strings.HasPrefix(full, name) {
		full = name
	}
	if isVariable(full) {
		return problem{offset, "has() tests the fields of request.headers, request.query, attrs and claims; " + full + " is none"}
	}
	text := fmt.Sprintf("unknown variable %q", full)
	if near := yamlnode.Nearest(full, variableNames()); near != "" {
		text += ": did you mean " + near + "?"
	}
	text += " (variables: " + strings.Join(variableNames(), ", ")
	if full == name && !strings.Contains(name, ".") {
		text += `; text is quoted: '"` + name + `"'`
	}
	return problem{offset, text + ")"}
}

// inspector finds what has the right types and yet cannot work.
type inspector struct {
	checked     *cel.Ast
	headerNames map[string]string
	problems    []problem
	secrets     []secretUse
	proper      map[int64]bool // uses of the variable secrets, by id
	claims      bool           // the variable claims is used
	headers     []string       // that are asked for literally
}

func (c *compiler) inspect(checked *cel.Ast) *inspector {
	i := &inspector{checked: checked, headerNames: c.headerNames, proper: map[int64]bool{}}
	root := checked.NativeRep().Expr()
	ast.PostOrderVisit(root, ast.NewExprVisitor(i.visit))
	ast.PostOrderVisit(root, ast.NewExprVisitor(i.secretsStay))
	return i
}

func (i *inspector) note(e ast.Expr, format string, args ...any) {
	i.problems = append(i.problems, problem{startOf(i.checked, e.ID()), fmt.Sprintf(format, args...)})
}

func (i *inspector) visit(e ast.Expr) {
	i.claims = i.claims || i.isVariable(e, "claims")
	if e.Kind() == ast.SelectKind {
		if s := e.AsSelect(); i.isHeaders(s.Operand()) {
			i.headerName(e, s.FieldName())
		}
	}
	if e.Kind() != ast.CallKind {
		return
	}
	args := e.AsCall().Args()
	switch name := e.AsCall().FunctionName(); {
	case name == overloads.Matches:
		i.pattern(args[len(args)-1])
	case name == "cidr":
		if text, ok := literal(args[0]); ok {
			if _, err := ParseNetwork(text); err != nil {
				i.note(args[0], "%s", err)
			}
		}
	case name == "hmac":
		i.takesSecret(args[0])
	case name == operators.Index && i.isHeaders(args[0]):
		if text, ok := literal(args[1]); ok {
			i.headerName(args[1], text)
		}
	case name == operators.In && i.isHeaders(args[1]):
		if text, ok := literal(args[0]); ok {
			i.headerName(args[0], text)
		}
	}
}

func (i *inspector) isVariable(e ast.Expr, name string) bool {
	named := i.checked.NativeRep().ReferenceMap()[e.ID()]
	return named != nil && named.Name == name
}

func (i *inspector) isHeaders(e ast.Expr) bool { return i.isVariable(e, "request.headers") }

// pattern refuses patterns that a request could choose: compiling one costs
// whatever it says.
func (i *inspector) pattern(e ast.Expr) {
	text, ok := literal(e)
	if !ok {
		i.note(e, "the pattern of matches must be a literal string")
	} else if _, err := patternSteps(text); err != nil {
		i.note(e, "%s", err)
	}
}

// headerName refuses names that no request has, and remembers the others.
func (i *inspector) headerName(e ast.Expr, name string) {
	switch lower := strings.ToLower(name); {
	case name != lower:
		i.note(e, "names in request.headers are in lower case: %q", lower)
	case name == "host":
		i.note(e, "the Host header is request.host, not one of request.headers")
	default:
		i.headerNames[name] = http.CanonicalHeaderKey(name)
		i.headers = append(i.headers, name)
	}
}

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}
