package strictjson

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// What the reader takes, it takes for what encoding/json does; and of what that
// takes, it refuses only what could be taken for something else.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `null`, ` [ true , false , null ] `, `{"a":[{"b":{}},"c"]}`, `-0`, `7`, `7.50`, `1e3`, `1E-400`, `9223372036854775808`, `1e999`,
		`"\"\\\/\b\f\n\r\t\u0000\u00e9\ud83d\ude00\uFFFD"`, `"\ud800"`, `"\ud800\u0041"`, `"é😀�"`, `{"a":1,"a":2}`, `{"\u0061":1,"a":2}`, "\"\xff\"",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var want any
		wantErr := d.Decode(&want)
		r, err := New(string(data))
		var got any
		if err == nil {
			got, err = r.Value()
			err = r.End(err)
		}
		if err != nil {
			if json.Valid(data) && !meant(err) {
				t.Errorf("refused: %v", err)
			}
			return
		}
		if wantErr != nil {
			t.Fatalf("took what is no JSON: %v", wantErr)
		}
		if want = numbers(want); !reflect.DeepEqual(got, want) {
			t.Errorf("got %#v, want %#v", got, want)
		}
		if rest := bytes.TrimSpace(data[r.at:]); len(rest) > 0 {
			t.Errorf("left %q", rest)
		}
	})
}

func meant(err error) bool {
	for _, text := range []string{"given twice", "surrogate", "out of range", "not UTF-8"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// numbers makes of the numbers in v what number would.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbers(v[k])
		}
	}
	return v
}
