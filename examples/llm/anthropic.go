package main

import (
	"cmp"
	"io"
	"net/http"
)

// anthropic is the form of Anthropic's messages.
type anthropic struct{}

// key may be in either header: newer clients send the second one.
func (anthropic) key(r *http.Request) string {
	return cmp.Or(r.Header.Get("X-Api-Key"), openAI{}.key(r))
}

func (anthropic) fail(w http.ResponseWriter, status int, message string) {
	send(w, status, object{"type": "error", "error": object{"type": "invalid_request_error", "message": message}})
}

// usage is the usage of a message that has so many output tokens by now.
func (anthropic) usage(q *question, output int) object {
	return object{"input_tokens": q.input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": output}
}

func (anthropic) stop(a answer) string {
	if a.cut {
		return "max_tokens"
	}
	return "end_turn"
}

// message is a message; stop is nil while it is not complete.
func (n anthropic) message(q *question, content []object, stop any, output int) object {
	return object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": q.Model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": n.usage(q, output),
	}
}

func (n anthropic) whole(q *question, a answer) object {
	return n.message(q, []object{{"type": "text", "text": a.text}}, n.stop(a), a.output)
}

// begin writes the input tokens. The output tokens come in the end: it has the sum.
func (n anthropic) begin(w io.Writer, q *question) {
	event(w, "message_start", object{"type": "message_start", "message": n.message(q, []object{}, nil, 1)})
	event(w, "content_block_start", object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}})
	event(w, "ping", object{"type": "ping"})
}

func (anthropic) token(w io.Writer, _ *question, text string) {
	event(w, "content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": text}})
}

func (n anthropic) end(w io.Writer, _ *question, a answer) {
	event(w, "content_block_stop", object{"type": "content_block_stop", "index": 0})
	event(w, "message_delta", object{"type": "message_delta", "delta": object{"stop_reason": n.stop(a), "stop_sequence": nil}, "usage": object{"output_tokens": a.output}})
	event(w, "message_stop", object{"type": "message_stop"})
}
