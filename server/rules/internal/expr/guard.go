package expr

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/stintdev/stint/internal/address"
)

// Guard is a need of a Condition: if each of its terms is false of a request, the condition is false, and no
// evaluation would fail. So who has many conditions need not evaluate this one.
type Guard struct {
	Terms []Term
	// Quiet extends this to requests that lack the fields of its terms. Without Quiet, another part of the
	// condition may fail, which an evaluation must report.
	Quiet bool
}

// Term compares a field of a request with a constant.
type Term struct {
	Field   Field
	By      Comparison
	Text    string       // the constant; for AsFolded and AsUnder folded
	Network netip.Prefix // the constant of AsNetwork
}

// Field is a text of a request: a variable, or a part of one that has parts.
type Field struct {
	Variable string // such as "request.headers"
	Name     string // in it; of attrs and claims a path, joined by pathSeparator
}

const pathSeparator = "\x00"

// Comparison is how a Term compares. All but AsEqual are for one Field: AsNetwork for client.ip, the others for
// request.path.
type Comparison uint8

const (
	AsEqual   Comparison = iota // the same text
	AsFolded                    // the same when folded
	AsUnder                     // the folded text, or below it
	AsPrefix                    // begins with the text
	AsNetwork                   // an address in the network
)

// guardsOf finds the guards of a condition. counted: the work of its evaluation is.
func guardsOf(checked *cel.Ast, nat64 address.NAT64, counted bool) []Guard {
	g := guarding{checked.NativeRep(), nat64, counted}
	root := g.tree.Expr()
	all := g.of(root)
	if g.leads(root) {
		return all
	}
	return slices.DeleteFunc(all, func(one Guard) bool { return ReadClaims(one.Terms) })
}

// ReadClaims reports whether a term looks for claims.
func ReadClaims(terms []Term) bool {
	return slices.ContainsFunc(terms, func(t Term) bool { return t.Field.Variable == "claims" })
}

type guarding struct {
	tree    *ast.AST
	nat64   address.NAT64
	counted bool
}

func (g *guarding) of(e ast.Expr) []Guard {
	switch functionOf(e) {
	case operators.LogicalAnd:
		return g.ofAll(conjuncts(e, nil))
	case operators.LogicalOr:
		return g.ofAny(e.AsCall().Args())
	}
	if terms := g.terms(e); terms != nil {
		return []Guard{{terms, true}}
	}
	return nil
}

// ofAll are the guards of parts that && joins: those of each part. An expression whose work is counted may
// fail in a part before it comes to the next.
func (g *guarding) ofAll(parts []ast.Expr) (all []Guard) {
	for i, part := range parts {
		others := slices.Concat(parts[:i], parts[i+1:])
		for _, one := range g.of(part) {
			one.Quiet = one.Quiet && !slices.ContainsFunc(others, func(other ast.Expr) bool { return g.mayFail(other, one.Terms) })
			all = append(all, one)
		}
		if g.counted && !g.isPlain(part) {
			break
		}
	}
	return all
}

// isPlain reports whether a part has comparisons only, which are little work however long the texts of a request.
func (g *guarding) isPlain(e ast.Expr) bool {
	switch functionOf(e) {
	case operators.LogicalAnd, operators.LogicalOr:
		return !slices.ContainsFunc(e.AsCall().Args(), func(part ast.Expr) bool { return !g.isPlain(part) })
	}
	return g.terms(e) != nil
}

// ofAny is a guard of parts that || joins: one of each part together.
func (g *guarding) ofAny(parts []ast.Expr) []Guard {
	joined := Guard{Quiet: true}
	for _, part := range parts {
		found := g.of(part)
		if found == nil {
			return nil
		}
		one := slices.MinFunc(found, func(a, b Guard) int { return cmp.Compare(a.rank(), b.rank()) })
		joined.Terms = append(joined.Terms, one.Terms...)
		joined.Quiet = joined.Quiet && one.Quiet
	}
	return []Guard{joined}
}

// rank is lower for guards that probably exclude more requests, at less cost.
func (g *Guard) rank() int {
	rank := len(g.Terms)
	for i := range g.Terms {
		switch g.Terms[i].Field.Variable {
		case "request.method":
			rank += 100
		case "claims":
			rank += 1000
		}
	}
	return rank
}

