package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// usedBy are the units of key "all" that are used under the first limit of the first rule of s.
func usedBy(t testing.TB, s *server.Server, m *stint.Memory) int64 {
	t.Helper()
	limit := s.Rules().Rules[0].Limits[0]
	d, err := stint.NewLimiter(m).Peek(context.Background(), "all", limit)
	if err != nil {
		t.Fatal(err)
	}
	if d.Held != 0 {
		t.Errorf("%d still held", d.Held)
	}
	return limit.Capacity() - d.Remaining
}

const budget = `rules: [{name: tokens, key: '"all"', cost: 100, %s limits: [1000000 per 24h fixed_window hold]}]`

// What a request did cost is what its response says, however it comes, and else as unsettled says.
func TestGatewaySettles(t *testing.T) {
	const whole = `{"usage": {"total_tokens": 42, "parts": {"input": 2, "output": 5}}}`
	const events = "data: {\"usage\":{\"total_tokens\":1}}\n\ndata: {\"usage\":{\"total_tokens\":42}}\n\ndata: [DONE]\n\n"
	zip := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		fmt.Fprint(z, text)
		z.Close()
		return b.String()
	}
	for _, c := range []struct {
		about, after, kind, encoding, body string
		status                             int
		want                               int64
	}{
		{"JSON", "response.json.usage.total_tokens", "application/json", "", whole, 200, 42},
		{"an expression", "response.json.usage.parts.input + 10 * response.json.usage.parts.output", "application/json", "", whole, 200, 52},
		{"events", "response.json.usage.total_tokens", "text/event-stream", "", events, 200, 42},
		{"zipped events", "response.json.usage.total_tokens", "text/event-stream", "gzip", zip(events), 200, 42},
		{"bytes", "response.bytes", "text/plain", "", strings.Repeat("x", 5000), 200, 5000},
		{"zipped bytes", "response.bytes", "application/json", "gzip", zip(whole), 200, int64(len(zip(whole)))},
		{"a header", "int(response.headers['used'])", "", "", "", 200, 7},
		{"the status", "response.status >= 500 ? 0 : 3", "", "", "", 503, 0},
		{"seconds", "response.seconds >= 0.0 && response.seconds < 10.0 ? 4 : 5", "", "", "", 200, 4},
		{"no usage", "response.json.usage.total_tokens", "application/json", "", "{}", 200, 100},
		{"a list", "response.json.usage.total_tokens", "application/json", "", `[{"usage": {"total_tokens": 1}}, ` + whole + "]", 200, 42},
		{"a list that ends early", "response.json.usage.total_tokens", "application/json", "", `[{"usage": {"total_tokens": 1}}, ` + whole + `, {"us`, 200, 42},
		{"lines", "response.json.usage.total_tokens", "text/plain", "", "{\"usage\": {\"total_tokens\": 1}}\n" + whole + "\n", 200, 42},
		{"another type", "response.json.usage.total_tokens", "text/html", "", whole, 200, 42},
		{"events of another type", "response.json.usage.total_tokens", "application/octet-stream", "", events, 200, 42},
		{"a page", "response.json.usage.total_tokens", "text/html", "", "<p>" + whole, 200, 100},
		{"another encoding", "response.json.usage.total_tokens", "application/json", "compress", whole, 200, 100},
		{"not JSON", "response.json.usage.total_tokens", "application/json", "", whole + "}", 200, 100},
		{"a negative cost", "0 - response.json.usage.total_tokens", "application/json", "", whole, 200, 100},
		{"an error", "1 / (response.status - 200)", "", "", "", 200, 100},
		{"no cost_after", "", "application/json", "", whole, 200, 100},
	} {
		for _, unsettled := range []string{"keep", "give_back"} {
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				h := w.Header()
				h.Set("Used", "7")
				h.Set("Content-Type", c.kind)
				if c.encoding != "" {
					h.Set("Content-Encoding", c.encoding)
				}
				w.WriteHeader(c.status)
				for part := range strings.SplitAfterSeq(c.body, "s") {
					fmt.Fprint(w, part)
					if c.kind == "text/event-stream" {
						w.(http.Flusher).Flush()
					}
				}
			})
			rule, want := "", c.want
			if c.after != "" {
				rule = fmt.Sprintf("cost_after: %q, unsettled: %s,", c.after, unsettled)
				if want == 100 && unsettled == "give_back" {
					want = 0
				}
			}
			var m stint.Memory
			s := newServer(t, fmt.Sprintf(budget, rule), over(&m), everythingTo(up))
			g := start(t, s)
			got := send(t, g.gateway, "GET", "/")
			if got.StatusCode != c.status || got.body != c.body {
				t.Errorf("%s: %s, %d bytes", c.about, got.Status, len(got.body))
			}
			wantHeld(t, s, &m, 0)
			if got := usedBy(t, s, &m); got != want {
				t.Errorf("%s, %s: %d used, want %d", c.about, unsettled, got, want)
			}
			unknown := seriesOf(t, g, `stint_costs_unknown_total{rule="tokens"}`)
			if wantUnknown := c.after != "" && c.want == 100; (unknown == "1") != wantUnknown {
				t.Errorf("%s: unknown %s, want %t", c.about, unknown, wantUnknown)
			}
			if used := seriesOf(t, g, `stint_hold_units_total{kind="used",rule="tokens"}`); used != fmt.Sprint(want) {
				t.Errorf("%s: the metric says %s used, want %d", c.about, used, want)
			}
		}
	}
}

