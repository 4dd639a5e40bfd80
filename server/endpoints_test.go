package server_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server"
)

// modelCall is a request to an API of language models, and its answer.
type modelCall struct {
	method, path, kind, body string
	status                   int
	answer                   string
	charged                  int64
}

// charge makes calls through the gateway, or in a program, and checks what each is charged.
func charge(t *testing.T, fields string, wrapped bool, calls []modelCall) {
	t.Helper()
	var m stint.Memory
	var now modelCall
	answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(max(200, now.status))
		fmt.Fprint(w, now.answer)
	})
	s := newServer(t, `rules: [{name: tokens, key: '"all"', `+fields+`, limits: [1000000000 per 365d fixed_window hold, 2 in_flight]}]`, over(&m), everythingTo(upstream(t, answers)))
	h := s.Gateway()
	if wrapped {
		h = s.Wrap(answers)
	}
	var before int64
	for _, now = range calls {
		r := httptest.NewRequest(now.method, now.path, strings.NewReader(now.body))
		if r.Header.Set("Content-Type", "application/json"); now.kind != "" {
			r.Header.Set("Content-Type", now.kind)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != max(200, now.status) || w.Body.String() != now.answer {
			t.Errorf("%s %s: %d %s", now.method, now.path, w.Code, w.Body)
		}
		wantHeld(t, s, &m, 0)
		used := usedBy(t, s, &m)
		if used-before != now.charged {
			t.Errorf("%s, wrapped %t: %s %s %.60s: %d charged, want %d", fields, wrapped, now.method, now.path, now.body, used-before, now.charged)
		}
		before = used
	}
}

