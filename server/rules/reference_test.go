package rules_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/errorformat"
	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/internal/message"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/server/rules"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

const referencePage = "../../docs/rules-reference.md"

// fieldGroups are the mappings of a rules file in the order of the page, by the paths of their rows.
// Those of the same fields elsewhere are not said again.
var fieldGroups = []struct{ title, path, says string }{
	{"The file", "", "All fields are optional. [settings.md](settings.md) has the section `server`."},
	{"A rule", "rules[].", "See [expressions](#expressions) and [texts of limits](#the-text-of-a-limit)."},
	{"A limit as a mapping", "rules[].limits[].", "Limits of tiers have the same fields."},
	{"A tier of a rule", "rules[].tiers.NAME.", ""},
	{"A penalty", "rules[].penalty.", penaltySays},
	{"Tokens of language models", "rules[].tokens.", "`tokens: openai` is short for `tokens: {api: openai}`."},
	{"Messages", "rules[].messages.", "Each is a line, or lines by language, such as `{en: …, de: …}`, with [placeholders](#placeholders-of-messages)."},
	{"The format of refusals", "refusal.", "A rule's `refusal` has the same fields, `errors` only `headers` and `bodies`. Texts have [placeholders](#placeholders-of-refusals-and-errors)."},
	{"A body of a refusal", "refusal.bodies.NAME.", "Instead of only a text."},
	{"The status of gRPC", "refusal.grpc.", ""},
	{"What may repeat", "repeatable.", ""},
	{"An alert", "alerts[].", "See the [conditions](#conditions-of-alerts)."},
}

// sameFields are mappings whose fields are those of others.
var sameFields = strings.NewReplacer("rules[].tiers.NAME.limits[].", "rules[].limits[].", "rules[].refusal.", "refusal.", "errors.", "refusal.")

func writeReference(t *testing.T, w io.Writer) {
	fmt.Fprint(w, `<!-- Made by: go test ./server/rules -run TestReference -update -->
# Reference of rules files

Every field of a rules file, every algorithm, and every name in expressions. [rules.md](rules.md) explains how they work together.

- A name has 1 to 64 of `+"`A-Z a-z 0-9 _ . : / -`"+`. `+"`NAME`"+` stands for one that the file chooses.
- Durations are like `+"`500ms`, `1m30s` or `7d`"+`. Ranges such as `+"`1 to 100`"+` are whole numbers.
- Quote texts that begin with a bracket, brace or quotation mark, or contain `+"`: `"+`.
`)
	for _, g := range fieldGroups {
		rows := rowsAt(g.path)
		fmt.Fprintf(w, "\n## %s\n\n", g.title)
		if g.says != "" {
			fmt.Fprintf(w, "%s\n\n", g.says)
		}
		schema.WriteTable(w, rows, strings.TrimSuffix(g.path, "."), linkToFields)
		if g.path == "rules[]." {
			writeLimits(t, w)
		}
	}
	writeConditions(w)
	writeExpressions(w)
	for _, p := range placeholders {
		fmt.Fprintf(w, "\n## %s\n\n%s\n\n| Placeholder | Stands for |\n| --- | --- |\n", p.title, p.says)
		for _, name := range p.names {
			fmt.Fprintf(w, "| `{%s}` | %s |\n", name, p.about[name])
		}
	}
}

// rowsAt returns the rows of the mapping at a path, without what is below them.
func rowsAt(of string) (rows schema.Rows) {
	rules.Table().Walk("", func(path string, row *schema.Row) {
		if strings.HasPrefix(path, of) && path[len(of):] == row.Name {
			alone := *row
			alone.Shape = withoutRows(alone.Shape)
			rows = append(rows, alone)
		}
	})
	return rows
}

func withoutRows(s schema.Shape) schema.Shape {
	if s.Kind == schema.KindMapping {
		s.Rows = func() schema.Rows { return nil }
	}
	if s.Item != nil {
		item := withoutRows(*s.Item)
		s.Item = &item
	}
	s.Or = slices.Clone(s.Or)
	for i := range s.Or {
		s.Or[i] = withoutRows(s.Or[i])
	}
	return s
}

// linkToFields leads from a field to the table of what is in it.
func linkToFields(path string, _ *schema.Row) string {
	for _, below := range []string{".", "[].", ".NAME."} {
		for _, g := range fieldGroups {
			if g.path == sameFields.Replace(path+below) {
				return "[fields](#" + strings.ReplaceAll(strings.ToLower(g.title), " ", "-") + ")"
			}
		}
	}
	return ""
}

func writeConditions(w io.Writer) {
	fmt.Fprint(w, "\n## Conditions of alerts\n\n"+conditionsSay+"\n\n| Function | Value |\n| --- | --- |\n")
	measures := rules.Measures()
	for _, m := range measuresSay {
		fmt.Fprintf(w, "| `%s` | %s |\n", strings.Join(measures[m.name], "`, `"), m.says)
	}
	fmt.Fprintf(w, "\nOUTCOME is one of `%s` ([what they are](metrics.md#outcomes)).\n", strings.Join(rules.AlertOutcomes(), "`, `"))
}

