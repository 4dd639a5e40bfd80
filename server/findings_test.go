package server_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// codes are those of a server's findings.
func codes(s *server.Server) string {
	var all []string
	for _, f := range s.Findings() {
		all = append(all, f.Code)
	}
	return strings.Join(all, " ")
}

// A forwarding header that nobody is trusted to write is told of once for each set
// of rules, and the finding goes with the set.
func TestForwardedWithoutProxies(t *testing.T) {
	const open, closed = `rules: []`, "trusted_proxies: [192.0.2.1]\nrules: []"
	for _, c := range []struct {
		about, rules, header string
		found                bool
	}{
		{"X-Forwarded-For", open, "X-Forwarded-For", true},
		{"Forwarded", open, "Forwarded", true},
		{"X-Real-Ip", open, "X-Real-Ip", true},
		{"what client_header names", open, "Cf-Connecting-Ip", true},
		{"another header", open, "X-Forwarded-Proto", false},
		{"a trusted proxy", closed, "X-Forwarded-For", false},
		{"nobody trusted by other proxies' networks", "trusted_proxies: [10.0.0.1]\nrules: []", "X-Forwarded-For", false},
	} {
		for _, api := range []string{"gateway", "authorize"} {
			var log bytes.Buffer
			s := newServer(t, c.rules, func(config *server.Config) {
				config.Log = slog.New(slog.NewTextHandler(&log, nil))
				config.Settings.ClientHeader = "CF-Connecting-IP"
			})
			h, target := s.Gateway(), "/"
			if api == "authorize" {
				h, target = checkAPI(s), "/v1/authorize"
			}
			send := func() {
				r := httptest.NewRequest("GET", target, nil)
				r.Header.Set(c.header, "198.51.100.1")
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			for range 3 {
				send()
			}
			told := strings.Count(log.String(), "ST001")
			if c.found != (told == 1) || c.found != (codes(s) == "ST001") || told > 1 {
				t.Errorf("%s at the %s: findings %q, told %d times:\n%s", c.about, api, codes(s), told, &log)
			}
			if !c.found {
				continue
			}
			for _, f := range s.Findings() {
				if !strings.Contains(f.Text, c.header) {
					t.Errorf("%s: %s", c.about, f)
				}
			}
			set, err := rules.Parse("rules.yaml", []byte(open+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			s.SetRules(set)
			if codes(s) != "" {
				t.Errorf("%s: the new rules begin with %s", c.about, codes(s))
			}
			send()
			if codes(s) != "ST001" || strings.Count(log.String(), "ST001") != 2 {
				t.Errorf("%s: findings %q after new rules:\n%s", c.about, codes(s), &log)
			}
		}
	}
}

// What the start found stays, what the rules have goes with them, and the metrics
// tell of both.
func TestFindings(t *testing.T) {
	s := newServer(t, "trusted_proxies: [0.0.0.0/0]\nsafelist: ['true', 'false']", func(c *server.Config) {
		c.Findings = func() []rules.Finding { return []rules.Finding{{Code: rules.CodeEviction, Text: "x"}} }
	})
	page := func() string {
		w := httptest.NewRecorder()
		checkAPI(s).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	if got := codes(s); got != "ST005 ST006 ST006 ST002" {
		t.Error(got)
	}
	for _, want := range []string{`stint_findings{code="ST005"} 1`, `stint_findings{code="ST006"} 2`, `stint_findings{code="ST002"} 1`, `stint_findings{code="ST003"} 0`} {
		if !strings.Contains(page(), want) {
			t.Errorf("no %s", want)
		}
	}
	set, err := rules.Parse("rules.yaml", []byte("rules: []"))
	if err != nil {
		t.Fatal(err)
	}
	s.SetRules(set)
	if got := codes(s); got != "ST005" || !strings.Contains(page(), `stint_findings{code="ST006"} 0`) {
		t.Error(got)
	}
	w := httptest.NewRecorder()
	if checkAPI(s).ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil)); w.Code != http.StatusOK {
		t.Error("findings make it unhealthy")
	}
}

// A limit that is held where the end of a request is not seen is told of once for each set of rules.
func TestHeldWhereNoEndIsSeen(t *testing.T) {
	for _, c := range []struct {
		rules, want, says string
	}{
		{`rules: [{name: r, limits: [9 per 1m, 4 in_flight]}]`, "ST020", "4 in_flight is not held: in_flight only says"},
		{`rules: [{name: r, limits: [9 per 1m fixed_window hold]}]`, "ST020", "9 per 1m fixed_window hold is not held: the budget is charged"},
		{`rules: [{name: r, limits: [9 per 1m]}, {name: q, mode: shadow, limits: [4 in_flight]}]`, "", ""},
		{`rules: [{name: r, limits: [9 per 1m]}, {name: q, match: 'operation == "other"', limits: [4 in_flight]}]`, "", ""},
	} {
		for _, door := range []string{"authorize", "check"} {
			var log bytes.Buffer
			file := "trusted_proxies: [192.0.2.1]\n" + c.rules
			s := newServer(t, file, func(config *server.Config) { config.Log = slog.New(slog.NewTextHandler(&log, nil)) })
			for range 3 {
				if door == "authorize" {
					r := httptest.NewRequest("GET", "/v1/authorize", nil)
					r.Header.Set("X-Original-Uri", "/a")
					r.Header.Set("X-Original-Method", "GET")
					r.Header.Set("X-Forwarded-For", "198.51.100.1")
					checkAPI(s).ServeHTTP(httptest.NewRecorder(), r)
				} else {
					check(s, `{"client":"192.0.2.1"}`)
				}
			}
			if got := codes(s); got != c.want || strings.Count(log.String(), "ST020") != min(1, len(c.want)) {
				t.Errorf("%s, %s: findings %q, log\n%s", door, c.rules, got, &log)
			}
			if c.want != "" && !strings.Contains(s.Findings()[0].Text, c.says) {
				t.Errorf("%s, %s: %s", door, c.rules, s.Findings()[0])
			}
			set, err := rules.Parse("rules.yaml", []byte(file))
			if err != nil {
				t.Fatal(err)
			}
			if s.SetRules(set); codes(s) != "" {
				t.Errorf("%s: the new rules begin with %s", c.rules, codes(s))
			}
		}
	}
}

// An explanation says what an estimate is by, and what a request takes of each limit.
func TestExplainedEstimates(t *testing.T) {
	s := newServer(t, `rules: [{name: r, key: client.ip, tokens: openai, max_hold: 10%, limits: [60 per 1m, 10000 per 1m fixed_window hold]}]`)
	x, err := s.Explain(t.Context(), from("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(x.Words, "\n")
	for _, want := range []string{"cost 5120 estimated by tokens: openai.", "60 per 1m: 0 of 60 used, 60 left; this takes 1; allows", "10000 left; this takes 1000; allows"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// An instance whose memory is nearly full of its own holds says so, in findings and once in its log.
func TestManyHolds(t *testing.T) {
	var log bytes.Buffer
	memory := &stint.Memory{MaxKeys: 1000} // and 8,192 holds
	s := newServer(t, `rules: []`, func(config *server.Config) {
		config.Log, config.Limiter = slog.New(slog.NewTextHandler(&log, nil)), stint.NewLimiter(memory)
	})
	limit := stint.MustLimit("flying: 100 in_flight")
	for i := range 7500 {
		if i == 7000 && codes(s) != "" {
			t.Errorf("with 7,000 of 8,192: %s", codes(s))
		}
		r := stint.Request{Asks: []stint.Ask{{Key: fmt.Sprint(i), Limit: limit}}, Hold: stint.NewHoldID()}
		if d, err := memory.Take(t.Context(), &r, nil); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if f := s.Findings(); len(f) != 1 || f[0].Code != rules.CodeManyHolds || !strings.Contains(f[0].Text, "has 7500 of at most 8192 holds") {
		t.Errorf("%v", f)
	}
	for range 2 {
		s.NoticeHolds()
	}
	if n := strings.Count(log.String(), "ST024"); n != 1 {
		t.Errorf("%d lines:\n%s", n, &log)
	}
}
