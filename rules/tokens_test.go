package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint/rules"
)

// tokens is a rule with a preset. Its budget is large, so that nothing is capped.
func tokens(t testing.TB, preset string) *rules.Set {
	t.Helper()
	return parse(t, "rules: [{name: r, key: client.ip, tokens: "+preset+", limits: [1000000 per 1m fixed_window hold]}]")
}

// The estimate is the prompt's bytes by 4, and 5 times the output that the request allows.
func TestTokensEstimate(t *testing.T) {
	text := strings.Repeat("a", 400)
	messages := `"messages": [{"role": "user", "content": "` + text + `"}]` // 4+4+7+400 bytes: 104 tokens
	for _, c := range []struct {
		api, path, body string
		want            int64
	}{
		{"openai", "", `{` + messages + `}`, 104 + 5*1024},
		{"openai", "", `{` + messages + `, "max_tokens": 10}`, 104 + 50},
		{"openai", "", `{` + messages + `, "max_tokens": 10, "max_completion_tokens": 20}`, 104 + 100},
		{"openai", "", `{` + messages + `, "max_tokens": null}`, 104 + 5*1024},
		{"openai", "", `{` + messages + `, "max_tokens": -10}`, 104 + 5*1024},
		{"openai", "", `{` + messages + `, "max_tokens": "10"}`, 104 + 5*1024},
		{"openai", "", `{` + messages + `, "max_tokens": 10, "n": 3}`, 104 + 150},
		{"openai", "", `{` + messages + `, "n": 2}`, 104 + 2*5*1024},
		{"openai", "/v1/responses", `{"input": "` + text + `", "max_output_tokens": 7}`, 100 + 35},
		{"openai", "/v1/completions", `{"prompt": ["` + text + `", "abcd"], "max_tokens": 1}`, 101 + 5},
		{"openai", "/v1/embeddings", `{"input": "` + text + `"}`, 100},
		{"openai", "", `{"messages": [{"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,` + strings.Repeat("A", 1<<16) + `"}}]}], "max_tokens": 1}`, (7+4+9+9+3+4096+3)/4 + 5},
		{"openai", "", `[]`, 5 * 1024},
		{"openai", "", ``, 0},
		{"anthropic", "/v1/messages", `{` + messages + `, "max_tokens": 10}`, 104 + 50},
		{"anthropic", "/v1/messages", `{` + messages + `, "max_completion_tokens": 10}`, 104 + 5*1024},
		{"anthropic", "/v1/messages", `{` + messages + `, "system": "abcd", "max_tokens": 10}`, 105 + 50},
		{"anthropic", "/v1/messages", `{"messages": [{"source": {"type": "base64", "data": "` + strings.Repeat("A", 1<<16) + `"}}], "max_tokens": 1}`, (6+4+6+4+4096+3)/4 + 5},
		{"{api: openai, default_output: 100, output_weight: 1, bytes_per_token: 2}", "", `{` + messages + `}`, 208 + 100},
	} {
		in := posted(t, c.body)
		if c.path != "" {
			in.Request.Path = c.path
		}
		var out rules.Matches
		if err := tokens(t, c.api).Asks(in, &out); err != nil {
			t.Fatal(err)
		}
		if got := out.Asks[0].Cost; got != c.want {
			t.Errorf("%s, %s%.80s: got %d, want %d", c.api, c.path, c.body, got, c.want)
		}
	}
}

// A body that cannot be read is estimated by its length; one that is not there by the default, or by
// what the caller says.
func TestTokensWithoutBody(t *testing.T) {
	s := tokens(t, "openai")
	unreadable := func(n int64) *rules.Input {
		in := posted(t, "")
		in.Request.Body = &body{length: n, err: errors.New("too long")}
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
		`{"max_tokens": 1e18}`:                             "500", // no whole number that a model takes
		`{"max_tokens": 10, "prompt": "` + long + `"}`:     "500",
		`{"prompt": "hello"}`:                              "500",
		`{"max_tokens": 10, "prompt": "hello, you there"}`: "54",
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
