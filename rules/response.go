package rules

import (
	"net/http"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/limittext"
)

// Body is the JSON body of a request. It is used on one goroutine.
type Body interface {
	// Lookup returns what is at a path of names of fields, as decoded from JSON: string, bool,
	// int64, float64, nil, []any or map[string]any. An empty path is the whole body. If there
	// is no body, or nothing at the path, ok is false. An error says why the body cannot be
	// read: it is too long, or no JSON.
	Lookup(path []string) (value any, ok bool, err error)
	// Len is the length of the body in bytes, as far as it is known without reading all of
	// it: 0 if there is none, -1 if it is not known.
	Len() int64
}

// Response is what is known of a request when it ends: the variables of Rule.After.
type Response struct {
	// Status is the status of the upstream's response; 0: there was none.
	Status int
	// Headers has canonical names, as http.Header.Set writes them.
	Headers http.Header
	// Bytes is how many bytes of the response's body passed, and Seconds how long the request took.
	Bytes   int64
	Seconds float64
	// JSON returns the last value that the response had at one of Rule.UsagePaths, as decoded
	// from JSON (see Body.Lookup). If it had none there, or it could not be read, ok is false. nil:
	// it had none anywhere.
	JSON func(path []string) (value any, ok bool)
}

// Unsettled says what a request is charged whose true cost is not known at its end. The zero
// Unsettled is Keep.
type Unsettled uint8

const (
	Keep     Unsettled = iota // the estimate that it held
	GiveBack                  // nothing
)

var unsettledNames = [...]string{"keep", "give_back"}

// String is "keep" or "give_back".
func (u Unsettled) String() string { return nameOf(unsettledNames[:], uint8(u)) }

var unsettleds = limittext.OneOf(Keep, GiveBack)

// isBudget reports whether requests hold their cost under l. (Under an in-flight limit they hold one
// unit, whatever they cost.)
func isBudget(l *stint.Limit) bool { return l.IsHeld() && l.Spec().Algorithm != stint.InFlight }

// CostAfter is what a request did cost under the rule's held limits, of which Limit.Spec has a Hold
// and that are not in flight. If the response does not say, known is false, and Unsettled says what
// to charge. An error says that the cost cannot be computed from what the response says; then it is
// not known either. A rule with neither After nor Tokens knows nothing: its requests cost what they
// held.
func (r *Rule) CostAfter(resp *Response) (cost int64, known bool, err error) {
	return r.Tokens.used(resp)
}

// UsagePaths are the paths that CostAfter looks for in the JSON of a response, each once. Empty: it
// needs none.
func (r *Rule) UsagePaths() [][]string { return r.Tokens.paths() }

// ReadsBody reports whether Asks may look at Request.Body, or a gateway has to change it for
// Tokens.IncludeUsage.
func (s *Set) ReadsBody() bool { return s.readsBody }

// Holds reports whether a rule has limits that are held.
func (s *Set) Holds() bool { return s.holds }