// leads reports whether an evaluation always begins with claims, which are looked for only if needed.
func (g *guarding) leads(e ast.Expr) bool {
	for slices.Contains([]string{operators.LogicalAnd, operators.LogicalOr}, functionOf(e)) {
		e = e.AsCall().Args()[0]
	}
	terms := g.terms(e)
	return terms != nil && terms[0].Field.Variable == "claims" && !onlyPathOf(g.tree, g.tree.Expr()).known
}

// mayFail reports whether a part may fail, and not only be missing, where the fields of terms did not, and no
// text is too long.
func (g *guarding) mayFail(e ast.Expr, terms []Term) bool {
	switch functionOf(e) {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot:
		return slices.ContainsFunc(e.AsCall().Args(), func(part ast.Expr) bool { return g.mayFail(part, terms) })
	case operators.NotEquals:
		f, _, ok := g.comparison(e.AsCall().Args())
		return !ok || f.mayFail(terms)
	}
	if f, ok := g.test(e); ok {
		return f.mayFail(terms)
	}
	own := g.terms(e)
	return own == nil || own[0].Field.mayFail(terms)
}

// mayFail reports whether a request may have the field in a way that servers read differently, or in a value
// that is no object, although this is not so of the fields of terms.
func (f *Field) mayFail(terms []Term) bool {
	nested := strings.Contains(f.Name, pathSeparator)
	switch f.Variable {
	case "request.headers", "request.query", "request.cookies":
		nested = true
	case "claims":
		nested = nested || !ReadClaims(terms)
	}
	return nested && !slices.ContainsFunc(terms, func(t Term) bool { return t.Field == *f })
}

// test is the field whose presence e tests.
func (g *guarding) test(e ast.Expr) (Field, bool) {
	switch {
	case e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly():
		return g.fieldAt(e.AsSelect().Operand(), []string{e.AsSelect().FieldName()})
	case functionOf(e) == operators.In:
		if name, ok := literal(e.AsCall().Args()[0]); ok {
			return g.fieldAt(e.AsCall().Args()[1], []string{name})
		}
	}
	return Field{}, false
}

// terms are comparisons of which one must be true for e to be; nil: e is something else.
func (g *guarding) terms(e ast.Expr) []Term {
	if e.Kind() != ast.CallKind {
		return nil
	}
	call := e.AsCall()
	switch args := call.Args(); call.FunctionName() {
	case operators.Equals:
		if f, text, ok := g.comparison(args); ok {
			return []Term{{Field: f, Text: text}}
		}
	case operators.In:
		return g.membership(args[0], args[1])
	case isPath:
		return g.ofPath(call, isPath, AsFolded)
	case underPath:
		return g.ofPath(call, underPath, AsUnder)
	case "startsWith":
		return g.ofPath(call, "startsWith", AsPrefix)
	}
	return nil
}

// comparison is a field and the literal text beside it.
func (g *guarding) comparison(args []ast.Expr) (f Field, text string, ok bool) {
	for i, a := range args {
		if text, ok = literal(args[1-i]); ok {
			f, ok = g.field(a)
			return f, text, ok
		}
	}
	return Field{}, "", false
}

func (g *guarding) ofPath(call ast.CallExpr, function string, by Comparison) []Term {
	text, ok := literal(call.Args()[0])
	if !ok || !isOfPath(g.tree, call, function) {
		return nil
	}
	if by != AsPrefix {
		text = FoldPath(text)
	}
	return []Term{{Field: Field{Variable: "request.path"}, By: by, Text: text}}
}

func (g *guarding) membership(of, in ast.Expr) (terms []Term) {
	f, ok := g.field(of)
	if !ok {
		return nil
	}
	if in.Kind() == ast.ListKind {
		for _, element := range in.AsList().Elements() {
			text, ok := literal(element)
			if !ok {
				return nil
			}
			terms = append(terms, Term{Field: f, Text: text})
		}
		return terms
	}
	if f.Variable != "client.ip" || functionOf(in) != "cidr" {
		return nil
	}
	text, ok := literal(in.AsCall().Args()[0])
	if !ok {
		return nil
	}
	p, err := ParseNetwork(text, nil)
	if err != nil {
		return nil
	}
	if len(g.nat64) > 0 {
		p = g.nat64.PlainNetwork(p)
	}
	return []Term{{Field: f, By: AsNetwork, Network: p}}
}

