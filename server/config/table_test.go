package config_test

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/server/config"
)

// Each row says what it is. TestLinks follows where it points to, in docs/settings.md.
func TestRows(t *testing.T) {
	n := 0
	config.Table().Walk("", func(path string, row *schema.Row) {
		n++
		switch {
		case !regexp.MustCompile(`^[A-Z][^\n]*\.$`).MatchString(row.Says):
			t.Errorf("%s says %q: want sentences", path, row.Says)
		case row.Default != "" && row.Computed != "":
			t.Errorf("%s has two values by default", path)
		case row.Required && (row.Default != "" || row.Computed != ""):
			t.Errorf("%s is needed, and has a value by default", path)
		case row.Default == "" && row.Example == "" && row.Shape.Kind != schema.KindMapping:
			t.Errorf("%s has no example", path)
		case row.Kind == schema.KindWords && row.Default == "" && !row.Required:
			t.Errorf("%s: no word of it is the default", path)
		}
	})
	if n < 110 {
		t.Errorf("%d rows", n)
	}
}

// Each word that a row lists is one, and its bounds are those that the parser has.
func TestRowsTellWhatIsRead(t *testing.T) {
	config.Table().Walk("", func(path string, row *schema.Row) {
		right, wrong := samples(&row.Shape)
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

// samples are values that a row of the shape must take, and some that it must refuse.
func samples(s *schema.Shape) (right, wrong []string) {
	outside := func(text, unit string, by int) string {
		number := strings.TrimRight(text, "KMGTiBsmh")
		n, err := strconv.Atoi(number)
		if err != nil {
			return "nothing"
		}
		return strconv.Itoa(n+by) + cmp.Or(text[len(number):], unit)
	}
	switch s.Kind {
	case schema.KindWords:
		right, wrong = s.Words, []string{"zzqx"}
	case schema.KindBool:
		right, wrong = []string{"true", "false"}, []string{"maybe", "1"}
	case schema.KindNumber, schema.KindDuration, schema.KindSize, schema.KindFloat:
		unit := ""
		if s.Kind == schema.KindDuration {
			unit = "s"
		}
		wrong = []string{"zzqx", "[]"}
		if s.Kind == schema.KindDuration {
			right = append(right, "7s")
		}
		if s.Least != "" && s.Least != "more than 0" {
			right, wrong = append(right, s.Least), append(wrong, outside(s.Least, unit, -1))
		} else if s.Least != "" {
			wrong = append(wrong, "0s", "-1s")
		}
		if s.Most != "" {
			right, wrong = append(right, s.Most), append(wrong, outside(s.Most, unit, 1))
		}
	case schema.KindList:
		wrong = []string{"1"}
	case schema.KindMapping, schema.KindNames:
		wrong = []string{"zzqx", "[zzqx]"}
	}
	for i := range s.Or { // whatever suits one of them is right
		more, _ := samples(&s.Or[i])
		right = append(right, more...)
		if s.Kind == schema.KindList || s.Or[i].Kind == schema.KindMapping {
			wrong = nil
		}
	}
	return right, wrong
}

// aboutOthers are problems of a field with others that are missing.
var aboutOthers = regexp.MustCompile(`needs|go together|known by their certificates|is for an endpoint`)

// with is what a file that has text at path gives, and the problem at just that place.
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
			if problem, ok := strings.CutPrefix(line, fmt.Sprintf("stint.yaml:1:%d: ", len([]rune(before))+1)); ok && !aboutOthers.MatchString(problem) {
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
		if !row.Shape.IsScalar() && row.Kind != schema.KindList {
			return
		}
		right, _ := samples(&row.Shape)
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
		"PerSecondStore": true, "Breaker.Changed": true, "CORS.Policy.DecidePreflights": true, // for programs
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
