package usage_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stintdev/stint/internal/usage"
)

func TestDocument(t *testing.T) {
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"%d": 0, `, i)
		}
		return "{" + b.String() + `"a": {"b": 1}}`
	}
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		body string
		want any
		err  string
	}{
		{` {"a": {"b": 5}} `, int64(5), ""},
		{`{"a": {"b": 1e999}}`, nil, "too large"},
		{`{"a": {"\u0062": "x"}}`, "x", ""},
		{`{"a": {"c": {"b": 1}}, "b": 2, "x": {"a": 1}}`, nil, ""},
		{`{"a": {"b": [1, {"c": 1.5}], "d": 1}, "d": 1, "d": 2}`, []any{int64(1), map[string]any{"c": 1.5}}, ""},
		{`{"a": {"b": "` + long + `"}}`, long, ""},
		{`{"A": {"b": 1}}`, nil, "another case"},
		{`{"a": {"B": 1}}`, nil, "another case"},
		{`{"a": {"c": 1}, "\u212a": 1}`, nil, ""},
		{"\ufeff{\"a\": {\"b\": 5}}", int64(5), ""},
		{"\ufeff\ufeff{}", nil, "not JSON"},
		{`{"a": {"b": 1}, "A": {}}`, nil, "given twice"},
		{`{"a": {"b": 1, "b": 1}}`, nil, "given twice"},
		{`{"a": {"b": 1, "\u0042": 1}}`, nil, "given twice"},
		{`{"a": [{"b": 1}]}`, nil, ""},
		{`{"a": "b"}`, nil, ""},
		{`{}`, nil, ""},
		{`{"a": {}}`, nil, ""},
		{`[1, {"a": {"b": 1}}]`, nil, ""},
		{`"a"`, nil, ""},
		{`{"a": {"b": 1}`, nil, "not JSON"},
		{`{"a": {"b": 1},}`, nil, "not JSON"},
		{``, nil, "not JSON"},
		{`{"a": {"b": 1}} x`, nil, "not JSON"},
		{"{\"a\": {\"b\": \"\xff\"}}", nil, "not UTF-8"},
		{many(9_999), int64(1), ""},
		{many(10_000), nil, "more than 10000 members"},
	} {
		d, err := usage.Parse([]byte(c.body))
		var got any
		var ok bool
		if err == nil {
			got, ok, err = d.Lookup([]string{"a", "b"})
		}
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%.60s: error %v, want %q", c.body, err, c.err)
			}
			continue
		}
		if err != nil || ok != (c.want != nil) || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%.60s: %.60v, %t, %v, want %.60v", c.body, got, ok, err, c.want)
		}
	}
}

// null is a value, and a name that is given twice is there.
func TestDocumentHas(t *testing.T) {
	d, err := usage.Parse([]byte(`{"a": null, "b": 1, "B": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok, err := d.Lookup([]string{"a"}); v != nil || !ok || err != nil {
		t.Errorf("null: %v, %t, %v", v, ok, err)
	}
	if !d.Has("a") || !d.Has("b") || d.Has("c") {
		t.Errorf("Has: %t %t %t", d.Has("a"), d.Has("b"), d.Has("c"))
	}
	if got := d.Start(); got != 1 {
		t.Errorf("Start = %d", got)
	}
}

// A member that has a name only by folding, as Go's decoder takes it, is an error.
func TestFoldedNames(t *testing.T) {
	for _, name := range []string{"Rows", "ROWS", "row\u017f", "\\u0052ows"} {
		d, err := usage.Parse([]byte(`{"` + name + `": 5}`))
		if err != nil {
			t.Fatal(err)
		}
		var decoded struct{ Rows int }
		if json.Unmarshal([]byte(`{"`+name+`": 5}`), &decoded); decoded.Rows != 5 {
			t.Errorf("%s: Go does not take it", name)
		}
		if _, _, err := d.Lookup([]string{"rows"}); !errors.Is(err, usage.ErrCase) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d, err := usage.Parse([]byte(`{"a": 1, "options": {"x": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"a": "1", "options": `{"x": 1}`, "options x": "1", "b": ""} {
		from, to, ok := d.Span(strings.Fields(path))
		if got := `{"a": 1, "options": {"x": 1}}`[from:to]; got != want || ok != (want != "") {
			t.Errorf("%s: %q, %t", path, got, ok)
		}
	}
}

// A Document has what encoding/json finds, or an error.
func FuzzDocument(f *testing.F) {
	for _, body := range []string{`{"a":{"b":1}}`, `{"a":{"b":[1,2.5,{"c":null}],"B":1}}`, ` [1]`, `{"a":{"b":"\ud800"}}`, "{\"\":0,\"a\":\"\"}"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := usage.Parse(body)
		body = bytes.TrimPrefix(body, []byte("\ufeff"))
		if err == nil != (json.Valid(body) && utf8.Valid(body)) {
			if err == nil || !strings.Contains(err.Error(), "more than") {
				t.Fatalf("Parse: %v", err)
			}
		}
		if err != nil {
			return
		}
		for _, path := range [][]string{{"a"}, {"a", "b"}, {""}} {
			got, ok, err := d.Lookup(path)
			if err != nil {
				continue
			}
			want, _ := model(body, [][]string{path})
			if want[0] != nil && !reflect.DeepEqual(got, want[0]) || ok && got != nil && want[0] == nil {
				t.Fatalf("%q: %v, %t, want %v", path, got, ok, want[0])
			}
		}
	})
}
