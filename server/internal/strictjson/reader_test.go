package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// What the reader takes, it takes for what encoding/json does; and of what that
// takes, it refuses only what could be taken for something else.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `null`, ` [ true , false , null ] `, `{"a":[{"b":{}},"c"]}`, `-0`, `7`, `7.50`, `1e3`, `1E-400`, `9223372036854775808`, `1e999`,
		`"\"\\\/\b\f\n\r\t\u0000\u00e9\ud83d\ude00\uFFFD"`, `"\ud800"`, `"\ud800\u0041"`, `"é😀�"`, `{"a":1,"a":2}`, `{"\u0061":1,"a":2}`, "\"\xff\"", `"\u00g0"`, `"\x"`,
		"[" + strings.Repeat("[],", MaxDepth) + "0]",
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

// JSON has one kind of numbers: an int64 is read exactly, however it is written, and nothing else is one.
func TestWholeNumbers(t *testing.T) {
	for _, c := range []struct {
		text, want string
	}{
		{"0", "0"}, {"-0", "0"}, {"0.0", "0"}, {"-0.0e-7", "0"}, {"0e99999999999999999999", "0"}, {"0e-99999999999999999999", "0"},
		{"2", "2"}, {"2.0", "2"}, {"2.000e0", "2"}, {"1e1", "10"}, {"1E1", "10"}, {"1e+1", "10"}, {"20e-1", "2"}, {"2.5e1", "25"}, {"0.02e2", "2"}, {"-1.5e1", "-15"}, {"0.0001e4", "1"}, {"1000e-3", "1"},
		{"9007199254740993", "9007199254740993"}, {"9007199254740993.0", "9007199254740993"}, {"900719925474099.3e1", "9007199254740993"},
		{"1e18", "1000000000000000000"}, {"9223372036854775807.0", "9223372036854775807"}, {"9.223372036854775807e18", "9223372036854775807"}, {"-9.223372036854775808e18", "-9223372036854775808"},
		{"1.5", "want a whole number, have 1.5"}, {"1e-1", "want a whole number, have 1e-1"}, {"-0.1", "want a whole number, have -0.1"}, {"9007199254740993.5", "want a whole number, have 9007199254740993.5"},
		{"1e-99999999999999999999", "want a whole number, have 1e-99999999999999999999"}, {"0." + strings.Repeat("0", 400) + "1", "want a whole number, have 0.00000000000000000000000000000000000000"},
		{"1e400", "want a whole number that is less than 2^63, have 1e400"}, {"1e19", "want a whole number that is less than 2^63, have 1e19"}, {"9.3e18", "want a whole number that is less than 2^63, have 9.3e18"},
		{"9223372036854775808", "want a whole number that is less than 2^63, have 9223372036854775808"}, {"1e99999999999999999999", "want a whole number that is less than 2^63, have 1e99999999999999999999"},
		{`"2"`, "want a whole number"}, {"null", "want a whole number"}, {"01", "not JSON"}, {"1.", "not JSON"}, {"1e", "not JSON"}, {"-", "not JSON"}, {"1.5.5", "not JSON"}, {".5", "want a whole number"}, {"+1", "want a whole number"},
	} {
		r, err := New(c.text)
		if err != nil {
			t.Fatal(err)
		}
		n := int64(77)
		got := ""
		if err := r.ReadInt(&n); errors.Is(err, ErrSyntax) {
			got = "not JSON"
		} else if err != nil {
			got = err.Error()
		}
		if got == "" {
			got = strconv.FormatInt(n, 10)
		} else if n != 77 {
			t.Errorf("%s: an error, and the number is %d", c.text, n)
		}
		if got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.text, got, c.want)
		}
	}
	if far := "1e999999"; withoutExponent(far) != far {
		t.Error("a short text becomes a long number")
	}
}