// Requests are charged where tokens are used, and nowhere else.
func TestTokensAreChargedWhereTheyAreUsed(t *testing.T) {
	const (
		stored  = `{"id": "resp_1", "status": "completed", "usage": {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}}`
		batched = `{"id": "batch_1", "status": "completed", "usage": {"input_tokens": 400000, "output_tokens": 200000}}`
		gemini  = `{"candidates": [], "usageMetadata": {"promptTokenCount": 10, "toolUsePromptTokenCount": 3, "candidatesTokenCount": 4, "thoughtsTokenCount": 2, "totalTokenCount": 19}}`
	)
	part := `{"custom_id": "a", "params": {"max_tokens": 100, "messages": []}}`
	thousand := `{"requests": [` + strings.Repeat(part+", ", 999) + part + `]}`
	guess := func(body string, output int64) int64 { return (int64(len(body))+3)/4 + 5*output }
	inline := `{"batch": {"inputConfig": {"requests": {"requests": [{"request": {"generationConfig": {"maxOutputTokens": 7}}}, {"request": {"generation_config": {"max_output_tokens": 5, "candidate_count": 2}}}, {"request": {}}]}}}}`
	inFile := `{"batch": {"inputConfig": {"fileName": "files/1"}}}`
	file := `{"input_file_id": "file_1", "endpoint": "/v1/chat/completions"}`
	for _, api := range []string{"openai", "anthropic", "gemini"} {
		for _, unsettled := range []string{"keep", "give_back"} {
			for _, wrapped := range []bool{false, true} {
				charge(t, "tokens: "+api+", unsettled: "+unsettled, wrapped, []modelCall{
					{"POST", "/v1/responses", "", `{"input": "hi", "stream": false}`, 0, stored, 45},
					{"GET", "/v1/responses/resp_1", "", "", 0, stored, 0},
					{"GET", "/v1/responses/resp_1", "", "", 0, stored, 0},
					{"GET", "/v1/responses/resp_1?stream=true", "", "", 0, stored, 0},
					{"GET", "/v1/batches/batch_1", "", "", 0, batched, 0},
					{"GET", "/v1/batches/batch_1", "", "", 0, batched, 0},
					{"DELETE", "/v1/responses/resp_1", "", "", 0, stored, 0},
					{"POST", "/v1/responses/resp_1/cancel", "", "", 0, stored, 0},
					{"POST", "/v1/messages/count_tokens", "", `{"messages": ["` + strings.Repeat("a", 50) + `"]}`, 0, `{"input_tokens": 17}`, 0},
					{"POST", "/v1/responses/input_tokens", "", `{"input": "hi"}`, 0, `{"input_tokens": 17}`, 0},
					{"POST", "/v1beta/models/g:countTokens", "", `{"contents": []}`, 0, `{"totalTokens": 17}`, 0},
					{"POST", "/v1/moderations", "", `{"input": "hi"}`, 0, `{"results": []}`, 0},
					{"POST", "/v1/files", "multipart/form-data; boundary=x", strings.Repeat("x", 1<<20), 0, `{"id": "file_1"}`, 0},
					{"POST", "/v1/uploads/u/parts", "multipart/form-data; boundary=x", strings.Repeat("x", 1<<20), 0, `{"id": "part_1"}`, 0},
					{"POST", "/v1/embeddings", "", `{"input": "hello, you"}`, 0, `{"usage": {"prompt_tokens": 4, "total_tokens": 4}}`, 4},
					{"POST", "/v1/images/generations", "", `{"prompt": "a cat"}`, 0, `{"data": [], "usage": {"input_tokens": 50, "output_tokens": 1000}}`, 5050},
					{"POST", "/v1/audio/transcriptions", "multipart/form-data; boundary=x", "--x", 0, `{"text": "", "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 10}}`, 64},
					{"POST", "/v1/messages", "", `{"max_tokens": 10, "messages": []}`, 0, `{"usage": {"input_tokens": 7, "output_tokens": 2}}`, 17},
					{"POST", "/v1beta/models/g:generateContent", "", `{"contents": []}`, 0, gemini, 10 + 3 + 5*(4+2)},
					{"POST", "/v1beta/models/g:streamGenerateContent", "", `{"contents": []}`, 0, gemini, 10 + 3 + 5*(4+2)},
					{"POST", "/v1beta/models/g:embedContent", "", `{"content": {}}`, 0, `{"usageMetadata": {"promptTokenCount": 6}}`, 6},
					{"POST", "/v1/messages/batches", "", thousand, 0, `{"id": "msgbatch_1", "processing_status": "in_progress"}`, guess(thousand, 100_000)},
					{"POST", "/v1/messages/batches", "", thousand, 400, `{"type": "error"}`, 0},
					{"GET", "/v1/messages/batches/msgbatch_1/results", "", "", 0, `{"result": {"message": {"usage": {"input_tokens": 7, "output_tokens": 2}}}}`, 0},
					{"POST", "/v1beta/models/g:batchGenerateContent", "", inline, 0, `{"name": "batches/1"}`, guess(inline, 7+10+1024)},
					{"POST", "/v1beta/models/g:batchGenerateContent", "", inFile, 0, `{"name": "batches/2"}`, guess(inFile, 1024)},
					{"POST", "/v1/chat/completions", "", "", 0, "data: {\"a\": 1}\n\ndata: {\"a\": 1}\n\n", 5 * 2},
					{"POST", "/v1/batches", "", file, 0, `{"id": "batch_1", "usage": {"input_tokens": 0, "output_tokens": 0}}`, guess(file, 1024)},
					{"POST", "/v1/something", "", `{"input": "hi"}`, 0, `{"usage": {"prompt_tokens": 4, "input_tokens": 4}, "usageMetadata": {"promptTokenCount": 4}}`, 4},
				})
			}
		}
	}
	charge(t, "tokens: anthropic, cost_after: response.json.used", false, []modelCall{{"POST", "/v1/messages/batches", "", thousand, 0, `{"used": 7}`, 7}})
}

