package rules

import (
	"net/http"
	"slices"
	"strings"
)

// Endpoint is the endpoint of a request to an API of language models. The zero Endpoint is not known.
type Endpoint struct {
	use  use
	form TokensAPI // the API whose fields the request and its response have; NoTokens: not known
	late bool      // the answer may be made after the response, and is read by its ID
	asks string    // the field with the model's input, if the endpoint's streams report usage only on request
}

// use is how an endpoint uses tokens.
type use uint8

const (
	unknownUse use = iota // the estimate is held; the usage in the response is charged
	generates             // the same
	embeds                // the same, and there is no output
	makes                 // the same, for pictures, sound and films: many responses do not report it
	batches               // the sum of the parts is charged, since no response says what they used
	batchFiles            // the parts are in a file: the estimate of one request is charged
	free                  // uses no tokens
	reads                 // returns an answer made before, and perhaps its usage
)

var useNames = [...]string{"unknown", "generates", "embeds", "makes", "batch", "batch of a file", "free", "reads"}

func (u use) String() string { return nameOf(useNames[:], uint8(u)) }

// endpointRow is an endpoint: the last segments of its POST requests' paths. * stands for one segment, or in
// *:verb for the text before the verb.
type endpointRow struct {
	path string
	Endpoint
}

// endpoints are the endpoints of OpenAI, Anthropic and Gemini, as in their documents and official clients in
// November 2026. The first that fits counts. Segments before them do not matter: /v1, /openai/deployments/x
// and /v1beta/openai are all in use. docs/tokens.md has this table.
var endpoints = []endpointRow{
	{"chat/completions", Endpoint{use: generates, form: OpenAI, asks: "messages"}},
	{"completions", Endpoint{use: generates, form: OpenAI, asks: "prompt"}},
	{"responses", Endpoint{use: generates, form: OpenAI, late: true}},
	{"responses/compact", Endpoint{use: generates, form: OpenAI}},
	{"threads/runs", Endpoint{use: generates, form: OpenAI, late: true}},
	{"threads/*/runs", Endpoint{use: generates, form: OpenAI, late: true}},
	{"threads/*/runs/*/submit_tool_outputs", Endpoint{use: generates, form: OpenAI, late: true}},
	{"threads/*/runs/*/cancel", Endpoint{use: free}},
	{"threads/*/messages", Endpoint{use: free}},
	{"messages", Endpoint{use: generates, form: Anthropic}},
	{"complete", Endpoint{use: generates, form: Anthropic}},
	{"*:rawPredict", Endpoint{use: generates, form: Anthropic}},
	{"*:streamRawPredict", Endpoint{use: generates, form: Anthropic}},
	{"*:generateContent", Endpoint{use: generates, form: Gemini}},
	{"*:streamGenerateContent", Endpoint{use: generates, form: Gemini}},

	{"embeddings", Endpoint{use: embeds, form: OpenAI}},
	{"*:embedContent", Endpoint{use: embeds, form: Gemini}},
	{"*:batchEmbedContents", Endpoint{use: embeds, form: Gemini}},
	{"cachedContents", Endpoint{use: embeds, form: Gemini}},

	{"images/generations", Endpoint{use: makes, form: OpenAI}},
	{"images/edits", Endpoint{use: makes, form: OpenAI}},
	{"images/variations", Endpoint{use: makes, form: OpenAI}},
	{"audio/speech", Endpoint{use: makes, form: OpenAI}},
	{"audio/transcriptions", Endpoint{use: makes, form: OpenAI}},
	{"audio/translations", Endpoint{use: makes, form: OpenAI}},
	{"videos", Endpoint{use: makes, form: OpenAI}},
	{"videos/edits", Endpoint{use: makes, form: OpenAI}},
	{"videos/extensions", Endpoint{use: makes, form: OpenAI}},
	{"videos/*/remix", Endpoint{use: makes, form: OpenAI}},
	{"*:predict", Endpoint{use: makes, form: Gemini}},
	{"*:predictLongRunning", Endpoint{use: makes, form: Gemini}},

	{"messages/batches", Endpoint{use: batches, form: Anthropic}},
	{"*:batchGenerateContent", Endpoint{use: batches, form: Gemini}},
	{"batches", Endpoint{use: batchFiles, form: OpenAI, late: true}},
	{"*:asyncBatchEmbedContent", Endpoint{use: batchFiles, form: Gemini}},
	{"batchPredictionJobs", Endpoint{use: batchFiles, form: Gemini}},
	{"evals/*/runs", Endpoint{use: batchFiles, form: OpenAI}},
	{"evals/*/runs/*", Endpoint{use: free}},

	{"messages/count_tokens", Endpoint{use: free}},
	{"responses/input_tokens", Endpoint{use: free}},
	{"*:countTokens", Endpoint{use: free}},
	{"*:computeTokens", Endpoint{use: free}},
	{"moderations", Endpoint{use: free}},
	{"chat/completions/*", Endpoint{use: free}},
	{"responses/*/cancel", Endpoint{use: free}},
	{"batches/*/cancel", Endpoint{use: free}},
	{"batches/*:cancel", Endpoint{use: free}},
	{"messages/batches/*/cancel", Endpoint{use: free}},
	{"videos/characters", Endpoint{use: free}},
	{"realtime/client_secrets", Endpoint{use: free}},
	{"realtime/sessions", Endpoint{use: free}},
	{"realtime/transcription_sessions", Endpoint{use: free}},
	{"realtime/translations/client_secrets", Endpoint{use: free}},
	{"realtime/calls/*/accept", Endpoint{use: free}},
	{"realtime/calls/*/hangup", Endpoint{use: free}},
	{"realtime/calls/*/refer", Endpoint{use: free}},
	{"realtime/calls/*/reject", Endpoint{use: free}},
	{"fine_tuning/jobs/*/cancel", Endpoint{use: free}},
	{"fine_tuning/jobs/*/pause", Endpoint{use: free}},
	{"fine_tuning/jobs/*/resume", Endpoint{use: free}},
	{"fine_tuning/checkpoints/*/permissions", Endpoint{use: free}},
	{"fine_tuning/alpha/graders/validate", Endpoint{use: free}},
}

