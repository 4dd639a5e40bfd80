package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stintdev/stint"
)

// The presets for tokens, through the gateway: what a request holds while it runs, and what it is
// charged in the end, in both wire forms, streamed and whole.
func TestTokensThroughTheGateway(t *testing.T) {
	long := strings.Repeat("a", 100_000) // longer than a field that expressions may read
	for _, c := range []struct {
		about, fields, path, body, contentType, answer string
		status                                         int
		held, charged                                  int64
	}{
		{"openai, whole", "tokens: openai", "/v1/chat/completions", `{"max_tokens": 100, "messages": [` + q(long) + `]}`, "application/json",
			`{"choices": [], "usage": {"prompt_tokens": 70, "completion_tokens": 6, "total_tokens": 76}}`, 200, 25010 + 500, 100},
		{"openai, a stream", "tokens: openai", "/v1/chat/completions", `{"stream": true, "messages": []}`, "text/event-stream",
			"data: {\"choices\": [1], \"usage\": null}\n\ndata: {\"choices\": [], \"usage\": {\"prompt_tokens\": 70, \"completion_tokens\": 6}}\n\ndata: [DONE]\n\n", 200, 8 + 5120, 100},
		{"openai, a stream without usage", "tokens: {api: openai, include_usage: false}", "/v1/chat/completions", `{"stream": true}`, "text/event-stream",
			"data: {\"choices\": [1]}\n\ndata: [DONE]\n\n", 200, 4 + 5120, 4 + 5120},
		{"openai, given back", "tokens: {api: openai, include_usage: false}, unsettled: give_back", "/v1/chat/completions", `{"stream": true}`, "text/event-stream",
			"data: [DONE]\n\n", 200, 4 + 5120, 4 + 15}, // what came in and passed
		{"openai, refused", "tokens: openai", "/v1/chat/completions", `{"max_tokens": 100}`, "application/json", `{"error": {}}`, 429, 5 + 500, 0},
		{"openai, capped", "tokens: openai, max_hold: 1%", "/v1/chat/completions", `{"max_tokens": 10000}`, "application/json",
			`{"usage": {"prompt_tokens": 70, "completion_tokens": 6}}`, 200, 10000, 100},
		{"openai, no body", "tokens: openai", "/v1/models", "", "application/json", `{"data": []}`, 200, 0, 0},
		{"anthropic, whole", "tokens: anthropic", "/v1/messages", `{"max_tokens": 100}`, "application/json",
			`{"usage": {"input_tokens": 70, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 900, "output_tokens": 6}}`, 200, 5 + 500, 105},
		{"anthropic, a stream", "tokens: anthropic", "/v1/messages", `{"max_tokens": 100, "stream": true}`, "text/event-stream",
			"event: message_start\ndata: {\"message\": {\"usage\": {\"input_tokens\": 70, \"output_tokens\": 1}}}\n\n" +
				"event: message_delta\ndata: {\"usage\": {\"output_tokens\": 4}}\n\nevent: message_delta\ndata: {\"usage\": {\"output_tokens\": 6}}\n\n", 200, 9 + 500, 100},
		{"expressions", `cost: body.n, cost_after: 'response.status == 200 ? response.json.used : 1'`, "/export", `{"n": 40}`, "application/json", `{"used": 39.5}`, 200, 40, 40},
	} {
		t.Run(c.about, func(t *testing.T) {
			var m stint.Memory
			held := make(chan int64, 1)
			file := `rules: [{name: r, key: '"all"', ` + c.fields + `, limits: [1000000 per 24h fixed_window hold, 60 per 24h, 4 in_flight]}]`
			var heldNow func() int64
			s := newServer(t, file, over(&m), everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
				held <- heldNow()
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", c.contentType)
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.answer)
			})))
			limits := s.Rules().Rules[0].Limits
			heldNow = func() (n int64) {
				all, err := m.Held(context.Background(), "all", limits[:1])
				for _, h := range all {
					n += h.Units
				}
				if err != nil {
					t.Error(err)
				}
				return n
			}
			g := start(t, s)
			resp, err := http.Post("http://"+g.gateway+c.path, "application/json", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != c.status || string(answer) != c.answer {
				t.Fatalf("%d %s, %v", resp.StatusCode, answer, err)
			}
			if got := <-held; got != c.held {
				t.Errorf("%d held, want %d", got, c.held)
			}
			wantHeld(t, s, &m, 0)
			for i, want := range []int64{1_000_000 - c.charged, 59, 4} {
				asks, out := []stint.Ask{{Key: "all", Limit: limits[i], Peek: true}}, make([]stint.Decision, 1)
				if _, err := stint.NewLimiter(&m).Take(t.Context(), &stint.Request{Asks: asks}, out); err != nil || out[0].Remaining != want {
					t.Errorf("%s: %d left, want %d, %v", limits[i], out[0].Remaining, want, err)
				}
			}
		})
	}
}

func q(text string) string { return `"` + text + `"` }