// A batch holds the sum of its parts, whatever one request may hold and however long it is; more than the
// budget never fits.
func TestBatchesHoldTheirSum(t *testing.T) {
	const requests, inline = `{"requests": [`, `{"batch": {"display_name": "b", "input_config": {"requests": {"requests": [`
	for _, c := range []struct {
		path, begin, part, end string
		output                 int64 // of a part
	}{
		{"/v1/messages/batches", requests, `{"custom_id": "a", "params": {"max_tokens": 100, "messages": [{"content": "` + strings.Repeat("text ", 200) + `"}]}}`, `]}`, 100},
		{"/v1/messages/batches", requests, `{"params": {"messages": [], "max_tokens": 7}}`, `], "requests_": [{"params": {"max_tokens": 7}}]}`, 7},
		{"/v1/messages/batches", requests, `{"params": {"messages": []}}`, `]}`, 1024},
		{"/v1/messages/batches", requests, `7`, `]}`, 1024},
		{"/v1beta/models/m:batchGenerateContent", inline, `{"request": {"generationConfig": {"maxOutputTokens": 70, "candidateCount": 2}}}`, `]}}}}`, 140},
	} {
		for _, parts := range []int{1, 3, 1000, 3000} {
			for _, zipped := range []bool{false, true} {
				body := c.begin + strings.Repeat(c.part+",", parts-1) + c.part + c.end
				sent := body
				var m stint.Memory
				s := newServer(t, `rules: [{name: tokens, key: '"all"', tokens: anthropic, max_hold: 1%, limits: [4000000 per 365d fixed_window hold]}]`, over(&m),
					everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) {})))
				if zipped {
					var b bytes.Buffer
					z := gzip.NewWriter(&b)
					_, _ = io.WriteString(z, body)
					z.Close()
					sent = b.String()
				}
				w := httptest.NewRecorder()
				r := httptest.NewRequest("POST", c.path, strings.NewReader(sent))
				if r.Header.Set("Content-Type", "application/json"); zipped {
					r.Header.Set("Content-Encoding", "gzip")
				}
				s.Gateway().ServeHTTP(w, r)
				want := (int64(len(body))+3)/4 + int64(parts)*5*c.output
				if asked := int64(parts) * 5 * c.output; c.output != 1024 && asked > 4_000_000 || want > 4_000_000 {
					if w.Code != 429 || w.Header().Get("Retry-After") != "" || usedBy(t, s, &m) != 0 {
						t.Errorf("%s, %d parts of %d: %d, Retry-After %q", c.path, parts, c.output, w.Code, w.Header().Get("Retry-After"))
					}
				} else if got := usedBy(t, s, &m); w.Code != 200 || got != want {
					t.Errorf("%s, %d parts of %d, zipped %t: %d, %d charged, want %d", c.path, parts, c.output, zipped, w.Code, got, want)
				}
			}
		}
	}
	many := strings.Repeat(`"a": 1, `, 10_000) // more than are read
	for _, body := range []string{
		`{"requests": [{"params": {"max_tokens": 7}}, {"params": {"max_tokens": 1, "MAX_TOKENS": 9}}]}`,
		`{` + many + `"requests": [{"params": {"max_tokens": 7}}]}`,
		`{"requests": [{` + many + `"params": {"max_tokens": 7}}]}`,
	} {
		for fields, want := range map[string]int{"": 400, ", unreadable_body: default": 200} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("POST", "/v1/messages/batches", strings.NewReader(body))
			s := newServer(t, `rules: [{name: tokens, key: '"all"', tokens: anthropic, limits: [4000000 per 365d fixed_window hold]`+fields+`}]`, everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) {})))
			if strings.Contains(body, "MAX") {
				want = 400
			}
			if s.Gateway().ServeHTTP(w, r); w.Code != want {
				t.Errorf("%.20s…%s: %d, want %d", body, fields, w.Code, want)
			}
		}
	}
	for about, c := range map[string]struct {
		parts  string
		status int
	}{
		"a part with a limit twice":          {`{"params": {"max_tokens": 7}}, {"params": {"max_tokens": 1, "MAX_TOKENS": 9}}`, 400},
		"limits that are too large":          {`{"params": {"max_tokens": 1e999}}`, 429},
		"limits whose sum is too large":      {strings.Repeat(`{"params": {"max_tokens": 1e18}}, `, 4095) + `{"params": {"max_tokens": 1e18}}`, 429}, // 4096 times 1<<52 is 0
		"an upstream that breaks its answer": {`{"params": {"max_tokens": 7}}`, 502},
	} {
		var m stint.Memory
		s := newServer(t, `rules: [{name: tokens, key: '"all"', tokens: anthropic, unsettled: give_back, limits: [4000000 per 365d fixed_window hold]}]`, over(&m), everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })))
		w := httptest.NewRecorder()
		s.Gateway().ServeHTTP(w, httptest.NewRequest("POST", "/v1/messages/batches", strings.NewReader(`{"requests": [`+c.parts+`]}`)))
		if wantHeld(t, s, &m, 0); w.Code != c.status || usedBy(t, s, &m) != 0 {
			t.Errorf("%s: %d, %d charged", about, w.Code, usedBy(t, s, &m))
		}
	}
}

