package rules_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

func condition(t *testing.T, when string) (*rules.Condition, []rules.Finding) {
	t.Helper()
	s, err := rules.Parse("r.yaml", []byte("rules: [{name: login, limits: [1 per 1s]}]\nalerts:\n  - name: a\n    when: |\n      "+when))
	if err != nil {
		t.Fatal(err)
	}
	return s.Alerts[0].Condition, s.Findings
}

func TestConditionHolds(t *testing.T) {
	values := map[string]float64{"rate": 100, "block_rate": 0.25, "bans": 0}
	of := func(m rules.Measure) (float64, bool) {
		v, ok := values[m.Name]
		return v, ok
	}
	for _, c := range []struct {
		when, holds string
		left        string
	}{
		{"rate() > 99", "true", "100"},
		{"rate() > 100", "false", "100"},
		{"rate() >= 100 && block_rate() < 0.5", "true", "100"},
		{"!(rate() >= 100 && block_rate() < 0.5)", "false", "100"},
		{"rate() * block_rate() == 25 && 1 / 4 == 0.25", "true", "25"},
		{"-rate() < -99", "true", "-100"},
		{"instances() < 3", "unknown", "unknown"},
		{"instances() < 3 && rate() > 5", "unknown", "unknown"},
		{"instances() < 3 && rate() < 5", "false", "unknown"},
		{"rate() > 5 || instances() < 3", "true", "100"},
		{"rate() < 5 || instances() < 3", "unknown", "100"},
		{"!(rate() < 5 || instances() < 3)", "unknown", "100"},
		{"rate() / bans() > 1", "unknown", "unknown"},
		{"instances() * 0 == 0", "unknown", "unknown"},
	} {
		parsed, _ := condition(t, c.when)
		holds, left := "unknown", "unknown"
		if v, known := parsed.Holds(of); known {
			holds = fmt.Sprint(v)
		}
		if v, known := parsed.Left(of); known {
			left = fmt.Sprint(v)
		}
		if holds != c.holds || left != c.left {
			t.Errorf("%s: %s, left %s, want %s, left %s", c.when, holds, left, c.holds, c.left)
		}
	}
}

// TestConditionNegated compares conditions with their negations, and with what the findings say
// of them, for random values.
func TestConditionNegated(t *testing.T) {
	measures := []string{"rate()", `rate("login")`, "block_rate()", "bans()", "0", "0.5", "1", "2", "rate() + bans()", "1 - block_rate()"}
	ops := []string{"<", "<=", ">", ">=", "==", "!="}
	fixed := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		comparison := func() string {
			return fmt.Sprintf("%s %s %s", measures[r.IntN(len(measures))], ops[r.IntN(len(ops))], measures[r.IntN(len(measures))])
		}
		when := fmt.Sprintf("(%s) %s !(%s)", comparison(), []string{"&&", "||"}[r.IntN(2)], comparison())
		is, findings := condition(t, when)
		not, _ := condition(t, "!("+when+")")
		always, never := false, false
		for _, f := range findings {
			always = always || strings.Contains(f.Text, "always true")
			never = never || strings.Contains(f.Text, "always false")
		}
		if always || never {
			fixed++
		}
		for range 20 {
			unknown := r.IntN(5)
			values := map[rules.Measure]float64{}
			of := func(m rules.Measure) (float64, bool) {
				if _, ok := values[m]; !ok {
					values[m] = float64(r.IntN(4)) / 2
					if m.Name == "block_rate" {
						values[m] = float64(r.IntN(3)) / 2
					}
				}
				return values[m], unknown > 0
			}
			a, known := is.Holds(of)
			b, alsoKnown := not.Holds(of)
			if known != alsoKnown || known && a == b {
				t.Fatalf("%s: %t (known %t), and its negation %t (%t), by %v", when, a, known, b, alsoKnown, values)
			}
			if known && (always && !a || never && a) {
				t.Fatalf("%s: %t by %v, and the finding says otherwise: %v", when, a, values, findings)
			}
		}
	}
	if fixed < 10 {
		t.Errorf("%d conditions had a finding: too few to test that", fixed)
	}
}

