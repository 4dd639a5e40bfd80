package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// The kill switch goes before the safelist, that before the blocklist, and that
// before the limits.
func TestOrderOfLists(t *testing.T) {
	const file = `
safelist:  ['client.ip == "192.0.2.1"']
blocklist: ['client.ip in cidr("192.0.2.0/24")']
rules:     [{name: all, key: '"all"', limits: [1 per 1m fixed_window]}]
`
	tell(t, newServer(t, file), []step{
		{0, from("192.0.2.1"), "allowed", ""},
		{0, from("192.0.2.2"), "blocked", ""},
		{0, from("192.0.2.2"), "blocked", ""}, // and charged nothing:
		{0, from("198.51.100.1"), "allowed by all, 0 left", "all 0"},
		{0, from("198.51.100.1"), "limited by all, 0 left, retry 1m0s", "all 0!"},
		{0, from("192.0.2.1"), "allowed", ""},
		{0, from("192.0.2.2"), "blocked", ""},
		{time.Minute, from("198.51.100.1"), "allowed by all, 0 left", ""},
	})
	tell(t, newServer(t, "enabled: false\n"+file), []step{
		{0, from("192.0.2.1"), "allowed", ""},
		{0, from("192.0.2.2"), "allowed", ""},
		{0, from("198.51.100.1"), "allowed", ""},
		{0, from("198.51.100.1"), "allowed", ""},
	})
}

// Every rule that matches applies, all or nothing, and the strictest answers.
func TestSeveralRules(t *testing.T) {
	s := newServer(t, `
rules:
  - {name: everyone, key: '"all"', limits: [5 per 1m fixed_window]}
  - {name: client, key: client.ip, limits: [2 per 10s fixed_window, 3 per 1m fixed_window]}
  - {name: off, key: client.ip, limits: [1 per 1h], mode: "off"}
  - {name: export, match: operation == "export", key: client.ip, cost: 6, limits: [4 per 1h]}
`)
	tell(t, s, []step{
		{0, from("192.0.2.1"), "allowed by client, 1 left", "everyone 4, client 1, client 2"},
		{0, from("192.0.2.1"), "allowed by client, 0 left", "everyone 3, client 0, client 1"},
		{0, from("192.0.2.1"), "limited by client, 0 left, retry 10s", "everyone 3, client 0!, client 1"},
		{0, from("192.0.2.2"), "allowed by client, 1 left", "everyone 2, client 1, client 2"}, // the refusal cost nothing
		{10 * time.Second, from("192.0.2.1"), "allowed by client, 0 left", "everyone 1, client 1, client 0"},
		{10 * time.Second, from("192.0.2.1"), "limited by client, 0 left, retry 50s", "everyone 1, client 1, client 0!"},
		{10 * time.Second, from("192.0.2.3"), "allowed by everyone, 0 left", "everyone 0, client 1, client 2"},
		{10 * time.Second, from("192.0.2.4"), "limited by everyone, 0 left, retry 50s", "everyone 0!, client 2, client 3"},
		{20 * time.Second, &rules.Input{Operation: "export"}, "allowed by everyone, 0 left", "everyone 0"},
		{20 * time.Second, &rules.Input{Operation: "export", Client: from("192.0.2.9").Client}, "limited by export, 4 left, never",
			"everyone 0, client 2, client 3, export 4!"},
		{20 * time.Second, &rules.Input{}, "allowed by everyone, 0 left", "everyone 0"}, // costs 0: a peek
	})
}

// The rule that decided is the one whose limit refused or was the closest to, or
// whose violation or ban it is.
func TestWhichRule(t *testing.T) {
	s := newServer(t, `
rules:
  - {name: slow, match: operation != "login", key: client.ip, limits: [1 per 1h fixed_window], message: slow}
  - {name: login, key: client.ip, limits: [1 per 1m fixed_window], penalty: {warn_after: 2, ban_after: 3, ban_for: 10m}, message: login}
`)
	login := func() *rules.Input { in := from("192.0.2.1"); in.Operation = "login"; return in }
	other := func() *rules.Input { in := from("192.0.2.1"); in.Operation = "other"; return in }
	tell(t, s, []step{
		{0, other(), "allowed by slow, 0 left", "slow 0, login 0"},
		{1 * time.Second, login(), "limited by login, 0 left, retry 59s", "login 0!"},
		{2 * time.Second, other(), "warned by login, 0 left, retry 59m58s", "slow 0!, login 0!"},
		// The limit that refuses for longest is that of slow, but the ban is graver.
		{3 * time.Second, other(), "banned by login, 0 left, banned for 10m0s, retry 59m57s", "slow 0!, login 0!"},
		{4 * time.Second, other(), "banned by login, banned for 9m59s, retry 59m56s", ""},
		{4 * time.Second, login(), "banned by login, banned for 9m59s", ""},
		{10*time.Minute + 3*time.Second, login(), "allowed by login, 0 left", "login 0"},
		{10*time.Minute + 3*time.Second, from("192.0.2.2"), "allowed by login, 0 left", "login 0"},
	})
	v, err := s.Decide(context.Background(), other(), noon.Add(10*time.Minute+3*time.Second))
	if err != nil || v.Message != "login" { // a violation of login, which waits for slow, too
		t.Errorf("message %q of %+v, %v", v.Message, v.Rule, err)
	}
}