// Each budget is charged what it held for a batch, which may be more than another holds.
func TestBatchesOfFilesUnderTwoBudgets(t *testing.T) {
	for _, limits := range []string{"[100000 per 365d fixed_window hold, 2000000 per 365d sliding_log hold]", "[2000000 per 365d sliding_log hold, 100000 per 365d fixed_window hold]"} {
		var m stint.Memory
		s := newServer(t, `rules: [{name: tokens, key: '"all"', tokens: openai, max_hold: 1%, limits: `+limits+`}]`, over(&m),
			everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"id": "batch_1"}`) })))
		r := httptest.NewRequest("POST", "/v1/batches", strings.NewReader(`{"input_file_id": "f"}`))
		r.Header.Set("Content-Type", "application/json")
		s.Gateway().ServeHTTP(httptest.NewRecorder(), r)
		for _, l := range s.Rules().Rules[0].Limits {
			d, err := stint.NewLimiter(&m).Peek(t.Context(), "all", l)
			if want := min(6+5120, l.Capacity()/100); err != nil || d.Used() != want {
				t.Errorf("%s of %s: %d charged, want %d, %v", l.Terms(), limits, d.Used(), want, err)
			}
		}
	}
}

// What passes through an upgraded connection is not read: it costs the estimate, and is found. A request
// that only offers to be upgraded costs what others do.
func TestUpgradesCostTheEstimate(t *testing.T) {
	var m stint.Memory
	s := newServer(t, `rules: [{name: tokens, key: '"all"', tokens: openai, limits: [1000000000 per 365d fixed_window hold]}]`, over(&m),
		everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/realtime" {
				fmt.Fprint(w, `{"usage": {"input_tokens": 7}}`)
				return
			}
			conn, buffer, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(buffer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			buffer.Flush()
		})))
	gateway := httptest.NewServer(s.Gateway())
	defer gateway.Close()
	var before int64
	for _, c := range []struct {
		method, path, upgrade, body string
		charged                     int64
		found                       bool
	}{
		{"GET", "/v1/responses/x", "h2c", "", 0, false},
		{"GET", "/v1/responses/x", "websocket", "", 0, false},
		{"POST", "/v1/files", "websocket", "{}", 0, false},
		{"POST", "/v1/messages/batches", "websocket", `{"requests": [1, 2]}`, 5 + 2*5120, false},
		{"GET", "/v1/realtime", "websocket", "", 5120, true},
	} {
		r, err := http.NewRequest(c.method, gateway.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", c.upgrade)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		await.Until(t, "it has ended", func() bool { return s.Holds()["gateway"] == 0 && s.Holds()["upgraded"] == 0 })
		found := slices.ContainsFunc(s.Findings(), func(f rules.Finding) bool { return f.Code == rules.CodeEndpoint })
		used := usedBy(t, s, &m)
		if used-before != c.charged || found != c.found {
			t.Errorf("%+v: %d charged, found %t", c, used-before, found)
		}
		before = used
	}
}

// The first endpoints that the table does not know are found, once each, if the upstream serves them.
func TestUnknownEndpointIsFound(t *testing.T) {
	var log logged
	status := 404
	s := newServer(t, `rules: [{name: a, key: '"a"', tokens: openai, limits: [1000000 per 365d fixed_window hold]}, {name: b, key: '"b"', tokens: openai, cost_after: 5, limits: [1000000 per 365d fixed_window hold]}]`,
		logTo(&log), everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })))
	send := func(method, path string) {
		r := httptest.NewRequest(method, path, strings.NewReader(`{"a": 1}`))
		r.Header.Set("Content-Type", "application/json")
		s.Gateway().ServeHTTP(httptest.NewRecorder(), r)
	}
	found := func() (texts []string) {
		for _, f := range s.Findings() {
			if f.Code == rules.CodeEndpoint {
				texts = append(texts, f.Text)
			}
		}
		return texts
	}
	send("POST", "/v1/rerank")
	status = 200
	send("POST", "/v1/chat/completions")
	send("POST", "/v1/files")
	if all := found(); all != nil {
		t.Errorf("found %q", all)
	}
	send("POST", "/v1/rerank")
	send("POST", "/v1/rerank")
	all := found()
	if len(all) != 1 || !strings.Contains(all[0], `rule "a" met a request to POST /v1/rerank, of which tokens: openai does not know`) {
		t.Errorf("found %q", all)
	}
	for i := range 20 {
		send("POST", fmt.Sprint("/v1/other/", i%10))
	}
	if all := found(); len(all) != 8 {
		t.Errorf("found %q", all)
	}
	if text := log.taken(); strings.Count(text, `code=ST027`) != 8 {
		t.Error(text)
	}
	s = newServer(t, `rules: [{name: a, key: '"a"', tokens: openai, limits: [1000000 per 365d fixed_window hold]}]`, everythingTo(upstream(t, who("up"))))
	send("POST", "/v1/batches")
	if all := found(); len(all) != 1 || !strings.Contains(all[0], "which makes a batch of requests that are in a file") {
		t.Errorf("found %q", all)
	}
}

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
