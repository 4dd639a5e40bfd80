package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
)

// What an answer that is made later used is charged once, when it is first read: beyond the estimate that
// its request was charged.
func TestAnswersMadeLater(t *testing.T) {
	const (
		body    = `{"input": "hi", "background": true}` // 35 bytes: 9 tokens
		queued  = `{"id": "resp_1", "status": "queued", "usage": null}`
		running = `{"id": "resp_1", "status": "in_progress", "usage": {"input_tokens": 1, "output_tokens": 1}}`
		long    = `{"id": "resp_1", "status": "completed", "usage": {"input_tokens": 4000, "output_tokens": 50000}}`
		short   = `{"id": "resp_2", "status": "incomplete", "usage": {"input_tokens": 40, "output_tokens": 5}}`
		batched = `{"id": "batch_1", "status": "completed", "usage": {"input_tokens": 400000, "output_tokens": 200000}}`
		file    = `{"input_file_id": "file_1"}` // 27 bytes: 7 tokens
	)
	var ended []modelCall
	for _, how := range []string{"completed", "failed", "incomplete", "cancelled", "expired"} {
		is := strings.NewReplacer("resp_1", how, `"completed"`, `"`+how+`"`)
		ended = append(ended, modelCall{"POST", "/v1/responses", "", body, 0, is.Replace(queued), 9 + 5120},
			modelCall{"GET", "/v1/responses/" + how, "", "", 0, is.Replace(long), 254_000 - (9 + 5120)})
	}
	for _, wrapped := range []bool{false, true} {
		charge(t, "tokens: openai", wrapped, ended)
		charge(t, "tokens: openai", wrapped, []modelCall{
			{"POST", "/v1/responses", "", body, 0, strings.Replace(queued, "null", `{"input_tokens": 0, "output_tokens": 0}`, 1), 0},
			{"GET", "/v1/responses/resp_1", "", "", 0, long, 254_000 - 1}, // that it was announced is kept as one token
		})
		charge(t, "tokens: openai", wrapped, []modelCall{
			{"GET", "/v1/responses/resp_1", "", "", 0, long, 0}, // not asked for here
			{"POST", "/v1/responses", "", body, 0, queued, 9 + 5120},
			{"GET", "/v1/responses/resp_1", "", "", 0, queued, 0},
			{"GET", "/v1/responses/resp_1", "", "", 0, running, 0},
			{"GET", "/v1/responses/resp_1", "", "", 404, long, 0},
			{"GET", "/v1/responses/resp_1", "", "", 0, long, 254_000 - (9 + 5120)},
			{"GET", "/v1/responses/resp_1", "", "", 0, long, 0},
			{"GET", "/v1/responses/resp_1", "", "", 0, long, 0},
			{"POST", "/v1/responses", "", body, 0, strings.ReplaceAll(queued, "_1", "_2"), 9 + 5120},
			{"GET", "/v1/responses/resp_2", "", "", 0, short, 0}, // less than its estimate
			{"GET", "/v1/responses/resp_2", "", "", 0, short, 0},
			{"POST", "/v1/responses", "", body, 400, `{"id": "resp_3"}`, 0},
			{"GET", "/v1/responses/resp_3", "", "", 0, strings.ReplaceAll(long, "_1", "_3"), 0},
			{"POST", "/v1/threads/t/runs", "", file, 0, `{"id": "run_1", "status": "queued", "usage": null}`, 7 + 5120},
			{"POST", "/v1/threads/t/runs/run_1/submit_tool_outputs", "", file, 0, `{"id": "run_1", "status": "queued", "usage": null}`, 7 + 5120},
			{"GET", "/v1/threads/t/runs/run_1", "", "", 0, `{"id": "run_1", "status": "requires_action", "usage": null}`, 0},
			{"GET", "/v1/threads/t/runs/run_1", "", "", 0, `{"id": "run_1", "status": "completed", "usage": {"prompt_tokens": 400000, "completion_tokens": 20}}`, 400_100 - 2*(7+5120)},
			{"GET", "/v1/threads/t/runs/run_1", "", "", 0, `{"id": "run_1", "status": "completed", "usage": {"prompt_tokens": 400000, "completion_tokens": 20}}`, 0},
			{"POST", "/v1/batches", "", file, 0, `{"id": "batch_1", "status": "validating"}`, 7 + 5120},
			{"GET", "/v1/batches/batch_1", "", "", 0, strings.ReplaceAll(batched, "completed", "finalizing"), 0},
			{"GET", "/v1/batches/batch_1", "", "", 0, batched, 1_400_000 - (7 + 5120)},
			{"GET", "/v1/batches/batch_1", "", "", 0, batched, 0},
			{"GET", "/v1/batches/batch_1", "", "", 0, batched, 0},
		})
	}
}

