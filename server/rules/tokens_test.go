package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// tokens is a rule with a preset. Its budget is large, so that nothing is capped.
func tokens(t testing.TB, preset string) *rules.Set {
	t.Helper()
	return parse(t, "rules: [{name: r, key: client.ip, tokens: "+preset+", limits: [1000000 per 1m fixed_window hold]}]")
}

// The estimate is the length of the body by 4, and 5 times the output that the request allows.
func TestTokensEstimate(t *testing.T) {
	for _, c := range []struct {
		api, path, fields string
		output            int64
	}{
		{"openai", "", ``, 1024},
		{"openai", "", `, "max_tokens": 10`, 10},
		{"openai", "", `, "max_tokens": 10, "max_completion_tokens": 20`, 20},
		{"openai", "", `, "max_output_tokens": 7`, 7},
		{"openai", "", `, "max_tokens": null`, 1024},
		{"openai", "", `, "max_tokens": -10`, 1024},
		{"openai", "", `, "max_tokens": "10"`, 1024},
		{"openai", "", `, "max_tokens": 10.0`, 10},
		{"openai", "", `, "max_tokens": 10, "n": 3`, 30},
		{"openai", "", `, "n": 2`, 2048},
		{"openai", "/v1/embeddings", ``, 0},
		{"anthropic", "/v1/messages", `, "max_tokens": 10, "n": 3`, 10},
		{"anthropic", "/v1/messages", `, "max_completion_tokens": 10`, 1024},
	} {
		text := `{"messages": [{"role": "user", "content": "` + strings.Repeat("a", 400) + `"}]` + c.fields + `}`
		in := posted(t, text)
		if c.path != "" {
			in.Request.Path = c.path
		}
		for settings, want := range map[string]int64{
			"":                                       int64(len(text)+3)/4 + 5*c.output,
			", output_weight: 1, bytes_per_token: 2": int64(len(text)+1)/2 + c.output,
		} {
			if got := asks(t, tokens(t, "{api: "+c.api+settings+"}"), in); got != fmt.Sprintf("1000000 per 1m fixed_window hold: %d", want) {
				t.Errorf("%s, %s%s%s: got %s, want %d", c.api, c.path, c.fields, settings, got, want)
			}
		}
	}
	if got, want := asks(t, tokens(t, "{api: openai, default_output: 100}"), posted(t, "[1, 2]")), "1000000 per 1m fixed_window hold: 502"; got != want {
		t.Errorf("a body that is no object: got %s, want %s", got, want)
	}
	if got, want := asks(t, tokens(t, "openai"), posted(t, "")), "1000000 per 1m fixed_window hold: peek"; got != want {
		t.Errorf("no body: got %s, want %s", got, want)
	}
}

