package expr

import (
	"errors"
	"fmt"
	"testing"

	"cel.dev/cel-go/common/types"
)

// If this fails after an update, CEL tells what is missing in another way than
// isMissing knows: rules would refuse requests instead of not applying, or the
// reverse.
func TestIsMissing(t *testing.T) {
	if noSuchKey == nil {
		t.Fatal("no error was provoked")
	}
	s := &Scope{Variables: Variables{
		HasRequest: true, Headers: fixedFields{"x": "no such key: x"}, Query: fixedFields{}, IPv6Prefix: 64,
		Attrs: map[string]any{"list": []any{int64(1)}, "text": "no such key: gone", "map": map[string]any{}, "i": int64(0), "none": nil,
			"say": missingError{}.Error()},
	}}
	for source, want := range map[string]bool{
		`attrs.gone == 1`:                                            true,
		`attrs["gone"] == 1`:                                         true,
		`attrs[attrs.text] == 1`:                                     true,
		`attrs.map.gone.deeper == 1`:                                 true,
		`attrs.text.gone == 1`:                                       true,
		`attrs.none.gone == 1`:                                       true,
		`attrs.list[1] == 1`:                                         true,
		`attrs.list[-1] == 1`:                                        true,
		`attrs.list[attrs.i + 1] == 1`:                               true,
		`[1, 2][attrs.i - 1] == 1`:                                   true,
		`{"a": 1}[attrs.text] == 1`:                                  true,
		`request.headers.gone == ""`:                                 true,
		`request.headers[attrs.text] == ""`:                          true,
		`request.query.gone == ""`:                                   true,
		`request.path.split("/")[7] == ""`:                           true,
		`attrs.list.map(x, {"a": x})[0].b == 1`:                      true,
		`attrs.list.exists(x, attrs.gone == x)`:                      true,
		`size(attrs.gone) == 1`:                                      true,
		`attrs.gone ? true : false`:                                  true,
		`operation == ""`:                                            true,
		`client.ip == ""`:                                            true,
		`attrs.gone || operation == ""`:                              true,
		`int(attrs.text) == 1`:                                       false,
		`timestamp(attrs.text) == timestamp("2020-01-01T00:00:00Z")`: false,
		`duration(attrs.say) == duration("1s")`:                      false,
		`attrs.text in cidr("10.0.0.0/8")`:                           false,
		`request.headers.x in cidr("10.0.0.0/8")`:                    false,
		`attrs.text < attrs.i`:                                       false,
		`attrs.i / attrs.i == 1`:                                     false,
		`attrs.list["x"] == 1`:                                       false,
		`attrs.text.charAt(99) == ""`:                                false,
		`attrs.gone == 1 || attrs.i / attrs.i == 1`:                  false,
	} {
		e, problems := NewCompiler(t.Context()).Compile(source, Condition)
		if problems != nil {
			t.Errorf("%s: %v", source, problems)
			continue
		}
		_, _, err := e.program.Eval(s)
		if err == nil || isMissing(err) != want {
			t.Errorf("%s: %v: missing %t, want %t", source, err, isMissing(err), want)
		}
	}
	if isMissing(nil) || isMissing(errors.New("no such key: x")) || !isMissing(fmt.Errorf("x: %w", missing)) {
		t.Error("isMissing judges errors by their text")
	}
}

// Errors that requests share are never written to, which CEL does to those
// without an id.
func TestSharedErrorsHaveAnID(t *testing.T) {
	for _, v := range []any{missing, types.NoSuchOverloadErr(), types.String("0000-01-01T00:00:00Z").ConvertToType(types.TimestampType)} {
		if err, ok := v.(*types.Err); !ok || err.NodeID() == 0 {
			t.Errorf("%v has no id", v)
		}
	}
}

// Every variable that is declared is resolved, whatever is known.
func TestVariablesAreResolved(t *testing.T) {
	for _, in := range []Variables{{}, {HasRequest: true, Headers: fixedFields{}, Query: fixedFields{}}} {
		s := Scope{Variables: in}
		for _, v := range variables {
			if got, ok := s.ResolveName(v.name); !ok || got == nil {
				t.Errorf("%s is declared and not resolved", v.name)
			}
		}
		if _, ok := s.ResolveName("request.nope"); ok {
			t.Error("request.nope is resolved")
		}
		s.Close()
	}
}

// fixedFields are headers or parameters that do not change.
type fixedFields map[string]string

func (f fixedFields) Lookup(name string) (string, bool, error) {
	value, ok := f[name]
	return value, ok, nil
}

func (f fixedFields) All() (map[string]string, error) { return f, nil }
