package rules

import (
	"errors"
	"slices"
	"strings"
)

// Tokens is a preset for an API of language models. It estimates the tokens of a request by its
// body, and finds in the response how many there were. The zero Tokens is none.
//
// A request costs its input tokens and OutputWeight times its output tokens. The estimate of the input
// is the length of the body divided by BytesPerToken. The estimate of the output is that to which the
// request limits itself, or DefaultOutput.
type Tokens struct {
	API TokensAPI
	// DefaultOutput is how many output tokens are expected of a request that does not limit
	// them.
	DefaultOutput int64
	// OutputWeight is how many units an output token costs; an input token costs one.
	OutputWeight int64
	// BytesPerToken is how many bytes of the body are expected to make a token of the input.
	BytesPerToken int64
	// IncludeUsage makes a gateway ask an OpenAI upstream for the usage at the end of a stream,
	// by stream_options.include_usage, unless the client's request says whether it wants it. It
	// is false for other APIs.
	IncludeUsage bool
}

// TokensAPI is an API that Tokens knows. The zero TokensAPI is NoTokens.
type TokensAPI uint8

const (
	NoTokens  TokensAPI = iota
	OpenAI              // chat completions, completions, responses and embeddings
	Anthropic           // messages
)

var tokensAPINames = [...]string{"none", "openai", "anthropic"}

// String is "none", "openai" or "anthropic".
func (a TokensAPI) String() string { return nameOf(tokensAPINames[:], uint8(a)) }

// NewTokens returns the preset for an API with its defaults.
func NewTokens(api TokensAPI) Tokens {
	return Tokens{API: api, DefaultOutput: 1024, OutputWeight: 5, BytesPerToken: 4, IncludeUsage: api == OpenAI}
}

// tokensForm is where an API has what Tokens needs. Of each list of paths the first that is there
// counts.
type tokensForm struct {
	// limits are the fields of a request that limit its output, and copies is the one that asks for
	// several outputs; empty: there is none.
	limits []string
	copies string
	// input and output are where a response says what it used, and begun where the first event of
	// a stream says how much output there is so far. added is input that the API counts apart.
	input, output, begun, added [][]string
}

var tokensForms = [...]tokensForm{
	OpenAI: {
		limits: []string{"max_completion_tokens", "max_output_tokens", "max_tokens"},
		copies: "n",
		input:  [][]string{{"usage", "prompt_tokens"}, {"usage", "input_tokens"}, {"response", "usage", "input_tokens"}},
		output: [][]string{{"usage", "completion_tokens"}, {"usage", "output_tokens"}, {"response", "usage", "output_tokens"}},
	},
	Anthropic: {
		limits: []string{"max_tokens"},
		input:  [][]string{{"usage", "input_tokens"}, {"message", "usage", "input_tokens"}},
		output: [][]string{{"usage", "output_tokens"}},
		begun:  [][]string{{"message", "usage", "output_tokens"}},
		added:  [][]string{{"usage", "cache_creation_input_tokens"}, {"message", "usage", "cache_creation_input_tokens"}},
	},
}

func (t *Tokens) form() *tokensForm { return &tokensForms[t.API] }

func (t *Tokens) paths() [][]string {
	f := t.form()
	return slices.Concat(f.input, f.output, f.begun, f.added)
}

const (
	// mostTokens bounds sums, so that they do not overflow.
	mostTokens = 1 << 52
	// unknownPrompt stands for the bytes of a body of which the length is not known.
	unknownPrompt = 1 << 20
	// streamedToken is about how many bytes of a stream an output token takes at least.
	streamedToken = 50
)

