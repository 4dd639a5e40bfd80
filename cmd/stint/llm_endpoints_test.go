package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// The clients of OpenAI and Anthropic are charged where tokens are used: not for reading, counting,
// moderation or an upload, and for a batch the sum of its parts.
func TestLLMClientsPayForTokensAlone(t *testing.T) {
	t.Parallel()
	var batch atomic.Int64 // the bytes of the batch
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		const used = `"usage":{"input_tokens":20,"output_tokens":5,"total_tokens":25}`
		switch what := r.Method + " " + r.URL.Path; what {
		case "POST /v1/responses", "GET /v1/responses/resp_1":
			fmt.Fprint(w, `{"id":"resp_1","object":"response","status":"completed","output":[],`+used+`}`)
		case "POST /v1/responses/input_tokens", "POST /v1/messages/count_tokens":
			fmt.Fprint(w, `{"input_tokens":20}`)
		case "POST /v1/moderations":
			fmt.Fprint(w, `{"id":"m","results":[]}`)
		case "POST /v1/files":
			fmt.Fprint(w, `{"id":"file_1","object":"file"}`)
		case "GET /v1/batches/batch_1":
			fmt.Fprint(w, `{"id":"batch_1","object":"batch","status":"completed","usage":{"input_tokens":400000,"output_tokens":200000}}`)
		case "POST /v1/embeddings":
			fmt.Fprint(w, `{"object":"list","data":[],"usage":{"prompt_tokens":4,"total_tokens":4}}`)
		case "POST /v1/images/generations":
			switch {
			case strings.Contains(string(body), "stream_options"):
				t.Errorf("an option that the endpoint does not know: %s", body)
			case strings.Contains(string(body), `"stream":true`):
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, "event: image_generation.completed\ndata: {\"type\":\"image_generation.completed\","+used+"}\n\n")
			default:
				fmt.Fprint(w, `{"created":0,"data":[],`+used+`}`)
			}
		case "POST /v1/messages/batches":
			batch.Store(int64(len(body)))
			fmt.Fprint(w, `{"id":"batch_1","type":"message_batch","processing_status":"in_progress"}`)
		case "GET /v1/messages/batches/batch_1":
			fmt.Fprint(w, `{"id":"batch_1","type":"message_batch","processing_status":"ended"}`)
		default:
			t.Errorf("an unexpected request: %s", what)
		}
	}))
	t.Cleanup(up.Close)
	l := startLLM(t, `routes: [{upstream: "`, `routes: [{upstream: "`+up.URL+`"}] # "`)
	var got struct{ Batch struct{ Status int } }
	l.play("endpoints", &got)
	if got.Batch.Status != 403 {
		t.Errorf("a batch of a file: %d", got.Batch.Status)
	}
	l.used(openAIForm, "endpoints", 45+4+45+45)
	l.used(anthropicForm, "endpoints", (batch.Load()+3)/4+3*5*100)
}