// seriesOf is the value of a series, as text.
func seriesOf(t testing.TB, g *running, series string) string {
	t.Helper()
	for line := range strings.Lines(send(t, g.check, "GET", "/metrics").body) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Errorf("no metric %s", series)
	return ""
}

// What does not reach the upstream costs nothing, an upstream that answers nothing costs the
// estimate, and a client that leaves pays for what it saw.
func TestGatewaySettlesBrokenRequests(t *testing.T) {
	sent := make(chan bool)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/silent":
			panic(http.ErrAbortHandler)
		case "/slow":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"usage\":{\"total_tokens\":11}}\n\n")
			w.(http.Flusher).Flush()
			sent <- true
			<-r.Context().Done()
		}
	})
	var m stint.Memory
	s := newServer(t, fmt.Sprintf(budget, "cost_after: response.json.usage.total_tokens,"), over(&m), routes(
		config.Route{Path: "/silent", Upstream: up}, config.Route{Path: "/slow", Upstream: up}, config.Route{Path: "/gone", Upstream: unreachable(t)}))
	g := start(t, s)
	for _, c := range []struct {
		target string
		want   int64
	}{{"/nowhere", 0}, {"/gone", 0}, {"/silent", 100}} {
		send(t, g.gateway, "GET", c.target)
		wantHeld(t, s, &m, 0)
		if got := usedBy(t, s, &m); got != c.want {
			t.Errorf("%s: %d used, want %d", c.target, got, c.want)
		}
	}
	conn := dial(t, g.gateway)
	fmt.Fprint(conn, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
	<-sent
	if _, err := conn.Reader.ReadString('}'); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	wantHeld(t, s, &m, 0)
	if got := usedBy(t, s, &m); got != 111 {
		t.Errorf("a client that left: %d used, want 111", got)
	}
	for series, want := range map[string]string{`result="settled"`: "2", `result="given_back"`: "2", `result="lost"`: "0"} {
		if got := seriesOf(t, g, `stint_holds_ended_total{`+series+`,rule="tokens"}`); got != want {
			if got = seriesOf(t, g, `stint_holds_ended_total{rule="tokens",`+series+`}`); got != want {
				t.Errorf("%s: %s, want %s", series, got, want)
			}
		}
	}
}

// An upstream is asked only for encodings that the gateway can read, if it has to read the response.
func TestAcceptEncodingIsReadable(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", r.Header["Accept-Encoding"]) })
	for _, c := range []struct{ rule, sent, want string }{
		{"cost_after: response.json.a,", "gzip, br;q=1.0, deflate;q=0.5, zstd, *", `["gzip, br;q=1.0, deflate;q=0.5, zstd"]`},
		{"cost_after: response.json.a,", "compress, BR", `["BR"]`},
		{"cost_after: response.json.a,", "compress", `["identity"]`},
		{"cost_after: response.json.a,", "", `[]`},
		{"cost_after: response.bytes,", "compress", `["compress"]`},
		{"", "compress", `["compress"]`},
	} {
		g := start(t, newServer(t, fmt.Sprintf(budget, c.rule), everythingTo(up)))
		var headers []string
		if c.sent != "" {
			headers = []string{"Accept-Encoding: " + c.sent}
		}
		if got := send(t, g.gateway, "GET", "/", headers...); got.body != c.want {
			t.Errorf("%s %s: %s, want %s", c.rule, c.sent, got.body, c.want)
		}
	}
}

