package rules

import (
	"errors"
	"slices"
)

// Tokens is a preset for APIs of language models. It estimates the tokens of a request by its
// body, and finds in the response how many there were. EndpointOf says which API's fields a request has, and
// whether it uses tokens at all. The zero Tokens is no preset.
//
// A request costs its input tokens and OutputWeight times its output tokens. The estimate of the input is the
// body's text (Prompt) divided by BytesPerToken, plus its media. The estimate of the output is the request's
// own limit, or DefaultOutput.
type Tokens struct {
	// API is the API whose fields are expected at an unknown endpoint.
	API TokensAPI
	// DefaultOutput is the expected number of output tokens of a request that does not limit them.
	DefaultOutput int64
	// OutputWeight is how many units an output token costs; an input token costs one.
	OutputWeight int64
	// BytesPerToken is the expected number of bytes of text in an input token.
	BytesPerToken int64
	// IncludeUsage makes a gateway ask for the usage at the end of a stream, with
	// stream_options.include_usage, whatever the client's request says, where OpenAI's endpoints and
	// compatible ones send it only on request.
	IncludeUsage bool
}

// TokensAPI is an API that Tokens knows. The zero TokensAPI is NoTokens.
type TokensAPI uint8

const (
	NoTokens  TokensAPI = iota // none
	OpenAI                     // and those compatible with it
	Anthropic                  // messages
	Gemini                     // generateContent
)

var tokensAPINames = [...]string{"none", "openai", "anthropic", "gemini"}

// String is "none", "openai", "anthropic" or "gemini".
func (a TokensAPI) String() string { return nameOf(tokensAPINames[:], uint8(a)) }

// NewTokens returns the preset for an API with its defaults.
func NewTokens(api TokensAPI) Tokens {
	return Tokens{API: api, DefaultOutput: 1024, OutputWeight: 5, BytesPerToken: 4, IncludeUsage: api != NoTokens}
}

// tokensForm has the paths of an API's fields that Tokens needs. Of each list of paths, the first with a
// value counts.
type tokensForm struct {
	// limits are the request's fields that limit its output, and copies those that ask for several outputs.
	// In each list, the largest value counts.
	limits, copies [][]string
	// parts are the paths of a batch's list of requests, and part is the path of a request's fields in an
	// element.
	parts [][]string
	part  []string
	// input and output are the paths of a response's usage, and begun the path of the output so far in the
	// first event of a stream. addedInput and addedOutput are counted by the API in addition.
	input, output, begun, addedInput, addedOutput [][]string
}

var tokensForms = [...]tokensForm{
	OpenAI: {
		limits: [][]string{{"max_completion_tokens"}, {"max_output_tokens"}, {"max_tokens"}},
		copies: [][]string{{"n"}},
		input:  [][]string{{"usage", "prompt_tokens"}, {"usage", "input_tokens"}, {"response", "usage", "input_tokens"}},
		output: [][]string{{"usage", "completion_tokens"}, {"usage", "output_tokens"}, {"response", "usage", "output_tokens"}},
	},
	Anthropic: {
		limits:     [][]string{{"max_tokens"}, {"max_tokens_to_sample"}},
		parts:      [][]string{{"requests"}},
		part:       []string{"params"},
		input:      [][]string{{"usage", "input_tokens"}, {"message", "usage", "input_tokens"}},
		output:     [][]string{{"usage", "output_tokens"}},
		begun:      [][]string{{"message", "usage", "output_tokens"}},
		addedInput: [][]string{{"usage", "cache_creation_input_tokens"}, {"message", "usage", "cache_creation_input_tokens"}},
	},
	Gemini: { // the names of protocol buffers are read in both of their spellings
		limits: [][]string{
			{"generationConfig", "maxOutputTokens"}, {"generationConfig", "max_output_tokens"},
			{"generation_config", "maxOutputTokens"}, {"generation_config", "max_output_tokens"},
		},
		copies: [][]string{
			{"generationConfig", "candidateCount"}, {"generationConfig", "candidate_count"},
			{"generation_config", "candidateCount"}, {"generation_config", "candidate_count"},
		},
		parts: [][]string{
			{"batch", "inputConfig", "requests", "requests"}, {"batch", "input_config", "requests", "requests"},
		},
		part:        []string{"request"},
		input:       [][]string{{"usageMetadata", "promptTokenCount"}, {"usageMetadata", "totalTokenCount"}}, // for cached input, only the total
		output:      [][]string{{"usageMetadata", "candidatesTokenCount"}},
		addedInput:  [][]string{{"usageMetadata", "toolUsePromptTokenCount"}},
		addedOutput: [][]string{{"usageMetadata", "thoughtsTokenCount"}},
	},
}

