package stint_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/golden"
)

// translated are the pages that are there in Chinese. docs/zh-CN has pages of its own, too.
var translated = []string{
	"README.md",
	"docs/start/library.md", "docs/start/gateway.md", "docs/start/nginx.md", "docs/start/envoy.md", "docs/start/llm.md", "docs/start/fleet.md", "docs/start/numbers.md",
	"docs/recipes.md", "docs/rules.md", "docs/operations.md", "docs/cluster.md",
}

// behindNotice tells readers of a translation that the English page has changed since.
const behindNotice = "> 英文版已更新，本页尚未跟上。\n\n"

// Each translated page has the headings, blocks of code, tables and links of the English one, section
// by section. In code, comments may be translated. Its last line says which sections it was made from.
// When they change, the page is translated anew, or it says that it is behind: -update writes both.
func TestTranslations(t *testing.T) {
	for _, english := range translated {
		t.Run(english, func(t *testing.T) {
			chinese := chineseOf(english)
			from, to := readPage(t, english), readPage(t, chinese)
			for _, fault := range translationFaults(t, english, from, to) {
				t.Errorf("%s: %s", chinese, fault)
			}
			if behind := behindIn(from, to); len(behind) > 0 && !strings.Contains(to, behindNotice) {
				t.Logf("%s is behind in %q. Translate what changed there and delete its last line, or let its readers know by -update.", chinese, behind)
			}
			golden.File(t, chinese, followed(from, to))
		})
	}
}

// TestTranslations notices each kind of difference.
func TestTranslationFaults(t *testing.T) {
	const english, from = "docs/x.md", "# A\n\n[b](rules.md) `c`\n\n## B\n\n| d | e |\n|---|---|\n| f | g |\n\n```sh\nls /  # h\n```\n"
	const to = "# 甲\n\n`c` [乙](rules.md)\n\n## 乙\n\n| 丁 | 戊 |\n|---|---|\n| 己 | 庚 |\n\n```sh\nls /  # 辛\n```\n"
	rename := func(s string) string { return strings.ReplaceAll(s, "rules.md", "../rules-reference.md") }
	from1, to1 := strings.ReplaceAll(from, "rules.md", "rules-reference.md"), rename(to)
	if faults := translationFaults(t, english, from1, to1); len(faults) > 0 {
		t.Errorf("a right page: %q", faults)
	}
	for _, change := range [][2]string{
		{"## 乙", "### 乙"}, {"## 乙\n", "乙\n"}, {"ls /", "ls /tmp"}, {"```sh", "```text"}, {"  # 辛", "\nls"},
		{"| 己 | 庚 |\n", ""}, {"| 己 | 庚 |", "| 己 |"}, {"rules-reference.md", "redis.md"}, {"[乙]", "乙"},
	} {
		if changed := strings.Replace(to1, change[0], change[1], 1); changed == to1 || len(translationFaults(t, english, from1, changed)) == 0 {
			t.Errorf("%q in place of %q is not noticed", change[1], change[0])
		}
	}
	signed := to1 + signatureOf(from1)
	if behind := behindIn(from1, signed); len(behind) > 0 {
		t.Errorf("behind in %q", behind)
	}
	if behind := behindIn(strings.Replace(from1, "| f |", "| F |", 1), signed); !slices.Equal(behind, []string{"B"}) {
		t.Errorf("behind in %q, want B", behind)
	}
}

