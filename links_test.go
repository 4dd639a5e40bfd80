package stint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	fence      = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inlineCode = regexp.MustCompile("`[^`\n]*`")
)

// Every link of a page leads to a file of the repository, and to a heading that is there. The
// map, docs/README.md, links every page of docs.
func TestLinks(t *testing.T) {
	links := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	var pages []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			pages = append(pages, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string][]string{}
	anchors := func(path string) []string {
		if _, read := headings[path]; !read {
			headings[path] = anchorsOf(t, path)
		}
		return headings[path]
	}
	var fromMap []string
	count := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range links.FindAllStringSubmatch(inlineCode.ReplaceAllString(fence.ReplaceAllString(string(text), ""), ""), -1) {
			target, anchor, hasAnchor := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			count++
			path := filepath.Join(filepath.Dir(page), target)
			if target == "" {
				path = page
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: link %s: there is no such file", page, m[1])
				continue
			}
			if page == "docs/README.md" {
				fromMap = append(fromMap, path)
			}
			if hasAnchor && strings.HasSuffix(path, ".md") && !slices.Contains(anchors(path), anchor) {
				t.Errorf("%s: link %s: there is no such heading", page, m[1])
			}
		}
	}
	if count < 300 {
		t.Errorf("only %d links were found", count)
	}
	for _, page := range pages {
		if dir := strings.Replace(filepath.Dir(page), "docs/zh-CN", "docs", 1); (dir == "docs" || dir == "docs/start") && page != "docs/README.md" && !slices.Contains(fromMap, page) {
			t.Errorf("docs/README.md does not link %s", page)
		}
	}
}

// No version's section of the changelog is longer than somebody reads.
func TestChangelogIsRead(t *testing.T) {
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split(string(text), "\n## [")[1:] {
		if n := len(strings.Fields(section)); n > 1500 {
			t.Errorf("%d words, want 1,500 at most: %.20q…", n, section)
		}
	}
}

// anchorsOf are the names by which links reach the headings of a page, as GitHub makes them, and those
// that the page gives.
func anchorsOf(t *testing.T, path string) (anchors []string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	headings := regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	linked := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	for _, m := range headings.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, linked.ReplaceAllString(m[1], "$1"))
		anchors = append(anchors, anchor)
	}
	for _, m := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(string(text), -1) {
		anchors = append(anchors, m[1])
	}
	return anchors
}
