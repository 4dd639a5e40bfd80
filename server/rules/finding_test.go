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

// Of the examples in docs/errors.md, those found in files show their finding, and
// their mended forms have none.
func TestExamplesOfFindings(t *testing.T) {
	text, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		code := section[:5]
		examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(section, -1)
		switch {
		case code == rules.CodeEviction, code == rules.CodeStoreSecrets, code == rules.CodeEverybody, code == rules.CodeUnlikeRules, code == rules.CodeCheckOpen, code == rules.CodeManyHolds:
			continue // not of a rules file
		case len(examples) != 2:
			t.Errorf("%s has %d examples: want one that shows it and one that is mended", code, len(examples))
			continue
		}
		got := outcome(examples[0][1])
		if atRunTime := code == rules.CodeNoProxies || code == rules.CodeClaimsUnknown || code == rules.CodeNoEnd || code == rules.CodeNoCost || code == rules.CodeEndpoint || code == rules.CodeImpatient || code == rules.CodeCORS; !strings.Contains(got, code) && !atRunTime {
			t.Errorf("%s is not found in its example:\n%s", code, got)
		}
		if got := outcome(examples[1][1]); strings.Contains(got, "warning ST") || !strings.HasPrefix(got, "enabled") {
			t.Errorf("%s: the mended form is not:\n%s", code, got)
		}
	}
}
