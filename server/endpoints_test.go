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
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
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
			if r.URL.Path == "/v1/realtime" {
				echo(w, r)
				return
			}
			fmt.Fprint(w, `{"usage": {"input_tokens": 7}}`)
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
		if resp.StatusCode != http.StatusSwitchingProtocols {
			_, _ = io.Copy(io.Discard, resp.Body)
		}
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
	if len(all) != 1 || !strings.Contains(all[0], `rule "a" got a request to POST /v1/rerank, whose cost tokens: openai does not know`) {
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
	if all := found(); len(all) != 1 || !strings.Contains(all[0], "which starts a batch of requests from a file") {
		t.Errorf("found %q", all)
	}
}

// Checks, simulations and explanations take the cost of a request from the same table.
func TestEndpointsAtEveryDoor(t *testing.T) {
	const file = `rules: [{name: tokens, key: '"all"', tokens: openai, limits: [1000000 per 365d fixed_window hold]}]`
	for what, want := range map[string]int64{
		"POST /v1/chat/completions": 5120, "POST /v1/batches": 5120, "POST /v1/something": 5120, "PUT /v1/files": 5120,
		"GET /v1/responses/resp_1": 0, "POST /v1/moderations": 0, "POST /v1/messages/count_tokens": 0, "DELETE /v1/files/f": 0,
	} {
		method, path, _ := strings.Cut(what, " ")
		body := fmt.Sprintf(`{"request": {"method": %q, "path": %q}}`, method, path)
		var m stint.Memory
		s := newServer(t, file, over(&m))
		if w := checkAt(s, "/v1/check", body); w.Code != 200 || usedBy(t, s, &m) != want {
			t.Errorf("%s: a check: %d, %d used, want %d", what, w.Code, usedBy(t, s, &m), want)
		}
		out, err := simulated(t, file, strings.NewReader(`{"t_us": 1, `+body[1:]+"\n"), new(stint.Memory))
		took := strings.Contains(out, fmt.Sprintf(`"remaining":%d`, 1_000_000-want))
		if err != nil || took != (want > 0) {
			t.Errorf("%s: a simulation: %s, %v", what, out, err)
		}
		in, err := server.ReadInput([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.Explain(t.Context(), in)
		if err != nil || len(e.Rules) != 1 || e.Rules[0].Cost != want {
			t.Errorf("%s: an explanation: %+v, %v", what, e, err)
		}
	}
}
