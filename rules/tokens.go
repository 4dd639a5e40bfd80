package rules

import (
	"slices"

	"github.com/stintdev/stint/internal/limittext"
)

// Tokens is a preset for an API of language models: it estimates the tokens of a request by its
// body, and finds in the response how many there were. The zero Tokens is none.
type Tokens struct {
	API TokensAPI
	// DefaultOutput is how many output tokens a request is expected to take that does not limit
	// them.
	DefaultOutput int64
	// OutputWeight is how many units an output token costs. An input token costs one.
	OutputWeight int64
	// BytesPerToken is how many bytes of the prompt make a token.
	BytesPerToken int64
	// IncludeUsage makes a gateway ask an OpenAI upstream for the usage at the end of a stream,
	// by stream_options.include_usage, where the client's request does not mention it. It is
	// false for other APIs.
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

var tokensAPIs = limittext.OneOf(OpenAI, Anthropic)

func presetOf(api TokensAPI) Tokens {
	return Tokens{API: api, DefaultOutput: 1024, OutputWeight: 5, BytesPerToken: 4, IncludeUsage: api == OpenAI}
}

// usageAt are where the APIs say how many tokens there were: of each list, the first that is there
// counts.
var usageAt = map[TokensAPI]struct{ input, output [][]string }{
	OpenAI: {
		input: [][]string{{"usage", "prompt_tokens"}, {"usage", "input_tokens"}, {"response", "usage", "input_tokens"}},
		// completion_tokens is absent from embeddings, which have no output.
		output: [][]string{{"usage", "completion_tokens"}, {"usage", "output_tokens"}, {"response", "usage", "output_tokens"}},
	},
	Anthropic: {
		// The first event of a stream has the input and the last one the output.
		input:  [][]string{{"usage", "input_tokens"}, {"message", "usage", "input_tokens"}},
		output: [][]string{{"usage", "output_tokens"}},
	},
}

func (t *Tokens) paths() (all [][]string) {
	at := usageAt[t.API]
	return slices.Concat(at.input, at.output)
}

// used is what a response says that it used.
func (t *Tokens) used(resp *Response) (cost int64, known bool, err error) {
	at := usageAt[t.API]
	input, inputKnown := firstCount(resp, at.input)
	output, outputKnown := firstCount(resp, at.output)
	return input + t.OutputWeight*output, inputKnown || outputKnown, nil
}

func firstCount(resp *Response, paths [][]string) (n int64, ok bool) {
	for _, path := range paths {
		if resp.JSON == nil {
			break
		}
		if v, found := resp.JSON(path); found {
			if n, ok = v.(int64); ok {
				return n, true
			}
		}
	}
	return 0, false
}