func TestUsageExceeded(t *testing.T) {
	for _, c := range []struct {
		when           string
		capacity, left int64
		want           bool
	}{
		{"usage > 80% of login", 10, 2, false},
		{"usage > 80% of login", 10, 1, true},
		{"usage >= 80% of login", 10, 2, true},
		{"usage >= 80% of login", 10, 3, false},
		{"usage >= 100% of login", 10, 0, true},
		{"usage >= 100% of login", 10, 1, false},
		{"usage > 99.9% of login", 1_000_000, 1000, false},
		{"usage > 99.9% of login", 1_000_000, 999, true},
		{"usage > 80% of login", 0, 0, false},
	} {
		s, err := rules.Parse("r.yaml", []byte("rules: [{name: login, limits: [1 per 1s]}]\nalerts: [{name: a, when: "+c.when+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Alerts[0].Usage.Exceeded(c.capacity, c.capacity-c.left); got != c.want {
			t.Errorf("%s, %d of %d left: %t", c.when, c.left, c.capacity, got)
		}
	}
}

// What requests hold of a budget is not used; the places of an in-flight limit are.
func TestUsedOf(t *testing.T) {
	for _, c := range []struct {
		limit      string
		left, held int64
		want       int64
	}{
		{"10 per 1m", 3, 0, 7},
		{"10 per 1m fixed_window hold", 3, 5, 2},
		{"10 per 1m fixed_window hold", 0, 0, 10},
		{"10 per 1m fixed_window hold", 0, 12, 0}, // the amount was lowered while they held
		{"10 in_flight", 3, 7, 7},
		{"10 in_flight", 10, 0, 0},
	} {
		d := stint.Decision{Limit: stint.MustLimit("login: " + c.limit), Remaining: c.left, Held: c.held}
		if got := rules.UsedOf(d.Limit, &d); got != c.want {
			t.Errorf("%s with %d left and %d held: %d used, want %d", c.limit, c.left, c.held, got, c.want)
		}
	}
}

// Measures of holds are of rules that hold something.
func TestAlertsAboutHolds(t *testing.T) {
	const file = `rules:
  - {name: plain, limits: [1 per 1s]}
  - {name: chat, limits: [4 in_flight]}
  - {name: tiered, tiers: {gold: {limits: [9 per 1h fixed_window hold]}}, limits: [1 per 1s]}
tiers: {gold: "true"}
alerts: [{name: a, when: %q}]`
	for when, want := range map[string]string{
		`holds("chat") > 3`:                       "",
		`holds() > 3`:                             "",
		`hold_lost_rate("tiered") > 0`:            "",
		`cost_unknown_rate("chat") > 0.1`:         "",
		`holds("plain") > 3`:                      `rule "plain" holds nothing`,
		`hold_lost_rate("plain") > 0`:             `rule "plain" holds nothing`,
		`cost_unknown_rate("plain") > 0`:          `rule "plain" holds nothing`,
		`block_rate("plain") > 0.5 && rate() > 3`: "",
	} {
		_, err := rules.Parse("r.yaml", fmt.Appendf(nil, file, when))
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", when, err, want)
		}
	}
}

// Measured is the left side of the first comparison.
func TestMeasured(t *testing.T) {
	for when, want := range map[string]string{
		`block_rate("login") > 0.1`:                                        `block_rate("login")`,
		`(block_rate("a>b") + 1) * 2 >= 3`:                                 `(block_rate("a>b") + 1) * 2`,
		`(store_error_rate() > 0.01 || fallback_rate() > 0) && rate() > 1`: `store_error_rate()`,
		`((rate()) != 0)`:                                                  `(rate())`,
	} {
		a := rules.Alert{When: when, Condition: new(rules.Condition)}
		if got := a.Measured(); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	if got := (&rules.Alert{When: "usage > 80% of api"}).Measured(); got != "" {
		t.Errorf("of keys: %q", got)
	}
}