// Rules in shadow mode are counted, refuse nothing, and neither they nor those
// that are enforced charge the others; all in one call, which comes beside that about
// what is enforced.
func TestShadow(t *testing.T) {
	calls := &limittest.Faulty{Store: new(stint.Memory)}
	s := newServer(t, `
rules:
  - {name: strict, key: '"all"', limits: [1 per 1m fixed_window, 5 per 1h fixed_window], mode: shadow}
  - {name: client, key: client.ip, limits: [2 per 1m fixed_window]}
  - {name: loose, key: '"all"', limits: [9 per 1m fixed_window], mode: shadow}
`, over(calls))
	story := []step{
		{0, from("192.0.2.1"), "allowed by client, 1 left", "strict 0, strict 4, client 1, loose 8"},
		{0, from("192.0.2.1"), "allowed by client, 0 left", "strict 0!, strict 4, client 0, loose 7"},
		{0, from("192.0.2.1"), "limited by client, 0 left, retry 1m0s", "strict 0!, strict 4, client 0!, loose 6"},
		{0, from("192.0.2.2"), "allowed by client, 1 left", "strict 0!, strict 4, client 1, loose 5"},
		{time.Minute, from("192.0.2.1"), "allowed by client, 1 left", "strict 0, strict 3, client 1, loose 8"},
	}
	tell(t, s, story)
	if calls.Calls() != 2*len(story) {
		t.Errorf("%d requests made %d calls", len(story), calls.Calls())
	}
}

// A ban in shadow mode is told, and refuses nothing.
func TestShadowBan(t *testing.T) {
	s := newServer(t, `
rules:
  - {name: shadow, key: client.ip, limits: [1 per 1h fixed_window, 5 per 1h sliding_log], mode: shadow, penalty: {ban_after: 1, ban_for: 1m}}
  - {name: client, key: client.ip, limits: [9 per 1h fixed_window]}
`)
	tell(t, s, []step{
		{0, from("192.0.2.1"), "allowed by client, 8 left", "shadow 0, shadow 4, client 8"},
		{0, from("192.0.2.1"), "allowed by client, 7 left", "shadow 0!, shadow 4, client 7"},
		{0, from("192.0.2.1"), "allowed by client, 6 left", "shadow 0!, shadow 0!, client 6"}, // it runs
	})
	v, err := s.Decide(context.Background(), from("192.0.2.1"), noon)
	if err != nil || v.Each[0].Outcome != stint.Banned || v.Each[0].BanLeft != time.Minute || v.Each[1].Outcome != stint.Banned {
		t.Errorf("%+v, %v", v.Each, err)
	}
}

// Where only shadow rules apply, nothing limits.
func TestOnlyShadow(t *testing.T) {
	s := newServer(t, `rules: [{name: shadow, key: client.ip, limits: [1 per 1h fixed_window], mode: shadow}]`)
	tell(t, s, []step{
		{0, from("192.0.2.1"), "allowed", "shadow 0"},
		{0, from("192.0.2.1"), "allowed", "shadow 0!"},
	})
}

// A running ban of an enforced rule answers for all, also for what is in shadow.
func TestBanBesideShadow(t *testing.T) {
	s := newServer(t, `
rules:
  - {name: shadow, key: client.ip, limits: [9 per 1h fixed_window], mode: shadow}
  - {name: client, key: client.ip, limits: [1 per 1h fixed_window], penalty: {ban_after: 1, ban_for: 1m}}
`)
	tell(t, s, []step{
		{0, from("192.0.2.1"), "allowed by client, 0 left", "shadow 8, client 0"},
		{0, from("192.0.2.1"), "banned by client, 0 left, banned for 1m0s, retry 1h0m0s", "shadow 7, client 0!"},
		{0, from("192.0.2.1"), "banned by client, banned for 1m0s, retry 1h0m0s", ""},
	})
	if v, err := s.Decide(context.Background(), from("192.0.2.1"), noon); err != nil || v.Each != nil {
		t.Errorf("each %+v, %v", v.Each, err)
	}
}

