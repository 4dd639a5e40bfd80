package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server/adminapi"
)

const llmExample = "../../examples/llm/"

// llm is examples/llm: the gateway with the example's rules, in front of the example's model.
type llm struct {
	*testing.T
	*served
}

// modelDir is where buildModel has built the model. TestMain removes it.
var modelDir string

// buildModel builds the model, once for all tests.
var buildModel = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "stint-llm-")
	if err != nil {
		return "", err
	}
	modelDir = dir
	path := filepath.Join(dir, "llm")
	if out, err := exec.Command("go", "build", "-o", path, llmExample).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// startLLM starts the example, with pairs of texts of its rules replaced.
func startLLM(t *testing.T, replaced ...string) *llm {
	t.Helper()
	program, err := buildModel()
	if err != nil {
		t.Fatal(err)
	}
	model := launch(t, exec.Command(program, "-listen", "127.0.0.1:0", "-pace", "1ms"))
	_, address, ok := strings.Cut(<-model.log.lines, "listening on ")
	if !ok {
		t.Fatalf("the model says %s", model.log)
	}
	text, err := os.ReadFile(llmExample + "stint.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// No window ends during a test.
	await.Hour(time.Minute)
	replaced = append([]string{"http://127.0.0.1:9100", address, "200000 per 1m fixed_window", "200000 per 1h fixed_window"}, replaced...)
	config := string(text)
	for i := 0; i < len(replaced); i += 2 {
		if !strings.Contains(config, replaced[i]) {
			t.Fatalf("the example does not have %q", replaced[i])
		}
		config = strings.ReplaceAll(config, replaced[i], replaced[i+1])
	}
	return &llm{t, serving(t, "--config", configured(t, config))}
}

// api is one of the two wire forms.
type api struct{ rule, path, header, before string }

var (
	openAIForm    = api{"openai", "/v1/chat/completions", "Authorization", "Bearer "}
	anthropicForm = api{"anthropic", "/v1/messages", "X-Api-Key", ""}
	bothForms     = []api{openAIForm, anthropicForm}
)

// ask sends a request. The caller closes the response's body.
func (l *llm) ask(form api, key, body string) *http.Response {
	l.Helper()
	r, err := http.NewRequestWithContext(l.Context(), "POST", l.gateway+form.path, strings.NewReader(body))
	if err != nil {
		l.Fatal(err)
	}
	r.Header.Set(form.header, form.before+key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		l.Fatal(err)
	}
	return resp
}

// counting is the body of a request to count so far, with more fields.
func counting(to int, fields string) string {
	return fmt.Sprintf(`{"model":"counter",%s"messages":[{"role":"user","content":"count to %d"}]}`, fields, to)
}

// state is how a key stands under the limits of a rule, in their order.
func (l *llm) state(form api, key string) []adminapi.KeyLimit {
	l.Helper()
	code, out, errs := call("", "key", "show", "--rule", form.rule, "--key", digest(key), "--json", "--admin", l.admin)
	var state adminapi.KeyState
	if err := json.Unmarshal([]byte(out), &state); code != 0 || err != nil || len(state.Limits) != 4 {
		l.Fatalf("key show: exit %d, %v, %s%s", code, err, out, errs)
	}
	return state.Limits
}

func digest(key string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
}

// used checks what is used by a key of requests and of tokens, of which nothing may be held.
func (l *llm) used(form api, key string, tokens int64) {
	l.Helper()
	s := l.state(form, key)
	if s[1].Used != tokens || s[2].Used != tokens || s[1].Held != 0 || s[2].Held != 0 || s[3].Held != 0 {
		l.Errorf("%s, %s: used %d and %d tokens, want %d; held %d, %d, %d, want none", form.rule, key, s[1].Used, s[2].Used, tokens, s[1].Held, s[2].Held, s[3].Held)
	}
}

// awaitHeld waits until so many requests of a key are in flight.
func (l *llm) awaitHeld(form api, key string, n int64) []adminapi.KeyLimit {
	l.Helper()
	var s []adminapi.KeyLimit
	if !await.So(func() bool { s = l.state(form, key); return s[3].Held == n }) {
		l.Fatalf("%s: %d are in flight, want %d", key, s[3].Held, n)
	}
	return s
}

// What the API says that it used is what is charged, whole or streamed.
func TestLLMSettles(t *testing.T) {
	t.Parallel()
	l := startLLM(t)
	for _, form := range bothForms {
		for i, c := range []struct {
			to            int
			fields        string
			input, output int64
			estimate      int64 // max_tokens and the body
		}{
			{to: 12, fields: `"max_tokens":100,`, input: 3, output: 12, estimate: 5*100 + 23},
			{to: 12, fields: `"max_tokens":100,"stream":true,`, input: 3, output: 12, estimate: 5*100 + 26},
			{to: 50, fields: `"max_tokens":7,`, input: 3, output: 7, estimate: 5*7 + 22},
			{to: 50, fields: `"max_tokens":7,"stream":true,`, input: 3, output: 7, estimate: 5*7 + 26},
			{to: 1100, fields: ``, input: 3, output: 1100, estimate: 5*1024 + 19}, // more than was held
		} {
			key := fmt.Sprint("settles", i)
			resp := l.ask(form, key, counting(c.to, c.fields))
			body := bodyOf(t, resp)
			l.used(form, key, c.input+5*c.output)
			for header, want := range map[string]int64{
				"X-Ratelimit-Limit-Requests": 60, "X-Ratelimit-Remaining-Requests": 59,
				"X-Ratelimit-Limit-Tokens": 200_000, "X-Ratelimit-Remaining-Tokens": 200_000 - c.estimate,
				"Anthropic-Ratelimit-Requests-Limit": 60, "Anthropic-Ratelimit-Requests-Remaining": 59,
				"Anthropic-Ratelimit-Tokens-Limit": 200_000, "Anthropic-Ratelimit-Tokens-Remaining": 200_000 - c.estimate,
			} {
				if got := resp.Header.Get(header); got != fmt.Sprint(want) {
					t.Errorf("%s, %s: %s %s, want %d", form.rule, c.fields, header, got, want)
				}
			}
			if !strings.Contains(body, fmt.Sprintf(`_tokens":%d`, c.output)) {
				t.Errorf("%s: the client gets no usage of %d: %s", form.rule, c.output, body)
			}
		}
	}
}

// The stream of an OpenAI client has the usage in one more event, whatever the client has said.
func TestLLMIncludeUsage(t *testing.T) {
	t.Parallel()
	l := startLLM(t)
	for i, options := range []string{``, `"stream_options":{"include_usage":true},`, `"stream_options":{"include_usage":false},`, `"stream_options":null,`, `"stream_options":{},`} {
		key := fmt.Sprint("include", i)
		body := bodyOf(t, l.ask(openAIForm, key, counting(12, `"max_tokens":100,"stream":true,`+options)))
		if got := strings.Count(body, `"choices":[],`); got != 1 || !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("%s: %d events with the usage, want 1\n%s", options, got, body)
		}
		l.used(openAIForm, key, 3+5*12)
	}
}