// estimate is what a request will cost, by its body; r may be nil. It is an error if the body has one
// of the fields twice, or in another case: the upstream may take the larger. Of several limits of the
// output, the largest counts: servers differ in which they take.
func (t *Tokens) estimate(r *Request, unreadable UnreadableBody) (estimate, error) {
	if r == nil || r.Body == nil {
		return estimate{cost: t.cost(0, t.DefaultOutput)}, nil
	}
	prompt := r.Body.Len()
	switch {
	case prompt == 0: // such as a list of models
		return estimate{}, nil
	case prompt < 0:
		prompt = unknownPrompt
	}
	f := t.form()
	copies, output := int64(1), int64(0)
	if t.IncludeUsage {
		for _, path := range [][]string{{"stream"}, {"stream_options", "include_usage"}} {
			if _, _, err := r.Body.Lookup(path); errors.Is(err, ErrTwice) || errors.Is(err, ErrCase) {
				return estimate{}, err // the upstream may not say what it used
			}
		}
	}
	for i, name := range append([]string{f.copies}, f.limits...) {
		if name == "" {
			continue
		}
		n, err := lookupCount(r.Body, name)
		switch {
		case errors.Is(err, ErrUnreadable) && unreadable.Cost > 0:
			return estimate{cost: unreadable.Cost}, nil
		case errors.Is(err, ErrUnreadable) && unreadable.AsNone:
		case err != nil:
			return estimate{}, err
		case i == 0:
			copies = max(1, n)
		default:
			output = max(output, n)
		}
	}
	if output > 0 {
		output = times(output, copies)
		return estimate{cost: t.cost(prompt, output), asked: times(output, t.OutputWeight)}, nil
	}
	if strings.HasSuffix(r.Path, "/embeddings") && !strings.ContainsAny(r.Path, ";\\") { // which some upstreams cut

		return estimate{cost: t.cost(prompt, 0)}, nil
	}
	return estimate{cost: t.cost(prompt, times(t.DefaultOutput, copies))}, nil
}

func (t *Tokens) cost(promptBytes, output int64) int64 {
	return (promptBytes+t.BytesPerToken-1)/t.BytesPerToken + times(output, t.OutputWeight)
}

// times is a times b, which are positive, and at most mostTokens.
func times(a, b int64) int64 {
	if b > 0 && a > mostTokens/b {
		return mostTokens
	}
	return a * b
}

// lookupCount is a positive number of the body, at most mostTokens; 0: it has none there.
func lookupCount(b Body, name string) (int64, error) {
	v, _, err := b.Lookup([]string{name})
	if errors.Is(err, ErrTooLarge) {
		return mostTokens, nil
	}
	n, _ := countOf(v)
	return n, err
}

// countOf is a number of JSON that is a whole one, and not negative; mostTokens if it is larger.
func countOf(v any) (n int64, ok bool) {
	switch v := v.(type) {
	case int64:
		n, ok = v, v >= 0
	case float64:
		if v > mostTokens {
			return mostTokens, true
		}
		n, ok = int64(v), v >= 0 && v == float64(int64(v))
	}
	return min(n, mostTokens), ok
}

// used is what a response says that it used.
func (t *Tokens) used(resp *Response) (cost int64, known bool) {
	if t.API == NoTokens {
		return 0, false
	}
	f := t.form()
	input, isInput := resp.first(f.input)
	output, isOutput := resp.first(f.output)
	if begun, ok := resp.first(f.begun); ok && !isOutput {
		// The client left before the end, which would have said. What it got is estimated, or
		// leaving early would make the output free.
		output, isOutput = max(begun, resp.Unzipped/streamedToken), true
	}
	if !isInput && !isOutput {
		return 0, resp.Status >= 400 // a refusal uses nothing
	}
	added, _ := resp.first(f.added)
	return min(input+added, mostTokens) + times(output, t.OutputWeight), true
}

// first is the first count that the response has at one of paths.
func (resp *Response) first(paths [][]string) (n int64, ok bool) {
	if resp.JSON == nil {
		return 0, false
	}
	for _, path := range paths {
		if v, found := resp.JSON(path); found {
			if n, ok = countOf(v); ok {
				return n, true
			}
		}
	}
	return 0, false
}
