package rules_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

func TestKeyJSON(t *testing.T) {
	for _, c := range []struct {
		document, shown string
		parts           []string
		isList          bool
	}{
		{`"203.0.113.7"`, `203.0.113.7`, []string{"203.0.113.7"}, false},
		{`["42","/x"]`, `["42","/x"]`, []string{"42", "/x"}, true},
		{`["42"]`, `["42"]`, []string{"42"}, true},
		{`["","x",""]`, `["","x",""]`, []string{"", "x", ""}, true},
		{`"[\"42\",\"/x\"]"`, `"[\"42\",\"/x\"]"`, []string{`["42","/x"]`}, false},
		{`"two words"`, `"two words"`, []string{"two words"}, false},
		{`"é😀�"`, `é😀�`, []string{"é😀�"}, false},
	} {
		var k rules.Key
		if err := json.Unmarshal([]byte(c.document), &k); err != nil {
			t.Fatal(err)
		}
		if k.String() != c.shown {
			t.Errorf("%s is shown as %s", c.document, k)
		}
		parts, isList := k.Parts()
		if !slices.Equal(parts, c.parts) || isList != c.isList {
			t.Errorf("%s has the parts %q, list %t", c.document, parts, isList)
		}
		if again, err := json.Marshal(k); string(again) != c.document || err != nil {
			t.Errorf("%s is written as %s, %v", c.document, again, err)
		}
	}
	for document, want := range map[string]string{
		`""`:               "key: it is empty",
		`[]`:               "key: it is empty",
		`["",""]`:          "key: it is empty",
		`null`:             `key: want a string, or a list of strings such as ["42", "/x"]`,
		`{"a":"b"}`:        `key: want a string, or a list of strings such as ["42", "/x"]`,
		`42`:               `key: want a string, or a list of strings such as ["42", "/x"]`,
		`["a",42]`:         `key: part 2 is not a string: write a number or a bool as one, such as "42"`,
		`["a",null]`:       `key: part 2 is not a string: write a number or a bool as one, such as "42"`,
		`"a\u0000"`:        "key: it contains a NUL byte; write a list of parts as a list",
		`"a\u0000b"`:       "key: it contains a NUL byte, and is not a list",
		`["a\u0000b"]`:     "key: a part contains a NUL byte",
		`"\ud800"`:         "key: an escape is half of a surrogate pair",
		`"\ude00\ud83d"`:   "key: an escape is half of a surrogate pair",
		`["\ud83d\u0041"]`: "key: an escape is half of a surrogate pair",
		"\"\xff\"":         "key: it is not valid UTF-8",
		`"` + strings.Repeat("x", stint.MaxKey+1) + `"`: "key: it is longer than 4096 bytes",
		`["` + strings.Repeat("x", stint.MaxKey) + `"]`: "key: it is longer than 4096 bytes",
	} {
		k := rules.Key("before")
		if err := json.Unmarshal([]byte(document), &k); err == nil || err.Error() != want || k != "before" {
			t.Errorf("%.50s: got %v, want %s", document, err, want)
		}
	}
	var k rules.Key
	if err := json.Unmarshal([]byte(`"\\ud800 \ud83d\ude00"`), &k); err != nil || k != `\ud800 😀` {
		t.Errorf("got %q, %v", string(k), err)
	}
	for _, k := range []rules.Key{"", "\x00", "a\x00b", "\xff", "\x00\x00"} {
		if text, err := json.Marshal(k); err == nil {
			t.Errorf("%q is no key, and is written as %s", string(k), text)
		}
	}
}

// JoinKey makes what a rule makes.
func TestJoinKey(t *testing.T) {
	s := one(t, "key: attrs.k")
	for _, parts := range [][]string{
		{"a"}, {"a", "b"}, {"", "a"}, {"a", ""}, {""}, {"", "", ""}, {}, {"a\x00"}, {"\xff"}, {"é", "1"},
		{strings.Repeat("x", stint.MaxKey-1)}, {strings.Repeat("x", stint.MaxKey)},
	} {
		list := make([]any, len(parts))
		for i, part := range parts {
			list[i] = part
		}
		var out rules.Plan
		asksErr := s.Asks(&rules.Input{Attrs: map[string]any{"k": list}}, &out)
		k, err := rules.JoinKey(parts...)
		if (err == nil) != (asksErr == nil) {
			t.Errorf("%.50q: JoinKey: %v, Asks: %v", parts, err, asksErr)
		}
		if err == nil && out.Asks[0].Key != string(k) {
			t.Errorf("%.50q: JoinKey makes %q, the rule %q", parts, string(k), out.Asks[0].Key)
		}
	}
}
