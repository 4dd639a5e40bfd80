package rules_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// The files in these pages are rules files; those that are parts of one have no rules.
func TestRulesPage(t *testing.T) {
	for _, name := range []string{"rules.md", "tokens.md", "zh-CN/redis-designs.md"} {
		page, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files := 0
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
			if !strings.Contains(block[1], "rules:") {
				continue
			}
			files++
			if _, err := rules.Parse(name, []byte(block[1])); err != nil {
				t.Errorf("%v in\n%s", err, block[1])
			}
		}
		if files < 3 {
			t.Errorf("%s: %d files found", name, files)
		}
	}
}
