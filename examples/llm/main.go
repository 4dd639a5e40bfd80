// Command llm is a stand-in for an API of language models. It speaks the wire forms of OpenAI
// (/v1/chat/completions) and Anthropic (/v1/messages), streamed and whole, and counts instead of
// thinking: the answer to "count to 12" is the numbers from 1 to 12. Each number is one output token,
// and each word of the prompt one input token.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxBody   = 1 << 20 // bytes of a request
	maxTokens = 100_000 // of an answer
	maxAtOnce = 64      // requests
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9100", "`ADDRESS` to listen on")
	pace := flag.Duration("pace", 20*time.Millisecond, "`TIME` that a token takes")
	flag.Parse()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s", l.Addr())
	server := &http.Server{Handler: newModel(*pace), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Hour}
	log.Fatal(server.Serve(l))
}

// model answers requests, up to maxAtOnce at the same time.
type model struct {
	pace   time.Duration
	places chan struct{}
}

func newModel(pace time.Duration) http.Handler {
	m := &model{pace: pace, places: make(chan struct{}, maxAtOnce)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", m.answer(openAI{}))
	mux.HandleFunc("POST /v1/messages", m.answer(anthropic{}))
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		send(w, http.StatusOK, object{"object": "list", "has_more": false, "data": []object{{"id": "counter", "object": "model", "type": "model", "created": 0, "owned_by": "stint", "display_name": "Counter"}}})
	})
	return mux
}

// object is an object of JSON.
type object = map[string]any

// wire is the form in which an API answers.
type wire interface {
	// key returns the client's key; empty: it has none.
	key(*http.Request) string
	// fail sends an error.
	fail(w http.ResponseWriter, status int, message string)
	// whole returns an answer that is not streamed.
	whole(*question, answer) object
	// begin, token and end write the events of a stream.
	begin(io.Writer, *question)
	token(io.Writer, *question, string)
	end(io.Writer, *question, answer)
}

// question is a request. Both APIs have these fields.
type question struct {
	Model    string `json:"model"`
	Messages []struct {
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	MaxTokens           int  `json:"max_tokens"`
	MaxCompletionTokens int  `json:"max_completion_tokens"` // OpenAI's newer name
	Stream              bool `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"` // OpenAI's

	input int // tokens
}

// answer is what the model says, and what that costs.
type answer struct {
	text   string
	output int  // tokens
	cut    bool // the request allowed no more tokens
}

// words are the words of all messages.
func (q *question) words() ([]string, error) {
	var all []string
	for _, m := range q.Messages {
		var text string
		var parts []struct{ Text string }
		if json.Unmarshal(m.Content, &text) != nil {
			if err := json.Unmarshal(m.Content, &parts); err != nil {
				return nil, errors.New("messages: content must be a text, or a list of texts")
			}
			for _, p := range parts {
				text += p.Text + " "
			}
		}
		all = append(all, strings.Fields(text)...)
	}
	if len(all) == 0 {
		return nil, errors.New("messages: there is no text")
	}
	return all, nil
}

// read reads a question, and how far to count: to the last number in it, or to 10.
func read(w http.ResponseWriter, r *http.Request) (q *question, target int, err error) {
	q = new(question)
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(q); err != nil {
		return nil, 0, fmt.Errorf("the body cannot be read: %w", err)
	}
	words, err := q.words()
	if err != nil {
		return nil, 0, err
	}
	q.input, target = len(words), 10
	for _, word := range words {
		if n, err := strconv.Atoi(word); err == nil {
			target = n
		}
	}
	return q, min(max(1, target), maxTokens), nil
}

func (m *model) answer(api wire) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if api.key(r) == "" {
			api.fail(w, http.StatusUnauthorized, "The API key is missing.")
			return
		}
		select {
		case m.places <- struct{}{}:
			defer func() { <-m.places }()
		default:
			api.fail(w, http.StatusServiceUnavailable, "The model is overloaded.")
			return
		}
		q, target, err := read(w, r)
		if err != nil {
			api.fail(w, http.StatusBadRequest, err.Error())
			return
		}
		a := answer{output: target}
		if most := max(q.MaxTokens, q.MaxCompletionTokens); most > 0 && most < target {
			a.output, a.cut = most, true
		}
		if q.Stream {
			m.stream(w, r, api, q, a)
			return
		}
		var text strings.Builder
		for i := range a.output {
			if !m.wait(r) {
				return
			}
			fmt.Fprint(&text, i+1, " ")
		}
		a.text = text.String()
		send(w, http.StatusOK, api.whole(q, a))
	}
}

func (m *model) stream(w http.ResponseWriter, r *http.Request, api wire, q *question, a answer) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flush := http.NewResponseController(w).Flush
	api.begin(w, q)
	for i := range a.output {
		if flush() != nil || !m.wait(r) {
			return // the client has left
		}
		api.token(w, q, fmt.Sprint(i+1, " "))
	}
	api.end(w, q, a)
}

// wait waits for a token, and reports whether the client still does.
func (m *model) wait(r *http.Request) bool {
	select {
	case <-time.After(m.pace):
		return true
	case <-r.Context().Done():
		return false
	}
}

func send(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that has left needs none
}

// event writes an event of a stream.
func event(w io.Writer, name string, data object) {
	if name != "" {
		fmt.Fprintf(w, "event: %s\n", name)
	}
	body, err := json.Marshal(data)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	fmt.Fprintf(w, "data: %s\n\n", body)
}