// lateReads are the endpoints for reading an answer that was made after the response to its request.
var lateReads = []endpointRow{
	{"responses/*", Endpoint{use: reads, form: OpenAI, late: true}},
	{"threads/*/runs/*", Endpoint{use: reads, form: OpenAI, late: true}},
	{"batches/*", Endpoint{use: reads, form: OpenAI, late: true}},
}

// freeRoots are resources whose POST requests store and arrange data and use no tokens, except those in
// endpoints.
var freeRoots = []string{
	"files", "uploads", "vector_stores", "containers", "conversations", "assistants", "threads", "evals", "skills",
	"organization", "organizations", "projects", "chatkit", // OpenAI, some of Anthropic, too
	"agents", "environments", "memory_stores", "user_profiles", "vaults", "tunnels", // Anthropic
	"fileSearchStores", "corpora", "operations", // Gemini
}

// EndpointOf returns the endpoint of a request; for nil, the zero Endpoint. A request that only reads, by its
// method, is known whatever its path. A free endpoint is not known if upstreams may read another path. An
// upgraded request has the zero Endpoint; only its response shows that it was upgraded.
func EndpointOf(r *Request) Endpoint {
	if r == nil || strings.ContainsAny(r.Path, ";\\") { // some upstreams cut the path there
		return Endpoint{}
	}
	e := listed(r)
	if e.use == free && r.Ambiguous&PathAmbiguity != 0 {
		return Endpoint{}
	}
	return e
}