// form is the form of requests to e.
func (t *Tokens) form(e Endpoint) *tokensForm {
	if e.form != NoTokens {
		return &tokensForms[e.form]
	}
	return &tokensForms[t.API]
}

// tokensPaths are the paths in responses of any API that Tokens needs.
var tokensPaths = func() (all [][]string) {
	for i := range tokensForms {
		f := &tokensForms[i]
		for _, path := range slices.Concat(f.input, f.output, f.begun, f.addedInput, f.addedOutput) {
			if !slices.ContainsFunc(all, func(known []string) bool { return slices.Equal(known, path) }) {
				all = append(all, path)
			}
		}
	}
	return slices.Concat(all, answerIDs, answerStatuses)
}()

func (t *Tokens) paths() [][]string {
	if t.API == NoTokens {
		return nil
	}
	return tokensPaths
}

const (
	// mostTokens bounds sums, so that they do not overflow.
	mostTokens = 1 << 52
	// unknownPrompt stands for the size of a body of unknown length.
	unknownPrompt = 1 << 20
	// streamedToken is about the least number of bytes of a stream for an output token.
	streamedToken = 50
)

// estimate estimates the cost of a request by its endpoint and its body; r may be nil. It is an error if the
// body has one of the fields twice, or in another letter case: the upstream may take the larger.
func (t *Tokens) estimate(r *Request, unreadable UnreadableBody) (estimate, error) {
	e, upgrade := EndpointOf(r), mayUpgrade(r)
	if e.isFree() && !upgrade {
		return estimate{free: true, late: e.ReadsLater()}, nil
	}
	if r == nil || r.Body == nil {
		return estimate{cost: t.cost(Prompt{}, t.DefaultOutput)}, nil
	}
	prompt := r.Body.Prompt()
	if prompt == (Prompt{}) && !upgrade { // such as one to list models
		return estimate{}, nil
	}
	if t.IncludeUsage && e.asks != "" {
		for _, path := range [][]string{{e.asks}, {"stream"}, {"stream_options", "include_usage"}} {
			if _, _, err := r.Body.Field(path); errors.Is(err, ErrTwice) || errors.Is(err, ErrCase) {
				return estimate{}, err // the upstream may not report its usage
			}
		}
	}
	o, err := t.output(r.Body, e)
	switch {
	case errors.Is(err, ErrUnreadable) && unreadable.Cost > 0:
		return estimate{cost: unreadable.Cost}, nil
	case errors.Is(err, ErrUnreadable) && unreadable.AsNone && (unreadable.Given || e.use != batches): // no response reports a batch's usage
		o = output{guessed: 1}
	case err != nil:
		return estimate{}, err
	}
	if e.use == embeds {
		o = output{}
	}
	guessed := times(t.DefaultOutput, o.guessed)
	return estimate{
		cost:  t.cost(prompt, min(o.asked+guessed, mostTokens)),
		asked: times(o.asked, t.OutputWeight),
		whole: e.use == batches,
	}, nil
}

// output is the output that a request asks for: a number of tokens, and a number of answers without a limit.
type output struct{ asked, guessed int64 }

// output returns the output that a request to e asks for.
func (t *Tokens) output(b Body, e Endpoint) (all output, err error) {
	f := t.form(e)
	if e.use != batches {
		return f.askedIn(b.Field)
	}
	for _, path := range f.parts {
		err = b.Each(path, func(lookup Lookup) error {
			one, err := f.askedIn(func(path []string) (any, bool, error) { return lookup(slices.Concat(f.part, path)) })
			all.asked, all.guessed = min(all.asked+one.asked, mostTokens), min(all.guessed+one.guessed, mostTokens)
			return err
		})
		if err != nil {
			return output{}, err
		}
	}
	if all == (output{}) {
		all.guessed = 1 // the parts are in a file
	}
	return all, nil
}

// askedIn is the output that one request asks for. Of several limits the largest counts: servers differ in
// which they use.
func (f *tokensForm) askedIn(lookup Lookup) (output, error) {
	copies, err := mostOf(lookup, f.copies)
	if err != nil {
		return output{}, err
	}
	limit, err := mostOf(lookup, f.limits)
	if copies = max(1, copies); limit == 0 || err != nil {
		return output{guessed: copies}, err
	}
	return output{asked: times(limit, copies)}, nil
}

