package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// openAI is the form of OpenAI's chat completions.
type openAI struct{}

func (openAI) key(r *http.Request) string {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return key
}

func (openAI) fail(w http.ResponseWriter, status int, message string) {
	send(w, status, object{"error": object{"message": message, "type": "invalid_request_error", "param": nil, "code": nil}})
}

func (openAI) usage(q *question, a answer) object {
	return object{"prompt_tokens": q.input, "completion_tokens": a.output, "total_tokens": q.input + a.output}
}

func (openAI) finish(a answer) string {
	if a.cut {
		return "length"
	}
	return "stop"
}

func (o openAI) whole(q *question, a answer) object {
	message := object{"role": "assistant", "content": a.text, "refusal": nil}
	return object{
		"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": q.Model,
		"choices": []object{{"index": 0, "message": message, "logprobs": nil, "finish_reason": o.finish(a)}},
		"usage":   o.usage(q, a),
	}
}

// chunk writes an event. A stream with include_usage has the usage in its last chunk, and null in all
// others.
func (openAI) chunk(w io.Writer, q *question, choices []object, usage any) {
	c := object{"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": q.Model, "choices": choices}
	if q.StreamOptions.IncludeUsage {
		c["usage"] = usage
	}
	event(w, "", c)
}

func (o openAI) begin(w io.Writer, q *question) {
	o.chunk(w, q, []object{{"index": 0, "delta": object{"role": "assistant", "content": ""}, "finish_reason": nil}}, nil)
}

func (o openAI) token(w io.Writer, q *question, text string) {
	o.chunk(w, q, []object{{"index": 0, "delta": object{"content": text}, "finish_reason": nil}}, nil)
}

func (o openAI) end(w io.Writer, q *question, a answer) {
	o.chunk(w, q, []object{{"index": 0, "delta": object{}, "finish_reason": o.finish(a)}}, nil)
	if q.StreamOptions.IncludeUsage {
		o.chunk(w, q, []object{}, o.usage(q, a))
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}
