package monitoring

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/server/rules"
)

var update = flag.Bool("update", false, "write the files of examples/monitoring anew")

const examples = "../../../../examples/monitoring/"

var example = Options{Selector: `job="stint"`, Interval: 15 * time.Second}

func exampleRules(t *testing.T) *rules.Set {
	t.Helper()
	set, err := rules.Load(examples + "stint.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// The examples are what the program writes. -update writes them.
func TestExamples(t *testing.T) {
	set := exampleRules(t)
	for name, text := range map[string]string{"stint-alerts.yml": Prometheus(set, example), "dashboard.json": Grafana(set, example)} {
		if *update {
			if err := os.WriteFile(examples+name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(examples + name)
		if err != nil || string(have) != text {
			t.Errorf("%s is not what the program writes: go test ./cmd/stint/internal/monitoring -update (%v)", name, err)
		}
	}
}

// tool runs a program of Prometheus or Alertmanager, and returns what it prints.
func tool(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		const required = "STINT_REQUIRE_MONITORING"
		if os.Getenv(required) != "" {
			t.Fatalf("%s is set, and %s is not installed", required, program)
		}
		t.Skipf("%s is not installed", program)
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	return string(out), err
}

func accepted(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := tool(t, program, args...); err != nil {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// The programs for which the examples are accept them, and the alerts fire when they should.
func TestExamplesWithRealTools(t *testing.T) {
	t.Run("rules", func(t *testing.T) { accepted(t, "promtool", "check", "rules", examples+"stint-alerts.yml") })
	t.Run("config", func(t *testing.T) { accepted(t, "promtool", "check", "config", examples+"prometheus.yml") })
	t.Run("tests", func(t *testing.T) { accepted(t, "promtool", "test", "rules", "testdata/alerts_test.yml") })
	t.Run("alertmanager", func(t *testing.T) { accepted(t, "amtool", "check-config", examples+"alertmanager.yml") })
	t.Run("routes", func(t *testing.T) {
		for labels, want := range map[string]string{"severity=critical": "pager", "severity=warning": "collected", "severity=info": "collected"} {
			out, err := tool(t, "amtool", "config", "routes", "test", "--config.file="+examples+"alertmanager.yml", "alertname=x", labels)
			if err != nil || !strings.HasSuffix(strings.TrimSpace(out), "\n"+want) && strings.TrimSpace(out) != want {
				t.Errorf("%s: %s, want %s (%v)", labels, out, want, err)
			}
		}
	})
}

// hostileRules have names and texts that mean something to PromQL, YAML or templates.
const hostileRules = `
rules:
  - {name: "a.b:c/d-e_f", key: client.ip, limits: [1 per 1s]}
  - {name: off, key: client.ip, limits: [1 per 1s], mode: off}
alerts:
  - {name: "x:y/z", when: 'rate("a.b:c/d-e_f") > 1e6', message: 'a: {{ $value }} "b" \ # %s «ü» {{', labels: {team: 'x: {{ .Labels }}'}}
  - {name: constant, when: 1 / 0 > -2 && 3 / (1 - 1) < rate() / 0 && -1 < 2 - 4}
  - {name: number, when: 1 < 2, for: 500ms, window: 10s}
  - {name: both, when: '!(rate() > 1 || latency(0.5) <= 2e-6) && -rate("*", "blocked") / bans() != -3.5', for: 25h59m0.5s}
`

// Nothing in a rules file breaks what is written, and texts stay texts.
func TestHostileRules(t *testing.T) {
	set, err := rules.Parse("x.yaml", []byte(strings.Replace(hostileRules, "25h", "23h", 1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{Interval: time.Second}, {Selector: `job=~"a|b",x!="y"`, Interval: time.Hour}} {
		if err := CheckSelector(o.Selector); err != nil {
			t.Fatal(err)
		}
		text := Prometheus(set, o)
		file := filepath.Join(t.TempDir(), "rules.yml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Groups []struct {
				Rules []struct {
					Alert               string
					Annotations, Labels map[string]string
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if own := doc.Groups[1].Rules[0]; own.Alert != "x:y/z" || own.Annotations["summary"] != `a: {{"{{"}} $value }} "b" \ # %s «ü» {{"{{"}}` || own.Labels["team"] != `x: {{"{{"}} .Labels }}` {
			t.Errorf("%+v", own)
		}
		if !json.Valid([]byte(Grafana(set, o))) {
			t.Error("the dashboard is not JSON")
		}
		accepted(t, "promtool", "check", "rules", file)
	}
	for _, text := range []string{`job`, `job="a`, `job="a"}`, `job="a",`, `job="\"`, `job='a'`, "job=\"a\nb\"", `1="a"`} {
		if CheckSelector(text) == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// The alerts about Stint itself are those of docs/metrics.md, each under its severity.
func TestStandardAlertsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	severity := ""
	for line := range strings.Lines(string(page)) {
		if m := regexp.MustCompile("\\(`(critical|warning|info)`\\):$").FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			severity = m[1]
		}
		for _, m := range regexp.MustCompile("`(Stint[A-Z]\\w+)`").FindAllStringSubmatch(line, -1) {
			documented[m[1]] = severity
		}
	}
	written := map[string]string{}
	for _, a := range standardAlerts {
		written[a.name] = a.severity
	}
	if !maps.Equal(documented, written) {
		t.Errorf("docs/metrics.md has %v, not %v", documented, written)
	}
}

// What is written reads only metrics that there are.
func TestMetricsExist(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, name := range regexp.MustCompile("(?m)^\\| `(stint_\\w+)").FindAllStringSubmatch(string(page), -1) {
		known[name[1]] = true
	}
	set := exampleRules(t)
	names := regexp.MustCompile(`\bstint_\w+`).FindAllString(Prometheus(set, example)+Grafana(set, example), -1)
	for _, name := range names {
		if known[name] {
			continue
		}
		if base := regexp.MustCompile("_(bucket|count|sum)$").ReplaceAllString(name, ""); !known[base] {
			t.Errorf("docs/metrics.md has no %s", name)
		}
	}
	if len(names) < 80 {
		t.Errorf("only %d names", len(names))
	}
}

// Every panel has a place of its own, and its queries are PromQL.
func TestDashboard(t *testing.T) {
	var d struct {
		UID    string
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(Grafana(exampleRules(t), example)), &d); err != nil {
		t.Fatal(err)
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	file := "groups:\n  - name: all\n    rules:\n"
	alerts := 0
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%+v", p)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$rule", ".*").Replace(target.Expr)
			file += "      - {record: x" + fmt.Sprint(len(file)) + ", expr: " + quoted(expr) + "}\n"
			if strings.Contains(expr, "$") || strings.Contains(expr, "stint_") && !strings.Contains(expr, `job="stint",job=~`) {
				t.Errorf("%s: %s", p.Title, expr)
			}
		}
		if p.Title == "logins-blocked" || p.Title == "search-too-strict" {
			alerts++
		}
	}
	if alerts != 2 || len(d.Panels) < 25 || d.UID == "" {
		t.Errorf("%d panels, %d alerts", len(d.Panels), alerts)
	}
	at := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(at, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	accepted(t, "promtool", "check", "rules", at)
	without, err := rules.Parse("x.yaml", []byte("rules: [{name: x, key: client.ip, limits: [1 per 1s]}]"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"Leases", "Shadow mode", "Responses that count", "Tokens of clients", "Alerts of the rules"} {
		if strings.Contains(Grafana(without, example), word) {
			t.Errorf("%s: no rule has any", word)
		}
	}
}

// conditions are random conditions over all measures.
func randomCondition(r *rand.Rand, depth int) string {
	switch n := r.IntN(6); {
	case depth > 0 && n < 2:
		return "(" + randomCondition(r, depth-1) + []string{" && ", " || "}[n] + randomCondition(r, depth-1) + ")"
	case depth > 0 && n == 2:
		return "!(" + randomCondition(r, depth-1) + ")"
	}
	return randomValue(r, 2) + " " + []string{"<", "<=", ">", ">=", "==", "!="}[r.IntN(6)] + " " + randomValue(r, 2)
}

func randomValue(r *rand.Rand, depth int) string {
	if depth > 0 && r.IntN(3) == 0 {
		return "(" + randomValue(r, depth-1) + " " + string("+-*/"[r.IntN(4)]) + " " + randomValue(r, depth-1) + ")"
	}
	all := []string{"0", "0.25", "2", `rate()`, `rate("a")`, `rate("b", "refused")`, `rate("*", "blocked")`, `rate("s", "shadow_refused")`, `rate("s", "limited")`,
		`block_rate()`, `block_rate("a")`, `block_rate("none")`, `undecided_rate()`, `fallback_rate("b")`, `fallback_rate()`, `holds()`, `holds("a")`, `hold_lost_rate("a")`, `hold_lost_rate()`, `cost_unknown_rate("a")`, `store_calls()`, `store_down()`, `store_error_rate()`, `bans()`, `instances()`, `latency(0.5)`, `store_latency(0.99)`}
	return all[r.IntN(len(all))]
}

// measured are the values of the measures for the series of TestConditions, by how they are
// written.
func measured(m rules.Measure) (float64, bool) {
	switch key := m.Name + " " + m.Rule + " " + m.Outcome; key {
	case "rate  ":
		return 16, true // a: 6 + 2, b: 4, without a rule: 1 blocked, 3 undecided
	case "rate a ":
		return 8, true
	case "rate b refused", "rate s shadow_refused":
		return map[string]float64{"b": 4, "s": 2}[m.Rule], true
	case "rate  blocked":
		return 1, true
	case "rate s limited":
		return 0, true
	case "block_rate  ":
		return 7. / 16, true
	case "block_rate a ":
		return 2. / 8, true
	case "block_rate none ":
		return 0, true
	case "undecided_rate  ":
		return 3. / 16, true
	case "fallback_rate b ":
		return 1. / 4, true
	case "fallback_rate  ":
		return 1. / 16, true
	case "holds a ":
		return 5, true
	case "holds  ":
		return 7, true // by a and by b
	case "hold_lost_rate a ":
		return 1. / 4, true
	case "hold_lost_rate  ":
		return 1. / 8, true
	case "cost_unknown_rate a ":
		return 2. / 4, true
	case "store_down  ":
		return 7, true
	case "store_calls  ":
		return 8, true
	case "store_error_rate  ":
		return 2. / 8, true
	case "bans  ":
		return 6, true
	case "instances  ":
		return 2, true
	case "latency  ":
		return 0, false // no bucket
	case "store_latency  ":
		return 0.0099, true
	}
	panic(m)
}

const conditionSeries = `
  - interval: 15s
    input_series:
      - {series: 'stint_decisions_total{instance="1",rule="a",outcome="allowed"}', values: '0+90x40'}
      - {series: 'stint_decisions_total{instance="1",rule="a",outcome="limited"}', values: '0+15x40'}
      - {series: 'stint_decisions_total{instance="2",rule="a",outcome="banned"}', values: '0+15x40'}
      - {series: 'stint_decisions_total{instance="2",rule="b",outcome="warned"}', values: '0+60x40'}
      - {series: 'stint_decisions_total{instance="2",rule="none",outcome="allowed"}', values: '0+0x40'}
      - {series: 'stint_decisions_total{instance="2",rule="",outcome="blocked"}', values: '0+15x40'}
      - {series: 'stint_decisions_total{instance="2",rule="",outcome="undecided"}', values: '0+45x40'}
      - {series: 'stint_decision_seconds_count{instance="1"}', values: '0+240x40'}
      - {series: 'stint_shadow_refusals_total{instance="1",rule="s"}', values: '0+30x40'}
      - {series: 'stint_fallback_decisions_total{instance="1",rule="b",policy="local"}', values: '0+15x40'}
      - {series: 'stint_holds{instance="1",rule="a"}', values: '2x40'}
      - {series: 'stint_holds{instance="2",rule="a"}', values: '3x40'}
      - {series: 'stint_holds{instance="2",rule="b"}', values: '2x40'}
      - {series: 'stint_holds_ended_total{instance="1",rule="a",result="settled"}', values: '0+30x40'}
      - {series: 'stint_holds_ended_total{instance="1",rule="a",result="given_back"}', values: '0+15x40'}
      - {series: 'stint_holds_ended_total{instance="2",rule="a",result="lost"}', values: '0+15x40'}
      - {series: 'stint_holds_ended_total{instance="2",rule="a",result="unknown"}', values: '0+90x40'}
      - {series: 'stint_holds_ended_total{instance="2",rule="b",result="settled"}', values: '0+60x40'}
      - {series: 'stint_costs_unknown_total{instance="2",rule="a"}', values: '0+30x40'}
      - {series: 'stint_store_seconds_count{instance="1"}', values: '0+120x40'}
      - {series: 'stint_store_seconds_bucket{instance="1",le="0.01"}', values: '0+120x40'}
      - {series: 'stint_store_seconds_bucket{instance="1",le="+Inf"}', values: '0+120x40'}
      - {series: 'stint_store_errors_total{instance="1",kind="timeout"}', values: '0+15x40'}
      - {series: 'stint_store_errors_total{instance="2",kind="error"}', values: '0+15x40'}
      - {series: 'stint_store_down_seconds{instance="1"}', values: '3x40'}
      - {series: 'stint_store_down_seconds{instance="2"}', values: '2x31 7x2 0x6'}
      - {series: 'stint_bans{instance="1",rule="a"}', values: '2x40'}
      - {series: 'stint_bans{instance="2",rule="a"}', values: '3x40'}
      - {series: 'stint_manual_bans{instance="1"}', values: '1x40'}
      - {series: 'stint_manual_bans{instance="2"}', values: '1x40'}
      - {series: 'stint_instances{instance="1"}', values: '2x40'}
      - {series: 'stint_instances{instance="2"}', values: '1x40'}
    promql_expr_test:
`

// PromQL decides conditions as Condition.Holds does, which the server uses. Where that does not
// know, PromQL does not hold.
func TestConditions(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	var file strings.Builder
	file.WriteString("rule_files: []\nevaluation_interval: 15s\ntests:" + conditionSeries)
	held, unknown := 0, 0
	const n = 400
	for range n {
		when := randomCondition(random, 2)
		set, err := rules.Parse("x.yaml", fmt.Appendf(nil, "rules: [{name: a, key: client.ip, limits: [1 per 1s, 4 in_flight]}, {name: b, key: client.ip, limits: [1 per 1s]}, {name: s, key: client.ip, limits: [1 per 1s]}, {name: none, key: client.ip, limits: [1 per 1s]}]\nalerts: [{name: x, when: %q}]", when))
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		c := set.Alerts[0].Condition
		holds, known := c.Holds(measured)
		want := 0
		switch {
		case !known:
			unknown++
		case holds:
			held, want = held+1, 1
		}
		o := Options{Interval: 15 * time.Second}
		expr := "count(" + o.over(time.Minute).condition(c) + ") or vector(0)"
		fmt.Fprintf(&file, "      - {expr: %s, eval_time: 8m, exp_samples: [{labels: '{}', value: %d}]}\n", quoted(expr), want)
	}
	if held < n/5 || n-held-unknown < n/5 || unknown < 10 {
		t.Errorf("of %d conditions, %d hold and %d are unknown", n, held, unknown)
	}
	at := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(at, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	accepted(t, "promtool", "test", "rules", at)
}

// Every measure of the rules' language can be written.
func TestAllMeasures(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/rules-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Conditions of alerts\n")
	table, _, _ = strings.Cut(table, "\n## ")
	names := regexp.MustCompile("(?m)^\\| `(\\w+)\\(").FindAllStringSubmatch(table, -1)
	for _, name := range names {
		if text := (query{"", "1m"}).measure(rules.Measure{Name: name[1], Quantile: 0.5}); !strings.Contains(text, "stint_") {
			t.Errorf("%s: %s", name[1], text)
		}
	}
	if len(names) < 10 {
		t.Errorf("%d measures", len(names))
	}
}

func TestPromDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", time.Microsecond: "1ms", 90 * time.Second: "1m30s", 25*time.Hour + 500*time.Millisecond: "1d1h500ms"} {
		if got := promDuration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
