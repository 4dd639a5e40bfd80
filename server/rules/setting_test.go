package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// Whatever a rule has in its file is shown, in one line. A field that is new must be added here.
func TestSettings(t *testing.T) {
	const head = "tiers: {gold: attrs.plan == \"gold\"}\nrules:\n  - name: a\n    key: client.ip\n"
	_, err := rules.Parse("a.yaml", []byte(head+"    limits: [1 per 1s]\n    nothing: 1\n"))
	_, names, ok := strings.Cut(fmt.Sprint(err), "(fields: ")
	if !ok {
		t.Fatal(err)
	}
	names, _, _ = strings.Cut(names, ")")
	written := map[string]struct{ text, want string }{
		"tiers":            {"{gold: {limits: [20 per 1m, {algorithm: token_bucket, amount: 5, period: 1s}]}}", "{gold: {limits: [20 per 1m, {algorithm: token_bucket, amount: 5, period: 1s}]}}"},
		"penalty":          {"\n      # why\n      ban_after: 5\n      ban_for: 30m # that long", "{ban_after: 5, ban_for: 30m}"},
		"on_store_error":   {"deny", "deny"},
		"decision_timeout": {"50ms", "50ms"},
		"message":          {"\"Wait: {retry_after}\"", `"Wait: {retry_after}"`},
		"messages":         {"\n      limited: >-\n        Slow\n        down\n", `{limited: "Slow down"}`},
		"refusal":          {"\n      status: 420\n      bodies:\n        text/plain: |\n          No.\n", "{status: 420, bodies: {text/plain: \"No.\\n\"}}"},
		"shape":            {"true", "true"},
		"default":          {"true", "true"},
		"preflights":       {"true", "true"},
		"unsettled":        {"give_back", "give_back"},
		"unreadable_body":  {"refuse", "refuse"},
		"tokens":           {"openai", "openai"},
		"debt":             {"50%", "50%"},
		"max_hold":         {"10%", "10%"},
	}
	for name := range strings.SplitSeq(names, ", ") {
		switch name {
		case "name", "match", "key", "cost", "cost_after", "unit", "limits", "mode":
			continue
		}
		c, ok := written[name]
		if !ok {
			t.Errorf("%s is not tested", name)
			continue
		}
		limit, more := "1 per 1s", ""
		switch name {
		case "shape":
			limit += " leaky_bucket"
		case "unsettled", "max_hold", "tokens", "debt", "unreadable_body":
			limit += " fixed_window hold"
		}
		switch name {
		case "unsettled", "max_hold", "unreadable_body":
			more = "    cost: body.n\n    cost_after: response.json.n\n"
		case "on_store_error":
			more = "    mode: shadow\n"
		}
		set, err := rules.Parse("a.yaml", []byte(head+"    limits: ["+limit+"]\n"+more+"    "+name+": "+c.text+"\n"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := set.Rules[0].Settings; len(got) != 1 || got[0] != (rules.Setting{Name: name, Value: c.want}) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
