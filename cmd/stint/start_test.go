package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The pages "Ten minutes with …" do what they say, and take no longer to read.
func TestStart(t *testing.T) {
	const mostWords = 600
	pages, err := filepath.Glob("../../docs/start/*.md")
	if err != nil || len(pages) != 7 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			if words := len(strings.Fields(readText(t, page))); words > mostWords {
				t.Errorf("%s has %d words, more than %d", page, words, mostWords)
			}
			runPage(t, page)
		})
	}
}
