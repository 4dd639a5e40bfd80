package rules_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// Each code has one section in docs/errors.md, and each section a code, in order.
func TestCodesAreDocumented(t *testing.T) {
	source, err := os.ReadFile("finding.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	found := func(pattern string, in []byte) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(in, -1) {
			all = append(all, string(m[1]))
		}
		return all
	}
	constants := found(`(?m)^\t[Cc]ode\w+ += "(ST\d{3})"`, source)
	if len(constants) == 0 || !slices.Equal(constants, rules.Codes()) {
		t.Errorf("constants %v, Codes %v", constants, rules.Codes())
	}
	if headings := found(`(?m)^## (ST\d{3}) \S`, text); !slices.Equal(headings, rules.Codes()) {
		t.Errorf("docs/errors.md has sections for %v, want %v", headings, rules.Codes())
	}
	if all := found(`(?m)^## (.*)`, text); len(all) != len(rules.Codes()) {
		t.Errorf("sections without a code: %q", all)
	}
}

// The examples in docs/errors.md are right: each is accepted and has no finding. That each code is found
// is tested beside what finds it.
func TestExamplesOfFindings(t *testing.T) {
	text, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(examples) == 0 {
		t.Error("no examples")
	}
	for _, m := range examples {
		if got := outcome(string(m[1])); strings.Contains(got, "warning ST") || !strings.HasPrefix(got, "enabled") {
			t.Errorf("%s%s", m[1], got)
		}
	}
}