// When a client leaves a stream, its place is free, and what has passed is charged: of Anthropic's
// streams by their length, of OpenAI's what was held.
func TestLLMClientLeaves(t *testing.T) {
	t.Parallel()
	l := startLLM(t)
	const most = 15_000
	for _, form := range bothForms {
		body := counting(100_000, fmt.Sprintf(`"max_tokens":%d,"stream":true,`, most))
		resp := l.ask(form, "leaves", body)
		var passed int
		for s := bufio.NewScanner(resp.Body); passed < 50*200 && s.Scan(); {
			passed += len(s.Bytes()) + 1
		}
		if held := l.state(form, "leaves"); held[3].Held != 1 || held[1].Held != 5*most+int64(len(body)+3)/4 || held[2].Held != held[1].Held {
			t.Errorf("%s: held %d tokens, %d requests", form.rule, held[1].Held, held[3].Held)
		}
		resp.Body.Close()
		s := l.awaitHeld(form, "leaves", 0)
		least, atMost := int64(3+5*passed/50), int64(5*most-1)
		if form == openAIForm {
			least, atMost = 5*most+int64(len(body)+3)/4, 5*most+int64(len(body)+3)/4
		}
		if s[1].Used < least || s[1].Used > atMost || s[2].Used != s[1].Used || s[1].Held != 0 {
			t.Errorf("%s: after %d bytes, %d and %d tokens are used, want %d to %d", form.rule, passed, s[1].Used, s[2].Used, least, atMost)
		}
	}
}