func writeExpressions(w io.Writer) {
	declared := expr.Declared()
	fmt.Fprint(w, "\n## Expressions\n\n"+expressionsSay+"\n")
	for _, after := range []bool{false, true} {
		if after {
			fmt.Fprint(w, "\n### Variables of cost_after\n\n")
		} else {
			fmt.Fprint(w, "\n### Variables\n\n")
		}
		fmt.Fprint(w, "| Variable | Type | What it is |\n| --- | --- | --- |\n")
		for _, v := range declared.Variables {
			if v.After == after {
				fmt.Fprintf(w, "| `%s` | `%s` | %s |\n", v.Name, v.Forms[0], variablesSay[v.Name])
			}
		}
	}
	fmt.Fprintf(w, "\n### Operators and macros\n\nThe operators are `%s` and `( )`.\n\n| Macro | What it does | Example |\n| --- | --- | --- |\n", strings.ReplaceAll(strings.Join(declared.Operators, "` `"), "|", `\|`))
	for _, m := range macrosSay {
		fmt.Fprintf(w, "| `%s` | %s | `%s` |\n", m.form, m.says, strings.ReplaceAll(m.example, "|", `\|`))
	}
	fmt.Fprint(w, "\n### Functions\n\nExamples are conditions that are true.\n\n| Function | Result | What it is | Example |\n| --- | --- | --- | --- |\n")
	for _, f := range declared.Functions {
		about := functionsSay[f.Name]
		forms, results := splitForms(f.Forms)
		fmt.Fprintf(w, "| `%s` | `%s` | %s | `%s` |\n", strings.Join(forms, "`<br>`"), strings.Join(results, "`, `"), about.says, about.example)
	}
}

// splitForms cuts "f(string) → int" and its other forms in two; forms have few different results.
func splitForms(all []string) (forms, results []string) {
	for _, f := range all {
		form, result, _ := strings.Cut(f, " → ")
		forms = append(forms, form)
		if !slices.Contains(results, result) {
			results = append(results, result)
		}
	}
	return forms, results
}

// docs/rules-reference.md is what the rows and the parser's declarations say, and has each field once.
func TestReference(t *testing.T) {
	var page bytes.Buffer
	writeReference(t, &page)
	golden.File(t, referencePage, page.String())
	rules.Table().Walk("", func(path string, _ *schema.Row) {
		path = sameFields.Replace(path)
		if n := strings.Count(page.String(), `<a id="`+path+`">`); n != 1 {
			t.Errorf("%s stands there %d times", path, n)
		}
	})
}

// What the page says of names, it says of those that there are, and of all of them.
func TestReferenceHasAllNames(t *testing.T) {
	declared := expr.Declared()
	names := func(all []expr.Declaration) (names []string) {
		for _, d := range all {
			names = append(names, d.Name)
		}
		return names
	}
	var macros, measures, known []string
	for _, m := range macrosSay {
		macros = append(macros, m.name)
	}
	for _, m := range measuresSay {
		measures = append(measures, m.name)
	}
	for name := range rules.Measures() {
		known = append(known, name)
	}
	for _, c := range []struct {
		what      string
		says, are []string
	}{
		{"variables", keys(variablesSay), names(declared.Variables)},
		{"functions", keys(functionsSay), names(declared.Functions)},
		{"macros", macros, declared.Macros},
		{"functions of alerts", measures, known},
		{"placeholders of messages", keys(placeholders[0].about), message.Placeholders[:]},
		{"placeholders of refusals", keys(placeholders[1].about), errorformat.Placeholders()},
	} {
		says, are := slices.Sorted(slices.Values(c.says)), slices.Sorted(slices.Values(c.are))
		if !slices.Equal(says, are) || len(are) < 6 {
			t.Errorf("%s: the page is about %q, and there are %q", c.what, says, are)
		}
	}
}

func keys[V any](m map[string]V) (all []string) {
	for k := range m {
		all = append(all, k)
	}
	return all
}

// The examples of functions and macros are conditions, and true, unless they need a request.
func TestReferenceExamples(t *testing.T) {
	examples := map[string]string{}
	for name, f := range functionsSay {
		examples[name] = f.example
	}
	for _, m := range macrosSay {
		examples[m.name] = m.example
	}
	computed := 0
	for name, example := range examples {
		if !strings.Contains(example, name) {
			t.Errorf("%s is not in its example, %s", name, example)
		}
		e, problems := expr.NewCompiler(t.Context()).Compile(example, expr.Condition)
		if e == nil {
			t.Errorf("%s: %s: %v", name, example, problems)
			continue
		}
		if len(e.Variables) > 0 {
			continue
		}
		computed++
		if ok, err := e.True(new(expr.Scope)); !ok || err != nil {
			t.Errorf("%s: %s is %t, %v", name, example, ok, err)
		}
	}
	if most := len(examples) - 3; computed < most { // cidr, hmac and list
		t.Errorf("%d of %d examples were computed", computed, most)
	}
}