// guardingVariables are the variables that are texts, and guardingMaps those that have some.
var (
	guardingVariables = []string{"request.path", "request.method", "request.host", "request.route", "operation", "client.ip"}
	guardingMaps      = []string{"request.headers", "request.query", "request.cookies", "attrs", "claims"}
)

func (g *guarding) field(e ast.Expr) (Field, bool) { return g.fieldAt(e, nil) }

// fieldAt is the field at a path below e, the last name first.
func (g *guarding) fieldAt(e ast.Expr, path []string) (Field, bool) {
	for {
		if v := variableOf(g.tree, e); slices.Contains(guardingVariables, v) && path == nil {
			return Field{Variable: v}, true
		} else if slices.Contains(guardingMaps, v) && path != nil {
			slices.Reverse(path)
			nested := len(path) > 1 && v != "attrs" && v != "claims"
			odd := slices.ContainsFunc(path, func(name string) bool { return strings.Contains(name, pathSeparator) })
			return Field{v, strings.Join(path, pathSeparator)}, !nested && !odd
		}
		of, name, ok := field(e)
		if !ok || e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() {
			return Field{}, false
		}
		e, path = of, append(path, name)
	}
}

func functionOf(e ast.Expr) string {
	if e.Kind() != ast.CallKind {
		return ""
	}
	return e.AsCall().FunctionName()
}

// Presence is what Scope.Text knows of a field.
type Presence uint8

const (
	Unclear Presence = iota // only an evaluation tells what comparisons with it are
	Absent                  // it is missing
	NoText                  // it is there, and equal to no text
	Text                    // it is a text
)

// Text is a field of a request that has no long text; see HasLongText.
func (s *Scope) Text(f *Field) (string, Presence) {
	switch f.Variable {
	case "operation":
		return orAbsent(s.Operation)
	case "client.ip":
		if !s.Client.IsValid() {
			return "", Absent
		}
		return string(s.clientIP().(types.String)), Text
	case "attrs":
		attrs, _ := s.ResolveName("attrs")
		return textIn(attrs, f.Name)
	case "claims":
		return textIn(s.findClaims(), f.Name)
	}
	if !s.HasRequest {
		return "", Absent
	}
	switch f.Variable {
	case "request.method":
		return s.Method, Text
	case "request.path":
		return s.Path, Text
	case "request.host":
		return s.Host, Text
	case "request.route":
		return orAbsent(s.Route)
	}
	fields, _ := s.ofRequest(f.Variable)
	switch v := fields.(*fieldMap).lookup(f.Name).(type) {
	case nil:
		return "", Absent
	case types.String:
		return string(v), Text
	}
	return "", Unclear
}

func orAbsent(text string) (string, Presence) {
	if text == "" {
		return "", Absent
	}
	return text, Text
}

// textIn finds a text in attrs or claims. What has another type than JSON's is left to CEL.
func textIn(of any, path string) (string, Presence) {
	for more := true; more; {
		object, ok := of.(map[string]any)
		if !ok {
			return "", Unclear
		}
		var name string
		name, path, more = strings.Cut(path, pathSeparator)
		if of, ok = object[name]; !ok {
			return "", Absent
		}
	}
	switch v := of.(type) {
	case string:
		return v, Text
	case nil, bool, int64, float64:
		return "", NoText
	}
	return "", Unclear
}

// HasLongText reports whether a text of the request fails all expressions that use it, and so their guards do
// not count.
func (s *Scope) HasLongText() bool {
	return max(len(s.Operation), len(s.Method), len(s.Path), len(s.Host), len(s.Route)) > MaxRequestText
}

// FoldedPath is the path of the request, folded; empty: there is no request.
func (s *Scope) FoldedPath() string {
	if !s.HasRequest {
		return ""
	}
	return s.foldedPath()
}
