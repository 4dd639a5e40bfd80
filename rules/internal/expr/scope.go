package rules

import (
	"net/netip"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// scope is what expressions see of one Input. It makes the value of a variable
// when the first expression uses it, and once for all of them: putting a string
// into an interface costs an allocation.
type scope struct {
	set    *Set
	in     *Input
	client netip.Addr // in.Client as clients are compared and counted
	inKey  bool       // a key is evaluated: client.ip is how the client is counted

	method, path, host, route, address, counted, operation, cost ref.Val

	folded string // of the path; "": not known yet

	headers, query textMap

	claimed     any // map[string]any, or an error
	claimsKnown bool

	// A bit for each tier: whether it was evaluated, and to true.
	tiersKnown, tiersTrue uint64
}

func (s *scope) open(set *Set, in *Input) {
	s.set, s.in, s.client = set, in, plainAddr(in.Client)
	s.headers.request, s.headers.names, s.headers.may = in.Request, set.headerNames, &set.repeatable
	s.query.request, s.query.isQuery, s.query.may = in.Request, true, &set.repeatable
}

// close lets go of what belongs to the request, and keeps space for the next.
func (s *scope) close() {
	s.headers.close()
	s.query.close()
	*s = scope{headers: s.headers, query: s.query}
}

// Parent implements cel.Activation.
func (s *scope) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (s *scope) ResolveName(name string) (any, bool) {
	switch name {
	case "client.ip":
		return s.clientIP(), true
	case "operation":
		if s.in.Operation == "" {
			return missing, true
		}
		return once(&s.operation, s.in.Operation), true
	case "attrs":
		return s.in.Attrs, true
	case "claims":
		return s.claims(), true
	case "secrets":
		return s.secrets(), true
	case "cost":
		if s.cost == nil {
			s.cost = types.Int(s.in.Cost)
		}
		return s.cost, true
	}
	return s.ofRequest(name)
}

func (s *scope) ofRequest(name string) (any, bool) {
	r := s.in.Request
	if r == nil {
		return missing, isVariable(name)
	}
	switch name {
	case "request.method":
		return once(&s.method, r.Method), true
	case "request.path":
		return once(&s.path, r.Path), true
	case "request.host":
		return once(&s.host, r.Host), true
	case "request.route":
		if r.Route == "" {
			return missing, true
		}
		return once(&s.route, r.Route), true
	case "request.headers":
		return &s.headers, true
	case "request.query":
		return &s.query, true
	}
	return nil, false
}

// foldedPath is FoldPath of the request's path.
func (s *scope) foldedPath() string {
	if s.folded == "" {
		s.folded = FoldPath(s.in.Request.Path)
	}
	return s.folded
}

func (s *scope) clientIP() ref.Val {
	if !s.client.IsValid() {
		return missing
	}
	if s.inKey && s.client.Is6() {
		if s.counted == nil {
			s.counted = types.String(s.set.ClientKey(s.client))
		}
		return s.counted
	}
	if s.address == nil {
		s.address = types.String(s.client.String())
	}
	return s.address
}

func once(to *ref.Val, text string) ref.Val {
	if *to == nil {
		*to = requestText(text)
	}
	return *to
}

// errRequestText is what texts of a request are that no expression is to work with.
var errRequestText = types.NewErr("a text of the request has more than %d bytes", MaxRequestText)

func requestText(text string) ref.Val {
	if len(text) > MaxRequestText {
		return errRequestText
	}
	return types.String(text)
}
