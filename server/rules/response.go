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
	// Lookup returns what is at a path of names of fields, as decoded from JSON: string, bool,
	// int64, float64, nil, []any or map[string]any. path has at least one name. If there
	// is no body, or nothing at the path, ok is false. The error wraps ErrUnreadable if the body
	// is too long or no JSON; ErrTwice if it has a name of the path twice in one object, also in
	// other case; ErrCase if it has it in other case alone; ErrTooLarge if it is a number that is.
	// Servers differ in what they take then.
	Lookup(path []string) (value any, ok bool, err error)
	// Field is Lookup for Tokens, whose fields say what is likely: it also reads bodies that are longer,
	// compressed or in another charset. Of a list, an object or a long text it may return an empty one.
	Field(path []string) (value any, ok bool, err error)
	// Each calls f for each element of the list at path, in order, with a Lookup like Field in that
	// element. It stops at the first error, and returns it. If there is no list, it calls nothing.
	// Its errors are those of Field.
	Each(path []string, f func(Lookup) error) error
	// Prompt is what a model reads of the body.
	Prompt() Prompt
}

// Prompt is what a model reads of a request's body.
type Prompt struct {
	// Text is how many bytes are no Media: of JSON without its data in base64, or of a whole body that
	// cannot be read. -1: it is not known.
	Text int64
	// Media is about how many tokens pictures, recordings and files take.
	Media int64
}

// Lookup finds a value like Body.Lookup.
type Lookup func(path []string) (value any, ok bool, err error)

// Response is what is known of a request when it ends: the variables of Rule.After.
type Response struct {
	// Endpoint is what the request asked for.
	Endpoint Endpoint
	// Status is the status of the upstream's response; 0: there was none.
	Status int
	// Headers has canonical names, as http.Header.Set writes them.
	Headers http.Header
	// Bytes is how many bytes of the response's body passed, and Seconds how long the request took.
	Bytes   int64
	Seconds float64
	// Unzipped is how many bytes of the body were read to find JSON, without compression, and
	// Events how many parts of a stream with JSON those had: server-sent events, lines, or objects
	// of a list.
	Unzipped, Events int64
	// Prompt is what a model read of the request's body. The zero Prompt: nothing.
	Prompt Prompt
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

// ParseUnsettled is the inverse of String. Any other text is an error.
func ParseUnsettled(text string) (Unsettled, error) {
	return limittext.OneOf("unsettled", Keep, GiveBack)(text)
}

// CostAfter is what a request did cost under the rule's budgets (see IsBudget). If the response does
// not say, known is false, and Unsettled says what to charge. An error says why the cost cannot be
// computed from what the response says; it is not known then. A rule with neither After nor Tokens
// knows nothing: its requests cost what they held.
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

// LeastCost is what a request that held so many units did cost at least whose cost CostAfter does not
// know, as when the client left: for a rule with Tokens, the estimate of its input, and the tokens that
// passed, if they are text. An answer that is no stream is taken for text. Where less was held than the
// estimate of the input, that is what the input counts as: only a response can say that a request cost
// more than it held and what passed of its output.
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
		output = 0 // what passed is no text: numbers, or a picture
	}
	passed := times(min(output, mostTokens), t.OutputWeight)
	if input := t.input(resp.Prompt); input < held {
		return input + passed
	}
	return max(held, passed)
}

// UsagePaths are the paths that CostAfter looks for in the JSON of a response, each once: names of
// fields from the root. Empty: it needs none.
func (r *Rule) UsagePaths() [][]string {
	if r.after != nil {
		return r.after.JSONPaths
	}
	return r.Tokens.paths()
}

// fields are an object with what is known at paths. Where one path goes on from another, the longer
// counts.
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
