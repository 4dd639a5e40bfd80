package expr

import (
	"errors"
	"maps"
	"net/netip"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/stintdev/stint/internal/address"
)

// Variables are the variables of one request. An empty Route or Operation and an invalid Client are missing;
// without HasRequest, all of request is.
type Variables struct {
	HasRequest                bool
	Method, Path, Host, Route string
	Headers, Query, Cookies   Fields
	Credential                Credential // nil: there is none
	Client                    netip.Addr // as address.Plain makes it
	IPv6Prefix                int        // how many bits of an IPv6 client count in a key
	Operation                 string
	Attrs                     map[string]any // as decoded from JSON; nil: those of LateAttrs
	LateAttrs                 Attrs          // nil: there are none
	Claims                    Claims
	// Secrets has a *Secret under each name. nil: using one is an error.
	Secrets map[string]any
	// Lists has a list under each name; nil: using one is an error.
	Lists map[string]*List
	Cost  int64
	Body  Body // nil: it is not known
	// LenientBody treats an unreadable Body (ErrUnreadable) as one without fields. It may change from one
	// expression to the next.
	LenientBody bool
	// Response is for expressions of type NumberAfter.
	Response Response
}

// ErrUnreadable means that a Body cannot be read.
var ErrUnreadable = errors.New("the body cannot be read")

// Body is the JSON body of a request, for one goroutine.
type Body interface {
	// Lookup returns the value at a path of names, as decoded from JSON, if there is one. An error is the
	// expression's result; it may wrap ErrUnreadable.
	Lookup(path []string) (value any, ok bool, err error)
}

// Response has the data known at the end of a request.
type Response struct {
	Status, Bytes int64
	Seconds       float64
	Headers       Fields
	// JSON has the fields that expressions read (Expression.JSONPaths), as far as they are known.
	JSON map[string]any
}

// Fields are a request's headers, by names in lower case, its parameters or its cookies, for one
// goroutine.
type Fields interface {
	// Lookup returns the value of a name, if there is one. An error is the expression's result.
	Lookup(name string) (value string, ok bool, err error)
	// All returns all values. An error says why they must not be compared; the values are there.
	All() (map[string]string, error)
}

// Claims finds the claims of a client's token, as decoded from JSON, once for each request that needs them.
type Claims interface {
	Claims() (map[string]any, error)
}

// Credential finds the credential of a request, once for each request that needs it. Empty: there is
// none.
type Credential interface {
	Credential() (string, error)
}

// Attrs makes attributes when an expression first uses them.
type Attrs interface {
	Attrs() map[string]any
}

// Scope has one request's variables for expressions, on one goroutine. It makes each variable's value once,
// when first used, since that may allocate. The caller sets Variables before, and calls Close afterwards.
type Scope struct {
	Variables
	inKey bool // a key is evaluated: client.ip has its counted form

	method, path, host, route, credential, address, counted, operation, cost ref.Val

	folded string // the path, folded; "": not known yet

	headers, query, cookies, body, answered fieldMap

	claims any // map[string]any or an error; nil: not known yet
}

// Close resets s to a zero Scope, but keeps memory for the next request.
func (s *Scope) Close() {
	clear(s.headers.asked)
	clear(s.query.asked)
	clear(s.cookies.asked)
	clear(s.body.asked)
	headers, query, cookies, body := s.headers.asked[:0], s.query.asked[:0], s.cookies.asked[:0], s.body.asked[:0]
	*s = Scope{}
	s.headers.asked, s.query.asked, s.cookies.asked, s.body.asked = headers, query, cookies, body
}

// Parent implements cel.Activation.
func (s *Scope) Parent() cel.Activation { return nil }

// ResolveName implements cel.Activation.
func (s *Scope) ResolveName(name string) (any, bool) {
	switch name {
	case "client.ip":
		return s.clientIP(), true
	case "operation":
		return known(&s.operation, s.Operation), true
	case "attrs":
		if s.Attrs == nil && s.LateAttrs != nil {
			s.Attrs = s.LateAttrs.Attrs()
		}
		return s.Attrs, true
	case "claims":
		return s.findClaims(), true
	case "secrets":
		if s.Secrets == nil {
			return noSecrets, true
		}
		return s.Secrets, true
	case scopeName:
		return s, true
	case "cost":
		if s.cost == nil {
			s.cost = types.Int(s.Cost)
		}
		return s.cost, true
	case "body":
		if s.Body == nil {
			return missing, true
		}
		s.body.body, s.body.lenient = s.Body, s.LenientBody
		return &s.body, true
	}
	if field, ok := strings.CutPrefix(name, "response."); ok {
		return s.ofResponse(field)
	}
	return s.ofRequest(name)
}