// The streams of OpenAI say what they used only if they are asked to.
func TestIncludeUsage(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, r.ContentLength == int64(len(body)), " ", string(body))
	})
	const chat, asked = "/v1/chat/completions", `"stream_options":{"include_usage":true},`
	for _, c := range []struct{ preset, path, body, want string }{
		{"openai", chat, `{"stream": true, "messages": []}`, `{` + asked + `"stream": true, "messages": []}`},
		{"openai", "/v1/completions", " {\"prompt\": \"x\",\n\"stream\":true}", " {" + asked + "\"prompt\": \"x\",\n\"stream\":true}"},
		{"openai", chat, `{"stream": true, "messages": [], "stream_options": null}`, `{"stream": true, "messages": [], "stream_options": {"include_usage":true}}`},
		{"openai", chat, `{"stream": true, "messages": [], "stream_options": {}}`, `{"stream": true, "messages": [], "stream_options": {"include_usage":true}}`},
		{"openai", chat, `{"stream": true, "messages": [], "stream_options": {"a": 1}}`, `{"stream": true, "messages": [], "stream_options": {"include_usage":true,"a": 1}}`},
		{"openai", chat, `{"stream": true, "messages": [], "stream_options": {"include_usage": false}, "n": 1}`, `{"stream": true, "messages": [], "stream_options": {"include_usage": true}, "n": 1}`},
		{"openai", chat, `{"stream": true, "messages": [], "stream_options": {"include_usage": true}}`, ""},
		{"openai", chat, `{"stream": false, "messages": []}`, ""},
		{"openai", chat, `{"messages": []}`, ""},
		{"openai", chat, `{"stream": true, "input": "x"}`, ""},
		{"openai", chat, `["stream"]`, ""},
		{"{api: openai, include_usage: false}", chat, `{"stream": true, "messages": []}`, ""},
		{"openai, mode: shadow", chat, `{"stream": true, "messages": []}`, ""},
		{`openai, limits: [1000000 per 24h fixed_window hold]}, {name: rate, key: '"all"'`, chat, `{"stream": true, "messages": []}`, `{` + asked + `"stream": true, "messages": []}`},
		{"anthropic", "/v1/messages", `{"stream": true, "messages": []}`, ""},
		{"anthropic", chat, `{"stream": true, "messages": []}`, `{` + asked + `"stream": true, "messages": []}`},
		{"openai", "/openai/deployments/d/chat/completions", `{"stream": true, "messages": []}`, `{` + asked + `"stream": true, "messages": []}`},
		{"gemini", "/v1beta/openai/chat/completions", `{"stream": true, "messages": []}`, `{` + asked + `"stream": true, "messages": []}`},
		{"openai", "/v1/completions", `{"stream": true, "prompt": ["x", "y"]}`, `{` + asked + `"stream": true, "prompt": ["x", "y"]}`},
		{"openai", "/v1/completions", `{"stream": true, "prompt": {"id": "p"}}`, ""},
		{"openai", "/v1/completions", `{"stream": true, "messages": []}`, ""},
		{"openai", chat, `{"stream": true, "messages": "hello"}`, ""},
		{"openai", chat, `{"stream": true, "messages": {}}`, ""},
		{"openai", chat, `{"stream": true, "prompt": "x"}`, ""},
		{"openai", "/v1/images/generations", `{"model":"gpt-image-1","prompt":"a cat","stream":true}`, ""},
		{"openai", "/v1/audio/speech", `{"model":"tts","input":"hi","stream":true,"messages":[]}`, ""},
		{"openai", "/v1/responses", `{"prompt":{"id":"p"},"input":"hi","stream":true}`, ""},
		{"openai", "/v1/responses", `{"prompt":"p","messages":[],"stream":true}`, ""},
		{"openai", "/v1/embeddings", `{"prompt":"p","messages":[],"stream":true}`, ""},
		{"openai", "/v1/something/else", `{"prompt":"p","messages":[],"stream":true}`, ""},
		{"openai", "/v1/chat/completions;x", `{"messages":[],"stream":true}`, ""},
		{"gemini", "/v1beta/models/m:streamGenerateContent", `{"contents":[],"messages":[],"stream":true}`, ""},
	} {
		s := newServer(t, fmt.Sprintf(`rules: [{name: tokens, key: '"all"', tokens: %s, limits: [1000000 per 24h fixed_window hold]}]`, c.preset), everythingTo(up))
		g := start(t, s)
		resp, err := http.Post("http://"+g.gateway+c.path, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		want := c.want
		if want == "" {
			want = c.body
		}
		if string(got) != "true "+want {
			t.Errorf("%s, %s, %s: %s", c.preset, c.path, c.body, got)
		}
	}
}