// Four requests of a key run at once. A fifth is refused with a hint, and takes nothing.
func TestLLMFifthInFlight(t *testing.T) {
	t.Parallel()
	l := startLLM(t)
	for _, form := range bothForms {
		var running []io.Closer
		for range 4 {
			resp := l.ask(form, "fifth", counting(100_000, `"max_tokens":9500,"stream":true,`))
			defer resp.Body.Close()
			running = append(running, resp.Body)
		}
		before := l.state(form, "fifth")
		resp := l.ask(form, "fifth", counting(2, `"max_tokens":100,`))
		body := bodyOf(t, resp)
		ms, _ := strconv.Atoi(resp.Header.Get("Retry-After-Ms"))
		if resp.StatusCode != 429 || ms < 1000 || ms > 2000 || resp.Header.Get("X-Should-Retry") != "" || !strings.Contains(body, "Too many requests are in flight. The limit is 4 in_flight.") {
			t.Errorf("%s: %s %v %s", form.rule, resp.Status, resp.Header, body)
		}
		after := l.state(form, "fifth")
		if after[1].Held != before[1].Held || after[3].Held != 4 || after[0].Used > before[0].Used {
			t.Errorf("%s: the refused request took something: %+v, before %+v", form.rule, after, before)
		}
		if resp := l.ask(form, "other", counting(2, `"max_tokens":100,`)); resp.StatusCode != 200 {
			t.Errorf("%s: another key: %s %s", form.rule, resp.Status, bodyOf(t, resp))
		} else {
			resp.Body.Close()
		}
		running[0].Close()
		l.awaitHeld(form, "fifth", 3)
		if resp := l.ask(form, "fifth", counting(2, `"max_tokens":100,`)); resp.StatusCode != 200 {
			t.Errorf("%s: after one has left: %s %s", form.rule, resp.Status, bodyOf(t, resp))
		} else {
			resp.Body.Close()
		}
	}
}

// An estimate of ours holds at most half of each budget. What the client itself asks for beyond the
// budget is refused for ever, and half of it is not.
func TestLLMEstimates(t *testing.T) {
	t.Parallel()
	l := startLLM(t)
	for _, form := range bothForms {
		prompt := fmt.Sprintf(`{"max_tokens":20000,"stream":true,"messages":[{"role":"user","content":%q}]}`, strings.Repeat("x", 900_000)+" 300")
		resp := l.ask(form, "long", prompt)
		if held := l.state(form, "long"); held[1].Held != 100_000 || held[2].Held != 5*20_000+int64(len(prompt)+3)/4 {
			t.Errorf("%s: held %d and %d, want half of the smaller budget, and the estimate", form.rule, held[1].Held, held[2].Held)
		}
		_ = bodyOf(t, resp)
		l.used(form, "long", 2+5*300)

		resp = l.ask(form, "never", counting(2, `"max_tokens":40001,`))
		body := bodyOf(t, resp)
		if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "" || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(body, "This request costs more than the limit allows at once.") {
			t.Errorf("%s: %s %v %s", form.rule, resp.Status, resp.Header, body)
		}
		l.used(form, "never", 0)
		_ = bodyOf(t, l.ask(form, "never", counting(2, `"max_tokens":40000,`)))
		l.used(form, "never", 3+5*2)
	}
}

// A month's budget that is used up is there again on the first of the next month.
func TestLLMMonth(t *testing.T) {
	t.Parallel()
	l := startLLM(t, "5000000 per month", "3000 per month")
	next := func() time.Time {
		now := time.Now().UTC()
		return time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	}
	for _, form := range bothForms {
		end := next()
		_ = bodyOf(t, l.ask(form, "month", counting(599, `"max_tokens":599,`)))
		resp := l.ask(form, "month", counting(2, `"max_tokens":2,`))
		body := bodyOf(t, resp)
		left := time.Until(end)
		if next() != end {
			t.Skip("a month has ended during the test")
		}
		retry, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		off := time.Duration(retry)*time.Second - left
		if resp.StatusCode != 429 || off < 0 || off > time.Minute || !strings.Contains(body, "3000 per month hold") || (resp.Header.Get("X-Should-Retry") == "false") != (retry > 60) {
			t.Errorf("%s: %s, retry after %ds, and the month ends in %v: %v %s", form.rule, resp.Status, retry, left, resp.Header, body)
		}
		l.used(form, "month", 3+5*599)
	}
}

