package schema_test

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/schema"
)

// propertyOf is the schema of a field of the shape.
func propertyOf(t *testing.T, shape schema.Shape) (p struct{ Type, Pattern any }) {
	t.Helper()
	var file struct{ Properties map[string]json.RawMessage }
	text := schema.JSONSchema("", "", schema.Rows{{Name: "x", Value: schema.Value{Shape: shape}}})
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file.Properties["x"], &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// The pattern of a duration matches what limittext.Period reads, but for what is too long or too short,
// and nothing else.
func TestPatternOfDurations(t *testing.T) {
	matches := func(least, most string) *regexp.Regexp {
		return regexp.MustCompile(propertyOf(t, schema.Shape{Kind: schema.KindDuration, Least: least, Most: most}).Pattern.(string))
	}
	notNegative, aboveZero, upToAnHour := matches("0s", ""), matches("more than 0", ""), matches("0s", "1h")
	texts := []string{"", "0", "-0", "+0", "0s", "-0s", "-0.0s", "1m30s", "7d", "+7d", "-7d", "07d", "0d", "1.5d", "99999d", "10µs", "10μs", ".5s", "5.s", ".s", "1h 2m", "1s0", "s", "10", "1e3s", "1D", "1M"}
	random := rand.New(rand.NewPCG(1, 2))
	pieces := strings.Fields("0 1 7 12 . - + s m h d ms us ns µs 5 x")
	for range 20_000 {
		var b strings.Builder
		for range 1 + random.IntN(5) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		texts = append(texts, b.String())
	}
	right := 0
	for _, text := range texts {
		d, err := limittext.Period(text)
		if strings.HasPrefix(text, "-") && d == 0 && strings.Trim(text, "-0.nuµmsh") != "" {
			continue // less than a nanosecond below 0
		}
		isRight := err == nil && d >= 0
		if isRight {
			right++
		}
		if isRight != notNegative.MatchString(text) {
			t.Errorf("%q: right %t, the pattern is of another opinion", text, isRight)
		}
		if isRight && d > 0 && !aboveZero.MatchString(text) || !isRight && aboveZero.MatchString(text) {
			t.Errorf("%q: above 0, the pattern is wrong", text)
		}
		if isRight && d <= time.Hour && !upToAnHour.MatchString(text) || upToAnHour.MatchString(text) && strings.HasSuffix(text, "d") {
			t.Errorf("%q: up to an hour, the pattern is wrong", text)
		}
	}
	if right < 500 {
		t.Errorf("%d durations", right)
	}
}

// A text whose pattern no number matches is no number.
func TestTypesOfScalars(t *testing.T) {
	for pattern, want := range map[string]string{
		"":               `["string","number","boolean"]`,
		"^[a-z]+$":       `["string","boolean"]`,
		"^[a-z]+://":     `"string"`,
		"^[0-9]{5}$":     `["string","number"]`,
		"^[0-9]{1,4}%$":  `"string"`,
		`^[0-9]+\.[0-9]`: `["string","number"]`,
	} {
		got, err := json.Marshal(propertyOf(t, schema.Scalar("x", pattern)).Type)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
}

// A mapping that occurs once stands where it is; one that occurs several times stands in $defs, and
// another of the same name has another.
func TestDefinitions(t *testing.T) {
	mapping := func(names ...string) schema.Value {
		return schema.Value{Shape: schema.Shape{Kind: schema.KindMapping, Rows: func() (rows schema.Rows) {
			for _, name := range names {
				rows = append(rows, schema.Row{Name: name, Says: "X.", Value: schema.Value{Shape: schema.Words("a")}})
			}
			return rows
		}}}
	}
	under := func(rows ...schema.Row) schema.Value {
		return schema.Value{Shape: schema.Shape{Kind: schema.KindMapping, Rows: func() schema.Rows { return rows }}}
	}
	text := schema.JSONSchema("i", "t", schema.Rows{
		{Name: "once", Value: mapping("o")},
		{Name: "tls", Says: "First.", Value: mapping("ca")}, {Name: "other", Says: "Second.", Value: mapping("ca")},
		{Name: "x", Value: under(schema.Row{Name: "tls", Value: mapping("cert")})},
		{Name: "y", Value: under(schema.Row{Name: "tls", Value: mapping("cert")}, schema.Row{Name: "z", Value: mapping("ca")})},
	})
	var got struct {
		Properties map[string]struct {
			Description string
			Ref         string `json:"$ref"`
			Properties  map[string]any
		}
		Defs map[string]struct{ Properties map[string]any } `json:"$defs"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	p := got.Properties
	first, second := strings.TrimPrefix(p["tls"].Ref, "#/$defs/"), strings.TrimPrefix(p["other"].Ref, "#/$defs/")
	if p["once"].Properties["o"] == nil || first != second || got.Defs[first].Properties["ca"] == nil || p["tls"].Description != "First." || p["other"].Description != "Second." {
		t.Errorf("got %s", text)
	}
	inner := p["x"].Properties["tls"].(map[string]any)["$ref"].(string)
	if def := got.Defs[strings.TrimPrefix(inner, "#/$defs/")]; len(got.Defs) != 2 || def.Properties["cert"] == nil {
		t.Errorf("got %s", text)
	}
}

func TestAnyCase(t *testing.T) {
	r := regexp.MustCompile("^" + schema.AnyCase("in_flight", "per", "h2c", "a.b") + "$")
	for text, want := range map[string]bool{"in_flight": true, "IN_Flight": true, "PER": true, "H2C": true, "a.b": true, "axb": false, "perr": false, "in": false} {
		if r.MatchString(text) != want {
			t.Errorf("%s: %t", text, !want)
		}
	}
}