// chineseOf is where the translation of an English page is.
func chineseOf(english string) string {
	if english == "README.md" {
		return "README.zh-CN.md"
	}
	return "docs/zh-CN/" + strings.TrimPrefix(english, "docs/")
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pageSection is a heading of a page with all that follows up to the next.
type pageSection struct {
	heading string
	level   int
	code    []string // blocks, without their comments
	rows    []int    // of tables: how many columns each row has
	links   []string // sorted
}

var (
	codeComment = regexp.MustCompile(`(?m)(^|[ \t]+)(#|//).*$`)
	linkOrImage = regexp.MustCompile(`(?:\]\(|src(?:set)?=")([^)\s"]+)`)
)

// sectionsOf reads a page that is at path.
func sectionsOf(t *testing.T, path, text string) (all []pageSection) {
	t.Helper()
	for _, part := range splitSections(text) {
		var s pageSection
		for _, block := range fence.FindAllString(part, -1) {
			if !strings.HasPrefix(strings.TrimSpace(block), "```text") {
				block = codeComment.ReplaceAllString(block, "")
			}
			s.code = append(s.code, block)
		}
		prose := fence.ReplaceAllString(part, "")
		heading, _, _ := strings.Cut(prose, "\n")
		s.heading = strings.TrimLeft(heading, "# ")
		s.level = len(heading) - len(strings.TrimLeft(heading, "#"))
		for line := range strings.Lines(prose) {
			if strings.HasPrefix(line, "|") {
				s.rows = append(s.rows, strings.Count(inlineCode.ReplaceAllString(line, ""), "|")-1)
			}
		}
		for _, m := range linkOrImage.FindAllStringSubmatch(inlineCode.ReplaceAllString(prose, ""), -1) {
			if link := englishLink(t, path, m[1]); link != "" {
				s.links = append(s.links, link)
			}
		}
		slices.Sort(s.links)
		all = append(all, s)
	}
	return all
}

// splitSections cuts a page before each heading that is not in a block of code.
func splitSections(text string) (parts []string) {
	hidden := fence.ReplaceAllStringFunc(text, func(block string) string { return strings.Repeat("x", len(block)) })
	begin := 0
	for _, at := range regexp.MustCompile(`(?m)^#+ `).FindAllStringIndex(hidden, -1) {
		if at[0] > begin {
			parts = append(parts, text[begin:at[0]])
		}
		begin = at[0]
	}
	return append(parts, text[begin:])
}

// englishLink is what a link of a page means whatever the language: the English page, and the number of
// the heading in it. It is "" for what only one language has.
func englishLink(t *testing.T, page, link string) string {
	t.Helper()
	if strings.Contains(link, "://") {
		return link
	}
	target, anchor, _ := strings.Cut(link, "#")
	path := filepath.ToSlash(filepath.Join(filepath.Dir(page), target))
	if target == "" {
		path = page
	}
	inChinese, toChinese := strings.Contains(page, "zh-CN"), strings.Contains(path, "zh-CN")
	english := path
	if i := slices.IndexFunc(translated, func(e string) bool { return chineseOf(e) == path }); i >= 0 {
		english = translated[i]
	}
	switch {
	case toChinese != inChinese && english == "README.md":
		return "" // to the other language
	case toChinese && english == path:
		return "" // what is only there in Chinese
	case inChinese && !toChinese && slices.Contains(translated, path):
		return path + ", which is there in Chinese"
	case anchor == "":
		return english
	}
	return fmt.Sprintf("%s#%d", english, slices.Index(anchorsOf(t, path), anchor))
}

// translationFaults says where a translation differs from the page of which it is one.
func translationFaults(t *testing.T, english, from, to string) (faults []string) {
	t.Helper()
	a, b := sectionsOf(t, english, from), sectionsOf(t, chineseOf(english), to)
	if len(a) != len(b) {
		return []string{fmt.Sprintf("%d headings, want %d", len(b), len(a))}
	}
	for i := range a {
		differs := func(what string, got, want any) {
			if fmt.Sprint(got) != fmt.Sprint(want) {
				faults = append(faults, fmt.Sprintf("%q (%s): %s %v, want %v", b[i].heading, a[i].heading, what, got, want))
			}
		}
		differs("level", b[i].level, a[i].level)
		differs("columns of the rows of tables", b[i].rows, a[i].rows)
		differs("links", b[i].links, a[i].links)
		differs("blocks of code", strings.Join(b[i].code, "\n"), strings.Join(a[i].code, "\n"))
	}
	return faults
}

var signature = regexp.MustCompile(`\n<!-- translated from((?: [0-9a-f]{8})*) -->\n$`)

// signatureOf is the last line of a translation of a page: a digest of each section.
func signatureOf(english string) string {
	line := "\n<!-- translated from"
	for _, part := range splitSections(english) {
		line += fmt.Sprintf(" %x", sha256.Sum256([]byte(part)))[:9]
	}
	return line + " -->\n"
}

// behindIn are the headings of an English page that have changed since the translation was made.
func behindIn(english, chinese string) (headings []string) {
	had := signature.FindStringSubmatch(chinese)
	if had == nil {
		return []string{"everything"}
	}
	now := signature.FindStringSubmatch(signatureOf(english))
	for i, digest := range strings.Fields(now[1]) {
		if !slices.Contains(strings.Fields(had[1]), digest) {
			heading, _, _ := strings.Cut(splitSections(english)[i], "\n")
			headings = append(headings, strings.TrimLeft(heading, "# "))
		}
	}
	return headings
}

// followed is a translation that is signed, and that says whether it is behind the English page.
func followed(from, to string) string {
	to = strings.Replace(to, behindNotice, "", 1)
	if !signature.MatchString(to) {
		to = strings.TrimRight(to, "\n") + "\n" + signatureOf(from)
	}
	if len(behindIn(from, to)) > 0 {
		title, rest, _ := strings.Cut(to, "\n\n")
		to = title + "\n\n" + behindNotice + rest
	}
	return to
}
