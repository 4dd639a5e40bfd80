package rules_test

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stintdev/stint/server/rules"
)

// Any JSON is a key that a rule could give and that is read back, or is refused.
func FuzzKeyJSON(f *testing.F) {
	for _, document := range []string{`"203.0.113.7"`, `["42","/x"]`, `["",""]`, `[""]`, `"\ud800"`, `"\ud83d\ude00"`, `"\\ud800"`, `["a",null]`, `"a\u0000"`, "\"\xff\"", `"\uFFFD<>&"`} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var k rules.Key
		if json.Unmarshal(document, &k) != nil {
			if k != "" {
				t.Errorf("refused, and yet read as %q", string(k))
			}
			return
		}
		written, err := json.Marshal(k)
		if err != nil {
			t.Fatalf("%q cannot be written: %v", string(k), err)
		}
		var again rules.Key
		if err := json.Unmarshal(written, &again); err != nil || again != k {
			t.Errorf("%q is read back as %q, %v", string(k), string(again), err)
		}
		parts, isList := k.Parts()
		if joined, err := rules.JoinKey(parts...); isList && (err != nil || joined != k) {
			t.Errorf("%q has the parts %q", string(k), parts)
		}
		var plain any
		if err := json.Unmarshal(document, &plain); err != nil {
			t.Fatal(err)
		}
		if text, ok := plain.(string); ok == isList || ok && text != string(k) || !utf8.ValidString(k.String()) {
			t.Errorf("%s is read as %q, and shown as %s", document, string(k), k)
		}
	})
}

// Any document is put into force as far as it makes sense, and what comes of it
// can be asked and explained, with the same answer.
func FuzzControls(f *testing.F) {
	sets := []*rules.Set{parse(f, controlled), parse(f, tiered)}
	for _, document := range []string{
		`{"enabled":false,"modes":{"api":"off","x":"shadow"}}`,
		`{"safelist":[{"id":"a","network":"203.0.113.0/24"},{"id":"b","match":"int(attrs.plan) == 1"}],"blocklist":[{"id":"c","match":"attrs.plan == \"gold\"","until":"2100-01-01T00:00:00Z"}]}`,
		`{"bans":[{"id":"a","rule":"api","key":"u"},{"id":"b","rule":"pair","key":["u","pair"],"until":"2001-01-01T00:00:00Z"},{"id":"c","network":"::/0"}]}`,
		`{"overrides":[{"id":"a","rule":"api","key":"u","times":1000000},{"id":"b","rule":"api","tier":"odd","limits":["1 per 1s"]},{"id":"b","rule":"api","tier":"gold","times":2}],"lifts":[{"rule":"api","key":"u"}]}`,
	} {
		f.Add([]byte(document))
	}
	inputs := []*rules.Input{{}, benchInput(), user("pair", "plan", "gold", "cost", int64(1)), user("quiet", "plan", "silver", "seats", "x")}
	f.Fuzz(func(t *testing.T, document []byte) {
		var c rules.Controls
		if json.Unmarshal(document, &c) != nil {
			return
		}
		for _, s := range sets {
			w, problems := s.With(&c)
			for _, p := range problems {
				if p.Text == "" || len(p.Text) > 2000 {
					t.Errorf("problem of %d bytes: %q", len(p.Text), p)
				}
			}
			for _, in := range inputs {
				var out rules.Plan
				checkAsks(t, w, in, &out)
				x, err := w.Explain(t.Context(), in)
				if err != nil {
					continue
				}
				var asks = slices.Clone(out.Asks[:0])
				for _, r := range x.Rules {
					asks = append(asks, r.Asks...)
				}
				if !slices.Equal(asks, out.Asks) || x.Ban != out.Ban || x.List != out.List {
					t.Errorf("Asks: %+v, Explain: %+v", out, x)
				}
			}
		}
	})
}