// Both presets settle by what their APIs say, whole or as a stream, through the gateway and in a
// program.
func TestTokensOfBothAPIs(t *testing.T) {
	for _, c := range []struct {
		preset, kind, body string
		want               int64
	}{
		{"openai", "application/json", `{"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`, 9 + 5*12},
		{"openai", "text/event-stream", "data: {\"choices\":[{}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12}}\n\ndata: [DONE]\n\n", 9 + 5*12},
		{"anthropic", "application/json", `{"usage":{"input_tokens":25,"output_tokens":15}}`, 25 + 5*15},
		{"anthropic", "text/event-stream", "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: message_delta\ndata: {\"usage\":{\"output_tokens\":15}}\n\n", 25 + 5*15},
	} {
		answers := func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", c.kind)
			fmt.Fprint(w, c.body)
		}
		for _, wrapped := range []bool{false, true} {
			var m stint.Memory
			s := newServer(t, fmt.Sprintf(`rules: [{name: tokens, key: '"all"', tokens: %s, limits: [1000000 per 24h fixed_window hold, 2 in_flight]}]`, c.preset), over(&m), everythingTo(upstream(t, answers)))
			url := "http://" + start(t, s).gateway
			if wrapped {
				h := httptest.NewServer(s.Wrap(http.HandlerFunc(answers)))
				defer h.Close()
				url = h.URL
			}
			resp, err := http.Post(url+"/v1/messages", "application/json", strings.NewReader(`{"messages":[{"content":"hello"}],"max_tokens":100,"stream":true}`))
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(got) != c.body {
				t.Errorf("%s: %s", c.preset, got)
			}
			wantHeld(t, s, &m, 0)
			if got := usedBy(t, s, &m); got != c.want {
				t.Errorf("%s, %s, wrapped %t: %d used, want %d", c.preset, c.kind, wrapped, got, c.want)
			}
		}
	}
}

// An answer of a model that says nothing of its usage costs what was held, or nothing, as unsettled
// says; but at least the input and what passed. Errors, and requests that ask no model, cost nothing.
func TestAnswersWithoutUsage(t *testing.T) {
	const chunk = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"
	stream := func(n int) string { return strings.Repeat(chunk, n) + "data: [DONE]\n\n" }
	for _, c := range []struct {
		about, method, body string // of the request
		kind, answer        string
		status              int
		keep, giveBack      int64
	}{
		{"an answer", "POST", `{"messages":[]}`, "application/json", `{"choices":[]}`, 200, 104, 19},
		{"a long answer", "POST", `{"messages":[]}`, "application/json", `{"choices":["` + strings.Repeat("text", 1000) + `"]}`, 200, 5024, 5024},
		{"not JSON", "POST", `{"messages":[]}`, "text/plain", "hello", 200, 104, 4},
		{"a short stream", "POST", `{"messages":[]}`, "text/event-stream", stream(3), 200, 104, 19},
		{"a long stream", "POST", `{"messages":[]}`, "text/event-stream", stream(30), 200, 154, 154},
		{"an error", "POST", `{"messages":[]}`, "application/json", `{"error":{}}`, 500, 0, 0},
		{"a list of models", "GET", "", "application/json", `{"data":[]}`, 200, 0, 0},
		{"an answer that was made before", "GET", "", "text/event-stream", stream(3), 200, 0, 0},
	} {
		for unsettled, want := range map[string]int64{"keep": c.keep, "give_back": c.giveBack} {
			var m stint.Memory
			s := newServer(t, `rules: [{name: tokens, key: '"all"', tokens: {api: openai, output_weight: 5, default_output: 20}, unsettled: `+unsettled+`, limits: [1000000 per 24h fixed_window hold, 2000000 per 24h sliding_log hold]}]`,
				over(&m), everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", c.kind)
					w.WriteHeader(c.status)
					fmt.Fprint(w, c.answer)
				})))
			r := httptest.NewRequest(c.method, "/v1/chat/completions", strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			s.Gateway().ServeHTTP(httptest.NewRecorder(), r)
			if got := usedBy(t, s, &m); got != want {
				t.Errorf("%s, %s: %d used, want %d", c.about, unsettled, got, want)
			}
			unknown := 0 // once for a request, whatever the number of its budgets
			if c.keep > 0 {
				unknown = 1
			}
			if line := fmt.Sprintf("stint_costs_unknown_total{rule=\"tokens\"} %d\n", unknown); !strings.Contains(metrics(s), line) {
				t.Errorf("%s, %s: no %s", c.about, unsettled, line)
			}
		}
	}
}