// A list of models costs no tokens. Without a key, the address is limited, and the API refuses.
func TestLLMModels(t *testing.T) {
	t.Parallel()
	l := startLLM(t)
	_ = bodyOf(t, l.ask(openAIForm, "models", counting(2, `"max_tokens":100,`)))
	before := l.state(openAIForm, "models")
	for range 3 {
		if got := get(t, "GET", l.gateway+"/v1/models", "Authorization", "Bearer models"); got != "200 " {
			t.Error(got)
		}
	}
	if after := l.state(openAIForm, "models"); after[1].Used != before[1].Used || after[2].Used != before[2].Used || after[0].Used <= before[0].Used {
		t.Errorf("%+v, before %+v", after, before)
	}
	if metrics := bodyOf(t, must(http.Get(l.check+"/metrics"))); !strings.Contains(metrics, `stint_costs_unknown_total{rule="openai"} 0`) {
		t.Error("the cost of a list of models is called unknown")
	}
	if got := get(t, "GET", l.gateway+"/v1/models", "Authorization", "Bearer models", "X-Api-Key", "other"); got != "400 " {
		t.Errorf("with two keys: %s", got)
	}
	resp := must(http.Post(l.gateway+"/v1/chat/completions", "application/json", strings.NewReader(counting(2, ""))))
	if body := bodyOf(t, resp); resp.StatusCode != 401 || resp.Header.Get("X-Ratelimit-Remaining-Requests") != "59" {
		t.Errorf("without a key: %s %v %s", resp.Status, resp.Header, body)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The commands of the README do what it says.
func TestLLMReadme(t *testing.T) {
	t.Parallel()
	l := startLLM(t)
	var commands []string
	for _, b := range codeBlocks(readText(t, llmExample+"README.md")) {
		if b.is("sh") {
			commands = append(commands, b.body)
		}
	}
	if len(commands) != 3 || commands[0] != "go run ./examples/llm\ngo run ./cmd/stint serve --config examples/llm/stint.yaml\n" {
		t.Fatalf("commands: %q", commands)
	}
	quoted := regexp.MustCompile(`-([Hd]) '([^']*)'`)
	var curls int
	for line := range strings.Lines(commands[1] + commands[2]) {
		path, isCurl := strings.CutPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "curl -i "), "curl -N "), "localhost:8080")
		if !isCurl {
			continue
		}
		curls++
		path, _, _ = strings.Cut(path, " ")
		r := must(http.NewRequest("POST", l.gateway+path, nil))
		for _, q := range quoted.FindAllStringSubmatch(line, -1) {
			if q[1] == "d" {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(q[2])), int64(len(q[2]))
				continue
			}
			name, value, _ := strings.Cut(q[2], ": ")
			r.Header.Set(name, value)
		}
		resp := must(http.DefaultClient.Do(r))
		if body := bodyOf(t, resp); resp.StatusCode != 200 || !strings.Contains(body, "12 ") {
			t.Errorf("%s%s %s", line, resp.Status, body)
		}
		if left := resp.Header.Get("X-Ratelimit-Remaining-Tokens"); path == openAIForm.path && left != fmt.Sprint(200_000-523) {
			t.Errorf("%s tokens are left", left)
		}
	}
	if curls != 2 || !strings.Contains(commands[1], `key show --rule openai --key "$(printf key-1 | sha256sum | cut -d' ' -f1)"`) {
		t.Errorf("%d requests: %s", curls, commands[1])
	}
	l.used(openAIForm, "key-1", 63)
	l.used(anthropicForm, "key-1", 63)
}

// clientSaw is what a client of OpenAI or Anthropic got for one request, which it may have sent several
// times.
type clientSaw struct {
	Error, Message string
	Status         int
	Code, Type     string
	Statuses       []int
	Hints          []float64
	Bytes          int64 // of the request's body
	Early          bool
	Value          json.RawMessage
}

// play plays a story of clients.mjs.
func (l *llm) play(story string, into any) {
	l.Helper()
	const required = "STINT_REQUIRE_CLIENTS"
	_, errNode := exec.LookPath("node")
	_, err := os.Stat(llmExample + "testdata/node_modules/openai")
	if errNode != nil || err != nil {
		if os.Getenv(required) != "" {
			l.Fatalf("%s is set, and the clients of OpenAI and Anthropic are not installed: scripts/get node, scripts/clients", required)
		}
		l.Skip("the clients of OpenAI and Anthropic are not installed: scripts/get node, scripts/clients")
	}
	// A client that sleeps for as long as it is told may sleep for days.
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "node", "testdata/clients.mjs", l.gateway, story)
	c.Dir = llmExample
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		l.Fatalf("%v\n%s%s", err, out, errs.String())
	}
}

