package rules_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// The example of docs/envoy.md is read, and its rules have the names that it says.
func TestDescriptorsInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Descriptors\n")
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(section)
	if example == nil {
		t.Fatal("no example")
	}
	var names []string
	for _, r := range envoy(t, example[1]).Rules {
		names = append(names, r.Name)
	}
	var said []string
	for _, m := range regexp.MustCompile(`# the rule ([^ ,\n]+)`).FindAllStringSubmatch(example[1], -1) {
		said = append(said, m[1])
	}
	said = append(said, "shop::overrides")
	if strings.Join(names, " ") != strings.Join(said, " ") {
		t.Errorf("rules %q, the page says %q", names, said)
	}
	_, err = rules.ParseFiles([]rules.File{{Name: "config/shop.yaml", Envoy: true, Data: []byte("domain: shop\ndescriptors:\n  - key: path\n    value: /login\n    descriptors: []\n  - key: a\n    rate_limit: {unit: fortnight, requests_per_unit: 1}\n")}})
	if err == nil || !strings.Contains(section, err.Error()) {
		t.Errorf("the page does not have the error %v", err)
	}
}