// A body that cannot be read is estimated by its length; one that is not there by the default, or by
// what the caller says.
func TestTokensWithoutBody(t *testing.T) {
	s := tokens(t, "openai")
	unreadable := func(n int64) *rules.Input {
		in := posted(t, "")
		in.Request.Body = &body{length: n, err: fmt.Errorf("%w: too long", rules.ErrUnreadable)}
		return in
	}
	check := func(cost int64) *rules.Input {
		return &rules.Input{Client: addr("192.0.2.1"), Cost: cost}
	}
	door := posted(t, "")
	door.Request.Body = nil
	for _, c := range []struct {
		in   *rules.Input
		want string
	}{
		{unreadable(4000), fmt.Sprint(1000 + 5*1024)},
		{unreadable(-1), fmt.Sprint(1<<18 + 5*1024)},
		{unreadable(1 << 40), "1000000"}, // a guess of ours, and capped
		{check(1), fmt.Sprint(5 * 1024)},
		{check(77), "77"},
		{check(0), "peek"},
		{check(2_000_000), "2000000"}, // what the caller says is not capped
		{door, fmt.Sprint(5 * 1024)},
	} {
		if got, want := asks(t, s, c.in), "1000000 per 1m fixed_window hold: "+c.want; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got, want := asks(t, tokens(t, "openai, unreadable_body: 5000"), unreadable(4000)), "1000000 per 1m fixed_window hold: 5000"; got != want {
		t.Errorf("a rule that says what such a body costs: got %s, want %s", got, want)
	}
}

// A request that asks for more output than the budget is refused for good; a long prompt is capped.
func TestTokensAskedFor(t *testing.T) {
	s := parse(t, "rules: [{name: r, key: client.ip, tokens: openai, max_hold: 50%, limits: [1000 per 1m fixed_window hold]}]")
	long := strings.Repeat("a", 1<<16)
	for body, want := range map[string]string{
		`{"max_tokens": 201}`:                              "1005",
		`{"max_tokens": 200}`:                              "500",
		`{"max_tokens": 100, "n": 3}`:                      "1500",
		`{"max_tokens": 9223372036854775807, "n": 3}`:      fmt.Sprint(1 << 52),
		`{"max_tokens": 1e18}`:                             fmt.Sprint(1 << 52),
		`{"max_tokens": 1e999}`:                            fmt.Sprint(1 << 52),
		`{"max_completion_tokens": 1, "max_tokens": 300}`:  "1500", // the largest: servers differ in which they take
		`{"max_tokens": 10, "prompt": "` + long + `"}`:     "500",
		`{"prompt": "hello"}`:                              "500",
		`{"max_tokens": 10, "prompt": "hello, you there"}`: "62",
	} {
		if got, want := asks(t, s, posted(t, body)), "1000 per 1m fixed_window hold: "+want; got != want {
			t.Errorf("%.60s: got %s, want %s", body, got, want)
		}
	}
}

func TestTokensUsed(t *testing.T) {
	for _, c := range []struct {
		api    string
		status int
		body   string
		want   string
	}{
		{"openai", 200, `{"usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}}`, "200"},
		{"openai", 200, `{"usage": {"input_tokens": 100, "output_tokens": 20}}`, "200"},
		{"openai", 200, `{"response": {"usage": {"input_tokens": 100, "output_tokens": 20}}}`, "200"},
		{"openai", 200, `{"usage": {"prompt_tokens": 100, "total_tokens": 100}}`, "100"},
		{"openai", 200, `{"usage": {"completion_tokens": 20}}`, "100"},
		{"openai", 200, `{"usage": null}`, "unknown"},
		{"openai", 200, `{"usage": {"prompt_tokens": "100", "completion_tokens": -1}}`, "unknown"},
		{"openai", 200, ``, "unknown"},
		{"openai", 0, ``, "unknown"},
		{"openai", 429, `{"error": {}}`, "0"},
		{"openai", 502, ``, "0"},
		{"openai", 400, `{"usage": {"prompt_tokens": 100}}`, "100"},
		{"{api: openai, output_weight: 1}", 200, `{"usage": {"prompt_tokens": 100, "completion_tokens": 20}}`, "120"},
		{"anthropic", 200, `{"usage": {"input_tokens": 100, "output_tokens": 20}}`, "200"},
		{"anthropic", 200, `{"usage": {"input_tokens": 100, "output_tokens": 20, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 1000}}`, "207"},
		// The last values of a stream: the input came with the first event, the output with the last.
		{"anthropic", 200, `{"message": {"usage": {"input_tokens": 100, "output_tokens": 1, "cache_creation_input_tokens": 7}}, "usage": {"output_tokens": 20}}`, "207"},
		// The client left after the first event.
		{"anthropic", 200, `{"message": {"usage": {"input_tokens": 100, "output_tokens": 3}}}`, "115"},
		{"anthropic", 200, `{"message": {"usage": {"input_tokens": 100, "output_tokens": 3}, "text": "` + strings.Repeat("x", 5000) + `"}}`, "605"},
		{"anthropic", 529, `{"type": "error"}`, "0"},
		{"openai", 200, `{"usage": {"prompt_tokens": 9223372036854775807, "completion_tokens": 9223372036854775807}}`, fmt.Sprint(1 << 53)},
	} {
		r := tokens(t, c.api).Rules[0]
		if got := after(r, answered(t, r, c.status, c.body)); got != c.want {
			t.Errorf("%s, %d %.150s: got %s, want %s", c.api, c.status, c.body, got, c.want)
		}
	}
}

// An expression in the file stands in place of the preset's own.
func TestTokensAndExpressions(t *testing.T) {
	r := parse(t, `rules: [{name: r, key: client.ip, tokens: openai, cost: 10, cost_after: response.json.usage.total_tokens, limits: [1000 per 1m fixed_window hold]}]`)
	if got, want := asks(t, r, posted(t, `{"max_tokens": 50}`)), "1000 per 1m fixed_window hold: 10"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := after(r.Rules[0], answered(t, r.Rules[0], 200, `{"usage": {"prompt_tokens": 100, "total_tokens": 120}}`)); got != "120" {
		t.Errorf("got %s", got)
	}
}

// Media count by their tokens, and what remains by its length.
func TestTokensOfMedia(t *testing.T) {
	in := posted(t, `{"max_tokens": 10}`)
	in.Request.Body.(*body).media = 1600
	if got, want := asks(t, tokens(t, "openai"), in), "1000000 per 1m fixed_window hold: 1655"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	in.Request.Body.(*body).length, in.Request.Body.(*body).value = 0, nil // a form
	if got, want := asks(t, tokens(t, "openai"), in), "1000000 per 1m fixed_window hold: 6720"; got != want {
		t.Errorf("no text: got %s, want %s", got, want)
	}
}

// The least that a request did cost is its input and what passed; where less was held than the input, it
// is what was held, or what passed.
func TestLeastCost(t *testing.T) {
	r := tokens(t, "openai").Rules[0]
	for _, c := range []struct {
		prompt                 rules.Prompt
		unzipped, events, held int64
		want                   int64
	}{
		{rules.Prompt{Text: 400, Media: 1600}, 0, 0, 5000, 1700},
		{rules.Prompt{Text: 400, Media: 1600}, 1000, 10, 5000, 1700 + 5*20},
		{rules.Prompt{Text: 400, Media: 1600}, 1000, 0, 5000, 1700 + 5*250},
		{rules.Prompt{Text: 400, Media: 1600}, 0, 0, 1000, 1000},
		{rules.Prompt{Text: 400, Media: 1600}, 1000, 10, 1000, 1000},
		{rules.Prompt{Text: 400, Media: 1600}, 1000, 900, 1000, 4500},
		{rules.Prompt{Text: -1}, 0, 0, 1000, 1000},
		{rules.Prompt{Text: -1}, 0, 0, 1 << 20, 1 << 18},
		{rules.Prompt{}, 0, 0, 0, 0},
	} {
		if got := r.LeastCost(&rules.Response{Prompt: c.prompt, Unzipped: c.unzipped, Events: c.events}, c.held); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
	for path, want := range map[string]int64{"/v1/embeddings": 100, "/v1beta/models/m:embedContent": 100, "/v1/images/generations": 100, "/v1/chat/completions": 100 + 5*1000} {
		e := rules.EndpointOf(&rules.Request{Method: "POST", Path: path})
		if got := r.LeastCost(&rules.Response{Endpoint: e, Prompt: rules.Prompt{Text: 400}, Unzipped: 4000}, 5000); got != want {
			t.Errorf("%s: got %d, want %d", path, got, want)
		}
	}
	r = tokens(t, "openai, cost_after: response.json.used").Rules[0]
	if got := r.LeastCost(&rules.Response{Prompt: rules.Prompt{Text: 400}, Unzipped: 1000}, 5000); got != 0 {
		t.Errorf("by an expression: got %d", got)
	}
}