// mostOf is the largest of the positive numbers at paths, at most mostTokens; 0: there is none.
func mostOf(lookup Lookup, paths [][]string) (most int64, err error) {
	for _, path := range paths {
		v, _, err := lookup(path)
		if errors.Is(err, ErrTooLarge) {
			return mostTokens, nil
		}
		if err != nil {
			return 0, err
		}
		n, _ := countOf(v)
		most = max(most, n)
	}
	return most, nil
}

func (t *Tokens) cost(prompt Prompt, output int64) int64 {
	return t.input(prompt) + times(output, t.OutputWeight)
}

// input is the estimate of the tokens of a prompt.
func (t *Tokens) input(prompt Prompt) int64 {
	text := prompt.Text
	if text < 0 {
		text = unknownPrompt
	}
	return (text+t.BytesPerToken-1)/t.BytesPerToken + prompt.Media
}

// times is a times b, which are positive, and at most mostTokens.
func times(a, b int64) int64 {
	if b > 0 && a > mostTokens/b {
		return mostTokens
	}
	return a * b
}

// countOf is a JSON number that is whole and not negative, at most mostTokens.
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

// used is the usage of a request by its response.
func (t *Tokens) used(resp *Response) (cost int64, known bool) {
	switch {
	case t.API == NoTokens:
		return 0, false
	case resp.Endpoint.isFree():
		return 0, true // even if the response reports earlier usage
	}
	for _, f := range [...]*tokensForm{t.form(resp.Endpoint), &tokensForms[t.API]} {
		if input, output, ok := f.used(resp); ok {
			return input + times(output, t.OutputWeight), true
		}
	}
	return 0, resp.Status >= 400 // a refusal uses nothing
}

// used is the usage in a response of the form f, if it has any; each at most mostTokens.
func (f *tokensForm) used(resp *Response) (input, output int64, ok bool) {
	input, isInput := resp.first(f.input)
	output, isOutput := resp.first(f.output)
	if begun, ok := resp.first(f.begun); ok && !isOutput {
		// The client left before the end, which would have had the usage. The output that it got is
		// estimated, or leaving early would make it free.
		output, isOutput = max(begun, resp.Unzipped/streamedToken), true
	}
	addedInput, _ := resp.first(f.addedInput)
	addedOutput, _ := resp.first(f.addedOutput)
	return min(input+addedInput, mostTokens), min(output+addedOutput, mostTokens), isInput || isOutput
}

// Announced is the ID of an answer that a response promises, and that is made later; empty: none, or the
// response has all of it. The request is then charged an estimate, and Later finds the true cost.
func (t *Tokens) Announced(resp *Response) (id string) {
	e := resp.Endpoint
	if t.API == NoTokens || !e.late || e.use == reads || resp.Status/100 != 2 {
		return ""
	}
	if _, _, ok := t.form(e).used(resp); ok && resp.hasEnded() {
		return ""
	}
	return resp.text(answerIDs)
}

// Later returns the usage of an answer that was announced before, and its ID. It is not ok if the response
// does not read such an answer, or the answer is not complete.
func (t *Tokens) Later(resp *Response) (id string, used int64, ok bool) {
	if t.API == NoTokens || !resp.Endpoint.ReadsLater() || resp.Status/100 != 2 {
		return "", 0, false
	}
	if !resp.hasEnded() {
		return "", 0, false
	}
	input, output, ok := t.form(resp.Endpoint).used(resp)
	id = resp.text(answerIDs)
	return id, input + times(output, t.OutputWeight), ok && id != ""
}

// The paths of an answer's ID and state in a response.
var (
	answerIDs      = [][]string{{"id"}, {"response", "id"}}
	answerStatuses = [][]string{{"status"}, {"response", "status"}}
)

// hasEnded reports whether the answer in a response is complete.
func (resp *Response) hasEnded() bool {
	switch resp.text(answerStatuses) {
	case "completed", "failed", "incomplete", "cancelled", "expired":
		return true
	}
	return false
}

// text is the first text that the response has at one of paths.
func (resp *Response) text(paths [][]string) string {
	for _, path := range paths {
		if resp.JSON == nil {
			break
		}
		if v, _ := resp.JSON(path); v != nil {
			if text, ok := v.(string); ok {
				return text
			}
		}
	}
	return ""
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