// A budget that is used up, or in debt by an answer that was made later, refuses only what uses tokens. The
// other limits of the rule, and a ban, refuse the rest as ever.
func TestFreeRequestsPassUsedUpBudgets(t *testing.T) {
	var m stint.Memory
	answer := `{"id": "resp_1", "status": "queued"}`
	s := newServer(t, `rules: [{name: tokens, key: '"all"', tokens: openai, limits: [6000 per 365d fixed_window hold], penalty: {ban_after: 3, ban_for: 1h}},
  {name: all, key: '"all"', tokens: openai, limits: [8 per 365d, 1000000 per 365d fixed_window hold]}]`, over(&m), everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
	})))
	send := func(method, path, body string, want int) {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if s.Gateway().ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, want)
		}
	}
	send("POST", "/v1/responses", `{"input": "hi"}`, 200)
	answer = `{"id": "resp_1", "status": "completed", "usage": {"input_tokens": 0, "output_tokens": 2000}}`
	for range 2 {
		send("GET", "/v1/responses/resp_1", "", 200)
	}
	if d, err := stint.NewLimiter(&m).Peek(t.Context(), "all", s.Rules().Rules[0].Limits[0]); err != nil || d.Used() < 6000 {
		t.Errorf("%d charged, %v", d.Used(), err)
	}
	send("POST", "/v1/responses", `{"input": "hi"}`, 429)
	send("POST", "/v1/moderations", `{"input": "hi"}`, 200)
	send("POST", "/v1/responses", `{"input": "hi"}`, 429)
	send("GET", "/v1/responses/resp_1", "", 200)
	send("POST", "/v1/responses", `{"input": "hi"}`, 429) // the third violation
	send("GET", "/v1/responses/resp_1", "", 429)
}

// Nothing is kept of an answer that came with the response to its request.
func TestWholeAnswersAreNotKept(t *testing.T) {
	for answer, want := range map[string]int{
		`{"id": "resp_1", "status": "completed", "usage": {"input_tokens": 20, "output_tokens": 5}}`:                                  1,
		`data: {"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": {"input_tokens": 1}}}` + "\n\n": 1,
		`{"id": "resp_1", "status": "queued"}`: 2,
	} {
		var m stint.Memory
		s := newServer(t, `rules: [{name: tokens, key: '"all"', tokens: openai, limits: [1000000000 per 365d fixed_window hold]}]`, over(&m),
			everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })))
		s.Gateway().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/responses", strings.NewReader(`{"input": "hi"}`)))
		if got := m.Len(); got != want {
			t.Errorf("%s: %d keys, want %d", answer, got, want)
		}
	}
}

// An answer is charged to the key of its request alone, also if others know its ID.
func TestAnswersMadeLaterOfOthers(t *testing.T) {
	var m stint.Memory
	answer := `{"id": "resp_1", "status": "queued"}`
	s := newServer(t, `rules: [{name: tokens, key: 'request.headers["x-key"]', tokens: openai, limits: [1000000 per 365d fixed_window hold]}]`, over(&m),
		everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })))
	used := func(key string) int64 {
		d, err := stint.NewLimiter(&m).Peek(t.Context(), key, s.Rules().Rules[0].Limits[0])
		if err != nil {
			t.Fatal(err)
		}
		return d.Used()
	}
	send := func(key, method, path, body string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("X-Key", key)
		s.Gateway().ServeHTTP(httptest.NewRecorder(), r)
	}
	send("a", "POST", "/v1/responses", `{"input": "hi"}`)
	answer = `{"id": "resp_1", "status": "completed", "usage": {"input_tokens": 0, "output_tokens": 5000}}`
	for _, c := range []struct {
		reads string
		a, b  int64
	}{{"b", 4 + 5120, 0}, {"a", 25_000, 0}} {
		send(c.reads, "GET", "/v1/responses/resp_1", "")
		if a, b := used("a"), used("b"); a != c.a || b != c.b {
			t.Errorf("%s reads: %d and %d charged, want %d and %d", c.reads, a, b, c.a, c.b)
		}
	}
}

// However many read an answer at once, through two instances, it is charged once to each budget.
func TestAnswersMadeLaterAreChargedOnce(t *testing.T) {
	const file = `rules: [{name: tokens, key: '"all"', tokens: openai, max_hold: 1%, limits: [100000 per 365d fixed_window hold, 2000000 per 365d sliding_log hold]}]`
	var answer atomic.Value
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer.Load())
	})
	urls, servers, store := twoGateways(t, redistest.Start(t), file, up, func(*server.Config) {})
	send := func(method, url, body string) {
		r, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	used := func() (all [2]int64) {
		for i, l := range servers[0].Rules().Rules[0].Limits {
			d, err := stint.NewLimiter(store).Peek(t.Context(), "all", l)
			if err != nil {
				t.Fatal(err)
			}
			all[i] = d.Used()
		}
		return all
	}
	answer.Store(`{"id": "resp_1", "status": "queued"}`)
	send("POST", urls[0]+"/v1/responses", `{"input": "hi"}`)
	await.Until(t, "the estimate is charged, one of them capped", func() bool { return used() == [2]int64{1000, 4 + 5120} })
	answer.Store(`{"id": "resp_1", "status": "completed", "usage": {"input_tokens": 0, "output_tokens": 5000}}`)
	for range 2 { // what the first charge too often, the second find
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { send("GET", urls[i%2]+"/v1/responses/resp_1", "") })
		}
		all.Wait()
		await.Until(t, "the rest is charged, once", func() bool { return used() == [2]int64{25_000, 25_000} })
	}
}