// If a cost cannot be computed from a response, the log says why, by which rule; and nothing if it can.
func TestFailedCostIsLogged(t *testing.T) {
	var log logged
	s := newServer(t, fmt.Sprintf(budget, `cost_after: "100 / (response.status - 200)",`), logTo(&log))
	status := 0
	h := s.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	for _, status = range []int{201, 200, 204} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		if text := log.taken(); strings.Contains(text, "the cost of a request cannot be computed") != (status == 200) || status == 200 && !strings.Contains(text, "tokens") {
			t.Errorf("%d: logged %q", status, text)
		}
	}
}

// A response that is the gateway's own says nothing of the cost: it has no bytes of the upstream.
func TestOwnResponseCostsNothing(t *testing.T) {
	var m stint.Memory
	s := newServer(t, fmt.Sprintf(budget, "cost_after: response.bytes + response.status,"), over(&m), everythingTo(upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/silent" {
			panic(http.ErrAbortHandler)
		}
	})))
	for path, want := range map[string]int64{"/silent": 0, "/": 200} {
		w := httptest.NewRecorder()
		s.Gateway().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if got := usedBy(t, s, &m); got != want || (w.Code == 502) != (path == "/silent") {
			t.Errorf("%s: %d, %d used, want %d", path, w.Code, got, want)
		}
		if err := stint.NewLimiter(&m).Reset(t.Context(), "all", s.Rules().Rules[0].Limits[0]); err != nil {
			t.Fatal(err)
		}
	}
}

// Each rule finds its own cost in a response, whatever the others look for.
func TestCostsOfSeveralRules(t *testing.T) {
	s := newServer(t, `
rules:
  - {name: rows, key: '"all"', cost: "10", cost_after: response.json.usage.rows, limits: [1000 per 24h fixed_window hold, 9 in_flight]}
  - {name: rate, key: '"all"', limits: [100 per 24h]}
  - {name: bytes, key: '"all"', cost: "10", cost_after: response.json.usage.bytes, limits: [1000 per 24h fixed_window hold]}
`, everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"usage":{"bytes":300,"rows":4}}`)
	})))
	s.Gateway().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	o := operator{t, s.Admin()}
	o.want(200, "POST", "/v1/keys/show", `{"rule":"rows","key":"all"}`, `"used":4,"remaining":996`)
	o.want(200, "POST", "/v1/keys/show", `{"rule":"bytes","key":"all"}`, `"used":300,"remaining":700`)
}

// Each budget is charged what its own rule says, beside a rule without limits, too.
func TestBudgetsBesideAWatch(t *testing.T) {
	for _, watch := range []string{"", "  - {name: watch, key: client.ip, penalty: {on_status: [401], ban_after: 3, ban_for: 1m}}\n"} {
		s := newServer(t, "rules:\n"+watch+`
  - {name: a, key: '"all"', cost_after: 'int(response.status)', limits: [1000 per 1h fixed_window hold]}
  - {name: b, key: '"all"', cost_after: 'int(response.status) + 100', limits: [1000 per 1h fixed_window hold]}
`)
		s.Wrap(who("up")).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://example.com/", nil))
		if got := check(s, `{"cost":0}`).Body.String(); !strings.Contains(got, `"remaining":800,`) || !strings.Contains(got, `"remaining":700,`) {
			t.Errorf("with %q: %s", watch, got)
		}
	}
}