// The clients of OpenAI and Anthropic read the usage and the limits through the gateway.
func TestLLMClientsReadUsage(t *testing.T) {
	t.Parallel()
	l := startLLM(t)
	var got struct {
		OpenAI, Streamed, Helper struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Total      int `json:"total_tokens"`
		}
		Anthropic, StreamedMessage struct {
			Input  int `json:"input_tokens"`
			Output int `json:"output_tokens"`
		}
		Headers, Resets map[string]string
		Chunks, Extra   int
		Text            string
		Models          []string
	}
	l.play("usage", &got)
	if u := got.OpenAI; u.Prompt != 3 || u.Completion != 12 || u.Total != 15 || got.Streamed != u || got.Helper != u {
		t.Errorf("openai: %+v, %+v, %+v", got.OpenAI, got.Streamed, got.Helper)
	}
	if u := got.Anthropic; u.Input != 3 || u.Output != 12 || got.StreamedMessage != u {
		t.Errorf("anthropic: %+v, %+v", got.Anthropic, got.StreamedMessage)
	}
	if got.Chunks != 14 || got.Extra != 1 || got.Text != "1 2 3 4 5 6 7 8 9 10 11 12 " || !slices.Equal(got.Models, []string{"counter"}) {
		t.Errorf("%d and %d events, %q, models %q", got.Chunks, got.Extra, got.Text, got.Models)
	}
	for name, want := range map[string]string{
		"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59", "x-ratelimit-limit-tokens": "200000", "x-ratelimit-remaining-tokens": "199477",
		"anthropic-ratelimit-requests-limit": "60", "anthropic-ratelimit-requests-remaining": "59", "anthropic-ratelimit-tokens-limit": "200000", "anthropic-ratelimit-tokens-remaining": "199477",
	} {
		if got.Headers[name] != want {
			t.Errorf("%s: %q, want %s", name, got.Headers[name], want)
		}
	}
	for _, unit := range []string{"requests", "tokens"} {
		if d, err := time.ParseDuration(got.Resets["x-ratelimit-reset-"+unit]); err != nil || d <= 0 || d > time.Hour {
			t.Errorf("reset of %s: %v", unit, got.Resets)
		}
		if _, err := time.Parse(time.RFC3339, got.Resets["anthropic-ratelimit-"+unit+"-reset"]); err != nil {
			t.Error(err)
		}
	}
	l.used(openAIForm, "usage", 3*63)
	l.used(anthropicForm, "usage", 2*63)
}

// The clients report why they were refused, try again when they are told to, and not where no wait
// helps or it would take days.
func TestLLMClientsRetry(t *testing.T) {
	t.Parallel()
	l := startLLM(t)
	var got map[string]clientSaw
	l.play("full", &got)
	for _, name := range []string{"openai", "anthropic"} {
		once := got[name+" at once"]
		if once.Error != "RateLimitError" || !slices.Equal(once.Statuses, []int{429}) || once.Type != "rate_limit_error" || !strings.Contains(once.Message, "Too many requests are in flight. The limit is 4 in_flight.") {
			t.Errorf("%s, refused: %+v", name, once)
		}
		if name == "openai" && once.Code != "rate_limit_exceeded" {
			t.Errorf("code %q", once.Code)
		}
		again := got[name]
		last := len(again.Statuses) - 1
		if last < 1 || again.Statuses[last] != 200 || again.Early || again.Hints[0] < 1000 || again.Hints[0] > 2000 || !bytes.Contains(again.Value, []byte(`_tokens":2`)) {
			t.Errorf("%s, again: %+v", name, again)
		}
	}
	got = nil
	l.play("never", &got)
	month := startLLM(t, "5000000 per month", "3000 per month")
	var later map[string]clientSaw
	month.play("month", &later)
	for _, name := range []string{"openai", "anthropic"} {
		if s := got[name]; s.Error != "RateLimitError" || !slices.Equal(s.Statuses, []int{429}) || !strings.Contains(s.Message, "This request costs more than the limit allows at once.") {
			t.Errorf("%s, never: %+v", name, s)
		}
		if s := later[name]; s.Error != "RateLimitError" || !slices.Equal(s.Statuses, []int{429}) || !strings.Contains(s.Message, "3000 per month hold") {
			t.Errorf("%s, month: %+v", name, s)
		}
	}
}