// What is malformed is the caller's fault, and no store is asked.
func TestMalformedInput(t *testing.T) {
	calls := &limittest.Faulty{Store: new(stint.Memory)}
	s := newServer(t, `
rules:
  - {name: user, key: attrs.user, limits: [1 per 1h], on_store_error: allow}
  - {name: size, match: has(attrs.size), key: '"all"', cost: int(attrs.size), limits: [5 per 1h]}
`, over(calls))
	for _, in := range []*rules.Input{
		{Attrs: map[string]any{"user": ""}, Cost: 1},
		{Attrs: map[string]any{"user": strings.Repeat("x", stint.MaxKey+1)}, Cost: 1},
		{Attrs: map[string]any{"user": "a\x00b"}, Cost: 1},
		{Attrs: map[string]any{"user": "a\xff"}, Cost: 1},
		{Attrs: map[string]any{"user": map[string]any{}}, Cost: 1},
		{Attrs: map[string]any{"size": "much"}, Cost: 1},
		{Attrs: map[string]any{"size": "-1"}, Cost: 1},
		{Attrs: map[string]any{"user": "a"}, Cost: -1},
	} {
		v, err := s.Decide(context.Background(), in, time.Time{})
		if !errors.Is(err, stint.ErrRequest) || v.Allowed || v.Outcome != 0 {
			t.Errorf("%v: %+v, %v", in, v, err)
		}
	}
	if calls.Calls() > 0 {
		t.Errorf("%d calls", calls.Calls())
	}
	// An instant that no store computes with is refused by the Limiter.
	_, err := s.Decide(context.Background(), &rules.Input{Attrs: map[string]any{"user": "a"}}, time.Unix(-1, 0))
	if !errors.Is(err, stint.ErrRequest) {
		t.Error(err)
	}
}

// Headers say what limits count, each its own unit, and nothing of rules in shadow mode.
func TestUnitsOfLimits(t *testing.T) {
	const calls, tokens = `{name: calls, key: '"x"', limits: [5 per 1h fixed_window]}`, `{name: tokens, key: '"x"', unit: tokens, limits: [100 per 1h fixed_window]}`
	const shadow = `{name: shadow, mode: shadow, key: '"x"', unit: ghosts, limits: [3 per 1h fixed_window]}`
	for _, c := range []struct {
		rules []string
		want  string
	}{
		{[]string{calls}, `[5 ""]`},
		{[]string{tokens}, `[100 "tokens"]`},
		{[]string{calls, tokens}, `[5 "" 100 "tokens"]`},
		{[]string{shadow, tokens, calls}, `[100 "tokens" 5 ""]`},
		{[]string{calls, shadow}, `[5 ""]`},
	} {
		s := newServer(t, "rules: ["+strings.Join(c.rules, ", ")+"]", func(c *server.Config) { c.Settings.Dialect = httplimit.Draft11 })
		w := httptest.NewRecorder()
		s.Gateway().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		var got []string
		for _, line := range w.Header()["Ratelimit-Policy"] {
			for policy := range strings.SplitSeq(line, ",") {
				amount := regexp.MustCompile(`;q=(\d+)`).FindStringSubmatch(policy)
				unit := append(regexp.MustCompile(`;qu="(.*)"`).FindStringSubmatch(policy), "", "")[1]
				got = append(got, amount[1], strconv.Quote(unit))
			}
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v: %s of %s, want %s", c.rules, got, w.Header()["Ratelimit-Policy"], c.want)
		}
	}
}

// A memory that is full of exhausted keys gives nobody a fresh limit: on_store_error
// does not mean a second memory beside it.
func TestFullMemory(t *testing.T) {
	small := func(c *server.Config) { c.Limiter = stint.NewLimiter(&stint.Memory{MaxKeys: 1}) }
	for mode, want := range map[string]string{
		"local": "error: " + stint.ErrFull.Error(),
		"deny":  "error: " + stint.ErrFull.Error(),
		"allow": "allowed by client, 1 left",
	} {
		s := newServer(t, `rules: [{name: client, key: client.ip, limits: [1 per 1h], on_store_error: `+mode+`}]`, small)
		v, err := s.Decide(context.Background(), from("192.0.2.1"), time.Time{})
		if got := say(&v, err); got != "allowed by client, 0 left" {
			t.Errorf("%s: the first: %s", mode, got)
		}
		v, err = s.Decide(context.Background(), from("192.0.2.2"), time.Time{})
		if got := say(&v, err); got != want {
			t.Errorf("%s: got %s, want %s", mode, got, want)
		}
	}
	// Each call that finds no room is counted and logged, also that of a list, and that beside others.
	var log logged
	s := newServer(t, `rules: [{name: client, key: client.ip, limits: [1 per 1h]}]`, small, logTo(&log))
	for i, list := range []string{`[{"client":"192.0.2.1"},{}]`, `[{"client":"192.0.2.2"}]`, `[{"client":"192.0.2.1"},{"client":"192.0.2.3"}]`, `[{"client":"192.0.2.4"},{"client":"192.0.2.1"}]`, `[{"client":"192.0.2.1"},{"client":"192.0.2.1"}]`} {
		check(s, list)
		if line := fmt.Sprintf("stint_store_errors_total{kind=\"error\"} %d\n", min(i, 3)); !strings.Contains(metrics(s), line) {
			t.Errorf("after %d lists: no %s", i+1, line)
		}
	}
	if text := log.taken(); !strings.Contains(text, stint.ErrFull.Error()) {
		t.Errorf("logged: %s", text)
	}
}