// mayUpgrade reports whether r offers to go on in another protocol, which is then not read. h2c does not
// count: Java clients always offer it, and no upstream gets it.
func mayUpgrade(r *Request) bool {
	return r != nil && slices.ContainsFunc(r.Header["Upgrade"], func(line string) bool { return !strings.EqualFold(line, "h2c") })
}

// listed finds the endpoint by method and path.
func listed(r *Request) Endpoint {
	path := strings.TrimSuffix(r.Path, "/")
	switch r.Method {
	case http.MethodPost, "": // a check may not say
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodDelete:
		if r.Body != nil && r.Body.Prompt() != (Prompt{}) {
			return Endpoint{}
		}
		if e := find(lateReads, path); r.Method == http.MethodGet && e.late {
			return e
		}
		return Endpoint{use: reads}
	default:
		return Endpoint{}
	}
	if e := find(endpoints, path); e != (Endpoint{}) {
		return e
	}
	if isBelowFreeRoot(path) {
		return Endpoint{use: free}
	}
	return Endpoint{}
}

// find is the first of rows that fits path; the zero Endpoint: none does.
func find(rows []endpointRow, path string) Endpoint {
	for i := range rows {
		if rows[i].fits(path) {
			return rows[i].Endpoint
		}
	}
	return Endpoint{}
}

// fits reports whether path ends with e's segments. For endpoints that cost tokens, letter case does not
// matter, as some upstreams ignore it.
func (e *endpointRow) fits(path string) bool {
	pattern := e.path
	for {
		var want, got string
		pattern, want = cutLast(pattern)
		path, got = cutLast(path)
		if !e.fitsSegment(want, got) {
			return false
		}
		if pattern == "" {
			return true
		}
	}
}

func (e *endpointRow) fitsSegment(want, got string) bool {
	if rest, any := strings.CutPrefix(want, "*"); any {
		return len(got) > len(rest) && e.same(got[len(got)-len(rest):], rest)
	}
	return e.same(got, want)
}

func (e *endpointRow) same(got, want string) bool {
	return got == want || e.use != free && strings.EqualFold(got, want)
}

// cutLast cuts the last segment off a path.
func cutLast(path string) (rest, segment string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(0, i)], path[i+1:]
}

// isBelowFreeRoot reports whether the segment of path after a version is one of freeRoots.
func isBelowFreeRoot(path string) bool {
	if _, last := cutLast(path); strings.Contains(last, ":") {
		return false // a verb of Google's, which may be about anything
	}
	if strings.Contains(path, "/locations/") {
		return false // a project of Google's, which has models, too
	}
	below, begins := false, false
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if segment == "runs" || segment == "invoke" {
			return false // other servers run agents there
		}
		below = below || begins && slices.Contains(freeRoots, segment)
		begins = segment == "openai" || len(segment) > 1 && segment[0] == 'v' && '0' <= segment[1] && segment[1] <= '9'
	}
	return below
}

// IsKnown reports whether the table of endpoints has it, with the cost of its requests.
func (e Endpoint) IsKnown() bool { return e.use != unknownUse && e.use != batchFiles }

// Asks is the request's field with the model's input, a list or a text, at an endpoint whose streams report
// usage only with stream_options.include_usage. Empty: streams report it anyway, or there are none.
func (e Endpoint) Asks() string { return e.asks }

// IsBatch reports whether a request is charged its held units, because no response reports the usage of the
// batch's parts.
func (e Endpoint) IsBatch() bool { return e.use == batches || e.use == batchFiles }

// ReadsLater reports whether a request reads an answer that may have been made after the response to the
// request for it; see Tokens.Later.
func (e Endpoint) ReadsLater() bool { return e.late && e.use == reads }

// UsesTokens reports whether a request uses tokens, or may.
func (e Endpoint) UsesTokens() bool { return !e.isFree() }

// isFree reports whether a request uses no tokens.
func (e Endpoint) isFree() bool { return e.use == free || e.use == reads }
