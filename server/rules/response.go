package rules

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/usage"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// Errors of Body.Lookup; see there.
var (
	ErrTwice    = usage.ErrTwice
	ErrCase     = usage.ErrCase
	ErrTooLarge = usage.ErrTooLarge
)

// Body is the JSON body of a request. It is used on one goroutine.
type Body interface {
	// Lookup returns the value at a path of field names, as decoded from JSON: string, bool, int64, float64,
	// nil, []any or map[string]any. path has at least one name. If there is no body, or nothing at the path,
	// ok is false. The error wraps ErrUnreadable if the body is too long or not JSON; ErrTwice if one object
	// has a name of the path twice, in any letter case; ErrCase if it has the name only in another case;
	// ErrTooLarge if the number is too large. Servers read such bodies in different ways.
	Lookup(path []string) (value any, ok bool, err error)
	// Field is Lookup for Tokens, which only estimates: it also reads bodies that are longer, compressed or
	// in another charset. For a list, an object or a long text it may return an empty one.
	Field(path []string) (value any, ok bool, err error)
	// Each calls f for each element of the list at path, in order, with a Lookup like Field in that element.
	// It stops at the first error, and returns it. If there is no list, it does not call f. It has the errors
	// of Field.
	Each(path []string, f func(Lookup) error) error
	// Prompt is the part of the body that a model reads.
	Prompt() Prompt
}

// Prompt is the part of a request's body that a model reads.
type Prompt struct {
	// Text is the number of bytes that are not Media: of JSON without its base64 data, or of a whole body
	// that cannot be read. -1: not known.
	Text int64
	// Media is about how many tokens pictures, recordings and files take.
	Media int64
}

// Lookup finds a value like Body.Lookup.
type Lookup func(path []string) (value any, ok bool, err error)

// Response is the known data of a request at its end: the variables of Rule.After.
type Response struct {
	// Endpoint is the endpoint of the request.
	Endpoint Endpoint
	// Status is the status of the upstream's response; 0: there was none.
	Status int
	// Headers has canonical names, as http.Header.Set writes them.
	Headers http.Header
	// Bytes is how many bytes of the response's body passed, and Seconds how long the request took.
	Bytes   int64
	Seconds float64
	// Unzipped is how many bytes of the body, without compression, were read to find JSON, and Events how
	// many parts of a JSON stream they had: server-sent events, lines, or objects of a list.
	Unzipped, Events int64
	// Prompt is the part of the request's body that a model read. Zero: nothing.
	Prompt Prompt
	// JSON returns the last value at one of Rule.UsagePaths in the response, as decoded from JSON (see
	// Body.Lookup). If there was none, or it could not be read, ok is false. A nil JSON: none at any path.
	JSON func(path []string) (value any, ok bool)
}

// Unsettled says what to charge a request whose true cost is not known at its end. The zero Unsettled is
// Keep.
type Unsettled uint8

const (
	Keep     Unsettled = iota // the estimate that it held
	GiveBack                  // nothing
)

var unsettledNames = [...]string{"keep", "give_back"}

// String is "keep" or "give_back".
func (u Unsettled) String() string { return nameOf(unsettledNames[:], uint8(u)) }

// ParseUnsettled is the inverse of String. Any other text is an error.
func ParseUnsettled(text string) (Unsettled, error) {
	return limittext.OneOf("unsettled", Keep, GiveBack)(text)
}

// CostAfter returns the final cost of a request under the rule's budgets (see IsBudget). If the response does
// not report it, known is false, and Unsettled says what to charge. An error says why the cost cannot be
// computed from the response; known is false then. For a rule with neither After nor Tokens, known is always
// false: its requests cost their held units.
func (r *Rule) CostAfter(resp *Response) (cost int64, known bool, err error) {
	if r.after == nil {
		cost, known = r.Tokens.used(resp)
		return cost, known, nil
	}
	var s expr.Scope
	v := &s.Variables.Response
	v.Status, v.Bytes, v.Seconds = int64(resp.Status), resp.Bytes, resp.Seconds
	v.Headers, v.JSON = responseHeaders(resp.Headers), resp.fields(r.after.JSONPaths)
	cost, known, err = r.after.Int(&s)
	if err == nil && cost < 0 {
		err = fmt.Errorf("%d: must not be negative", cost)
	}
	if err != nil {
		return 0, false, fmt.Errorf("rules: rule %q: cost_after: %s", r.Name, expr.Clip(err.Error()))
	}
	return cost, known, nil
}

// LeastCost returns the least possible cost of a request that held this many units and whose cost CostAfter
// does not know, as when the client left: for a rule with Tokens, the estimate of its input, and the tokens
// that passed, if they are text. An answer that is not a stream is taken for text. If the input's estimate
// reaches held, the result is held or the passed tokens, whichever is more: only a response can show a higher
// cost.
func (r *Rule) LeastCost(resp *Response, held int64) int64 {
	t := &r.Tokens
	if r.after != nil || t.API == NoTokens {
		return 0
	}
	output := resp.Unzipped / t.BytesPerToken
	if resp.Events > 0 {
		output = max(resp.Events, resp.Unzipped/streamedToken)
	}
	if u := resp.Endpoint.use; u == embeds || u == makes {
		output = 0 // the output that passed is not text: numbers, or a picture
	}
	passed := times(min(output, mostTokens), t.OutputWeight)
	if input := t.input(resp.Prompt); input < held {
		return input + passed
	}
	return max(held, passed)
}

// UsagePaths are the paths that CostAfter reads in the JSON of a response, each once: field names from the
// root. Empty: it needs none.
func (r *Rule) UsagePaths() [][]string {
	if r.after != nil {
		return r.after.JSONPaths
	}
	return r.Tokens.paths()
}

// fields is an object with the known values at paths. If one path continues another, the longer counts.
func (resp *Response) fields(paths [][]string) map[string]any {
	root := map[string]any{}
	if resp.JSON == nil {
		return root
	}
	for _, path := range slices.SortedFunc(slices.Values(paths), func(a, b []string) int { return len(a) - len(b) }) {
		value, ok := resp.JSON(path)
		if !ok {
			continue
		}
		object := root
		for _, name := range path[:len(path)-1] {
			inner, ok := object[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				object[name] = inner
			}
			object = inner
		}
		object[path[len(path)-1]] = value
	}
	return root
}

// responseHeaders are headers as expr.Fields. All lines of a header are joined by commas.
type responseHeaders http.Header

func (h responseHeaders) Lookup(name string) (text string, ok bool, err error) {
	lines := h[http.CanonicalHeaderKey(name)]
	return strings.Join(lines, ", "), len(lines) > 0 && name == strings.ToLower(name), nil
}

func (h responseHeaders) All() (map[string]string, error) {
	values := make(map[string]string, len(h))
	for name, lines := range h {
		values[strings.ToLower(name)] = strings.Join(lines, ", ")
	}
	return values, nil
}