// scopeName is the name of a Scope in itself. No variable can have it.
const scopeName = "scope()"

// scopeOf is the Scope with which an expression is evaluated; nil: there is none.
func scopeOf(frame *interpreter.ExecutionFrame) *Scope {
	value, _ := frame.ResolveName(scopeName)
	s, _ := value.(*Scope)
	return s
}

func (s *Scope) ofResponse(field string) (any, bool) {
	switch field {
	case "status":
		return types.Int(s.Response.Status), true
	case "bytes":
		return types.Int(s.Response.Bytes), true
	case "seconds":
		return types.Double(s.Response.Seconds), true
	case "headers":
		s.answered.fields = s.Response.Headers
		return &s.answered, true
	case "json":
		return s.Response.JSON, true
	}
	return nil, false
}

func (s *Scope) ofRequest(name string) (any, bool) {
	if !s.HasRequest {
		return missing, isVariable(name)
	}
	switch name {
	case "request.method":
		return once(&s.method, s.Method), true
	case "request.path":
		return once(&s.path, s.Path), true
	case "request.host":
		return once(&s.host, s.Host), true
	case "request.route":
		return known(&s.route, s.Route), true
	case "request.headers":
		s.headers.fields = s.Headers
		return &s.headers, true
	case "request.query":
		s.query.fields = s.Query
		return &s.query, true
	case "request.cookies":
		s.cookies.fields = s.Cookies
		return &s.cookies, true
	case "request.credential":
		return s.findCredential(), true
	}
	return nil, false
}

func (s *Scope) foldedPath() string {
	if s.folded == "" {
		s.folded = FoldPath(s.Path)
	}
	return s.folded
}

func (s *Scope) clientIP() ref.Val {
	if !s.Client.IsValid() {
		return missing
	}
	if s.inKey && s.Client.Is6() {
		if s.counted == nil {
			s.counted = types.String(address.Counted(s.Client, s.IPv6Prefix))
		}
		return s.counted
	}
	if s.address == nil {
		s.address = types.String(s.Client.String())
	}
	return s.address
}

func (s *Scope) findCredential() ref.Val {
	if s.credential != nil {
		return s.credential
	}
	s.credential = missing
	if s.Credential != nil {
		switch text, err := s.Credential.Credential(); {
		case err != nil:
			s.credential = types.WrapErr(err)
		case text != "":
			s.credential = requestText(text)
		}
	}
	return s.credential
}

func (s *Scope) findClaims() any {
	if s.claims == nil {
		var claims map[string]any
		if s.Claims != nil {
			var err error
			if claims, err = s.Claims.Claims(); err != nil {
				s.claims = types.WrapErr(err)
				return s.claims
			}
		}
		s.claims = withoutNull(claims)
	}
	return s.claims
}

// withoutNull is object without null members: otherwise has() would find them, although nothing can be
// counted by null.
func withoutNull(object map[string]any) map[string]any {
	if !hasNull(object) {
		return object
	}
	changed := maps.Clone(object)
	for name, v := range object {
		if v == nil {
			delete(changed, name)
		} else if inner, isObject := v.(map[string]any); isObject {
			changed[name] = withoutNull(inner)
		}
	}
	return changed
}

func hasNull(object map[string]any) bool {
	for _, v := range object {
		if inner, isObject := v.(map[string]any); v == nil || isObject && hasNull(inner) {
			return true
		}
	}
	return false
}

// known is once for a text that is missing if empty.
func known(to *ref.Val, text string) ref.Val {
	if text == "" {
		return missing
	}
	return once(to, text)
}

// once puts a text into to, unless it is there already.
func once(to *ref.Val, text string) ref.Val {
	if *to == nil {
		*to = requestText(text)
	}
	return *to
}

// errRequestText stands for texts of a request that are too long to work with.
var errRequestText = types.NewErr("a text of the request has more than %d bytes", MaxRequestText)

func requestText(text string) ref.Val {
	if len(text) > MaxRequestText {
		return errRequestText
	}
	return types.String(text)
}
