package config_test

import (
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/schema/rowtest"
	"github.com/stintdev/stint/server/config"
)

func TestRows(t *testing.T) { rowtest.Complete(t, config.Table(), 110) }

// Each word that a row lists is one, and its bounds are those that the parser has.
func TestRowsTellWhatIsRead(t *testing.T) {
	config.Table().Walk("", func(path string, row *schema.Row) {
		right, wrong := rowtest.Values(&row.Shape, "x")
		for _, text := range append(right, row.Default, row.Example) {
			if _, problem := with(path, text); problem != "" {
				t.Errorf("%s: %s is refused: %s", path, text, problem)
			}
		}
		for _, text := range wrong {
			if _, problem := with(path, text); problem == "" {
				t.Errorf("%s: %s is not refused", path, text)
			}
		}
	})
}

// aboutOthers are problems of a field with others that are missing.
var aboutOthers = regexp.MustCompile(`needs |go together|known by their certificates|is for an endpoint`)

// with is what a file that has text at path gives, and the problem in just that place.
func with(path, text string) (config.Settings, string) {
	before, after := "{server: ", "}"
	for name := range strings.SplitSeq(path, ".") {
		name, isList := strings.CutSuffix(name, "[]")
		before, after = before+"{"+name+": ", "}"+after
		if isList {
			before, after = before+"[", "]"+after
		}
	}
	s, err := read(before + text + after)
	if err != nil && text != "" {
		for line := range strings.Lines(err.Error()) {
			place, problem, _ := strings.Cut(strings.TrimPrefix(line, "stint.yaml:1:"), ": ")
			at, _ := strconv.Atoi(place)
			if at -= len([]rune(before)) + 1; at >= 0 && at <= len([]rune(text)) && !aboutOthers.MatchString(problem) {
				return s, problem
			}
		}
	}
	return s, ""
}

// Each row sets a field of the Settings, and each field is set by a row.
func TestRowsAndFields(t *testing.T) {
	set := map[string]bool{}
	config.Table().Walk("", func(path string, row *schema.Row) {
		if !row.Shape.IsScalar() && row.Kind != schema.KindList && (row.Kind != schema.KindNames || !row.Item.IsScalar()) {
			return
		}
		right, _ := rowtest.Values(&row.Shape, "x")
		n := 0
		for _, text := range append(right, row.Example) {
			if text == "" {
				continue
			}
			s, _ := with(path, text)
			n += differ(reflect.ValueOf(config.Default()), reflect.ValueOf(s), "", set)
		}
		if n == 0 {
			t.Errorf("%s changes nothing", path)
		}
	})
	exempt := map[string]bool{
		"Breaker.Changed": true, "CORS.Policy.DecidePreflights": true, // for programs
		"Check.Callers.Tokens.Scope": true, "Check.Callers.Clients.Scope": true, // of the admin API alone
	}
	leaves(reflect.TypeFor[config.Settings](), "", func(path string) {
		if !set[path] && !exempt[path] {
			t.Errorf("no row sets %s", path)
		}
	})
}

// isOpaque reports whether a type has no fields that files set.
func isOpaque(t reflect.Type) bool {
	return t.Kind() != reflect.Struct || t == reflect.TypeFor[url.URL]() || t == reflect.TypeFor[stint.Limit]()
}

func leaves(t reflect.Type, path string, visit func(string)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if isOpaque(t) {
		visit(path)
		return
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			leaves(f.Type, strings.TrimPrefix(path+"."+f.Name, "."), visit)
		}
	}
}

// differ notes the leaves in which b is not a, and returns how many there are.
func differ(a, b reflect.Value, path string, noted map[string]bool) (n int) {
	if b.Kind() == reflect.Slice && isOpaque(b.Type().Elem()) {
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			noted[path] = true
			return 1
		}
		return 0
	}
	for b.Kind() == reflect.Pointer || b.Kind() == reflect.Slice && b.Len() > 0 {
		next := func(v reflect.Value) reflect.Value {
			switch {
			case v.Kind() == reflect.Pointer && !v.IsNil():
				return v.Elem()
			case v.Kind() == reflect.Slice && v.Len() > 0:
				return v.Index(0)
			}
			return reflect.Value{}
		}
		if b = next(b); !b.IsValid() {
			return 0
		}
		if a = next(a); !a.IsValid() {
			a = reflect.Zero(b.Type())
		}
		if b.Kind() == reflect.Bool || isOpaque(b.Type()) && b.Kind() == reflect.Int64 { // a pointer to it says that it was given
			noted[path] = true
		}
	}
	if isOpaque(b.Type()) {
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			noted[path] = true
			n = 1
		}
		return n
	}
	for i := range b.NumField() {
		if f := b.Type().Field(i); f.IsExported() {
			n += differ(a.Field(i), b.Field(i), strings.TrimPrefix(path+"."+f.Name, "."), noted)
		}
	}
	return n
}
