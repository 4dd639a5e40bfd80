package server_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/traces.md has each attribute of spans, and no other.
func TestTracesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/traces.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"(stint\.[a-z_.]+|http\.[a-z_.]+|url\.[a-z]+|client\.address|server\.address|network\.[a-z.]+|rpc\.[a-z_.]+|error\.type)"`)
	made := map[string]bool{}
	for _, pattern := range []string{"traces*.go", "internal/watch/*.go", "../otellimit/*.go"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range names.FindAllStringSubmatch(string(text), -1) {
				made[m[1]] = true
			}
		}
	}
	for _, metric := range []string{"stint.decisions", "stint.store.duration"} { // of otellimit's own page
		delete(made, metric)
	}
	if len(made) < 20 {
		t.Fatalf("only %d attributes were found", len(made))
	}
	for name := range made {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/traces.md has no %s", name)
		}
	}
	for _, m := range regexp.MustCompile("`(stint\\.[a-z_.]+)`").FindAllStringSubmatch(string(page), -1) {
		if !made[m[1]] {
			t.Errorf("docs/traces.md has %s, which no span has", m[1])
		}
	}
}
