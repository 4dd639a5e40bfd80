package check

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stintdev/stint/server/internal/strictjson"
)

// Of what is no JSON that is told, in encoding/json's words, and of what is, it never
// is. Each of a list is read as it would be by itself, whatever was read in its place
// before.
func FuzzBatch(f *testing.F) {
	for _, body := range []string{
		``, ` `, `{}`, `[]`, ` [ { } , { } ] `, `null`, `[{}`, `[{},]`, `[,{}]`, `[{} {}]`, `[{}]]`, `[{}],`, `{}{}`, `[{]}`, `{"cost"}`, `{"cost":}`, `{"cost":1,}`, `{"cost" 1}`, `{,"cost":1}`, `[{}:{}]`, "[{}]\x00", "\x00",
		`{"cost":01}`, `{"cost":-}`, `{"cost":+1}`, `{"cost":1.}`, `{"cost":.5}`, `{"cost":1e}`, `{"cost":1-2}`, `{"cost":-0}`, `{"cost":nul}`, `{"cost":nullx}`, `{"attrs":{"x":tru}}`, `{"attrs":{"x":falsee}}`, `{"attrs":{"x":-1.5e+3,"y":1E-2,"z":0.0}}`,
		"{\"operation\":\"a\tb\"}", "{\"operation\":\"\\n\tb\"}", `{"operation":"\x41"}`, `{"operation":"\u12"}`, `{"operation":"\u12g4"}`, `{"operation":"\ud800\u+123"}`, `{"operation":"\ud800\udc00\/"}`, `{"operation":"\`, `{"operation":"`, "{\"operation\":\"\xff\"}",
		`[{"kost":1},{"cost":01}]`, `[{"kost":1},7,{"cost":1.5},{"operation":"\ud800"},[[]],"\"",{"request":{"headers":{"A":["b","c"],"d":null}},"client":"192.0.2.1"}]`, `[{"t_us":1},{"cost":"]"}]`,
		`[{"request":{"headers":{"a":"b"},"path":"/%zz"}},{"request":{"method":"GET","path":"/x?y","host":"A:1","query":{"a":"b"}}},{"request":null}]`,
		`{"attrs":{"x":` + strings.Repeat("[", strictjson.MaxDepth-2) + strings.Repeat("]", strictjson.MaxDepth-2) + `}}`, `{"attrs":{"x":` + strings.Repeat("[", strictjson.MaxDepth-1) + strings.Repeat("]", strictjson.MaxDepth-1) + `}}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := batches.Get().(*batch)
		defer b.free()
		several, err := b.read(string(body))
		if want := notJSON(body); want != nil {
			if err == nil || err.Error() != BadInput("%w", want).Error() {
				t.Fatalf("got %v, want %v", err, want)
			}
			return
		}
		if err != nil {
			told(t, err)
			return
		}
		each := []json.RawMessage{body}
		if several && json.Unmarshal(body, &each) != nil || len(each) != len(b.requests) {
			t.Fatalf("%d checks in %q", len(b.requests), body)
		}
		for i, one := range each {
			in, err := ReadInput(one)
			got := b.requests[i]
			if err != nil {
				told(t, err)
				if got.In != nil || got.Err == nil || got.Err.Error() != err.Error() {
					t.Errorf("%d: got %v and %v, want %v", i, got.In, got.Err, err)
				}
			} else if got.Err != nil || !reflect.DeepEqual(got.In, in) {
				t.Errorf("%d: got %+v and %v, want %+v", i, got.In, got.Err, in)
			}
		}
	})
}

// told fails if err says of JSON that it is none.
func told(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, strictjson.ErrSyntax) || strings.HasPrefix(err.Error(), "bad request: the JSON") || strings.HasPrefix(err.Error(), "bad request: empty") {
		t.Errorf("this is JSON: %v", err)
	}
}

func notJSON(body []byte) error {
	var any json.RawMessage
	switch err := json.Unmarshal(body, &any); {
	case !utf8.Valid(body):
		return errors.New("the JSON is not UTF-8")
	case strings.TrimSpace(string(body)) == "" && err != nil:
		return errors.New("empty: want a JSON object")
	case err != nil:
		return errors.New("the JSON cannot be read: " + err.Error())
	}
	return nil
}
