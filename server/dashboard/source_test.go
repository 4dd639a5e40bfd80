package dashboard

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// scripts are the texts of the page's own scripts, by name.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"static/*.js", "static/js/*.js", "static/js/pages/*.js"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(text)
		}
	}
	if len(all) < 10 {
		t.Fatalf("only %d scripts", len(all))
	}
	return all
}

const table = "static/js/texts.js"

func texts(t *testing.T) map[string][]string {
	t.Helper()
	source := scripts(t)[table]
	_, body, ok := strings.Cut(source, "export default ")
	if !ok {
		t.Fatal("no table")
	}
	var all map[string][]string
	if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimSpace(body), ";")), &all); err != nil {
		t.Fatal(err)
	}
	keys := regexp.MustCompile(`(?m)^  "([^"]+)": `).FindAllStringSubmatch(source, -1)
	if len(keys) != len(all) {
		t.Errorf("%d lines for %d texts: a key is there twice, or shares its line", len(keys), len(all))
	}
	return all
}

// TestTexts checks that both languages have every text, with the same values in it, and that
// Chinese is not a copy of English.
func TestTexts(t *testing.T) {
	value := regexp.MustCompile(`\{\w+\}`)
	han := regexp.MustCompile(`\p{Han}`)
	same := []string{"tile.p99", "offenders.title", "try.headers.example"} // the same in both
	for key, both := range texts(t) {
		if len(both) != 2 || strings.TrimSpace(both[0]) == "" || strings.TrimSpace(both[1]) == "" {
			t.Errorf("%s: not in both languages: %q", key, both)
			continue
		}
		en, zh := value.FindAllString(both[0], -1), value.FindAllString(both[1], -1)
		slices.Sort(en)
		slices.Sort(zh)
		if !slices.Equal(en, zh) {
			t.Errorf("%s: values %v and %v", key, en, zh)
		}
		if han.MatchString(both[0]) || (!han.MatchString(both[1]) && !slices.Contains(same, key)) {
			t.Errorf("%s: %q", key, both)
		}
	}
}

// TestTextsAreUsed checks that every key in a script is in the table, and the reverse. A key
// may be built of a fixed beginning, as in t(`nav.${name}`).
func TestTextsAreUsed(t *testing.T) {
	all := texts(t)
	fixed := regexp.MustCompile(`\b(?:t|maybe)\('([^']+)'`)
	built := regexp.MustCompile("\\b(?:t|maybe)\\(`([^`$]+)\\$\\{")
	used := map[string]bool{}
	for name, text := range scripts(t) {
		for _, m := range fixed.FindAllStringSubmatch(text, -1) {
			if used[m[1]] = true; all[m[1]] == nil {
				t.Errorf("%s: no text %q", name, m[1])
			}
		}
		for _, m := range built.FindAllStringSubmatch(text, -1) {
			found := false
			for key := range all {
				if strings.HasPrefix(key, m[1]) {
					used[key], found = true, true
				}
			}
			if !found {
				t.Errorf("%s: no text begins with %q", name, m[1])
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !used[key] {
			t.Errorf("the text %q is not used", key)
		}
	}
}

// TestScripts checks what the policy of the page and its readers rely on.
func TestScripts(t *testing.T) {
	unsafe := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|cssText|setAttribute\('style'|DOMParser|createContextualFragment|srcdoc =`)
	foreign := regexp.MustCompile(`https?://`)
	english := regexp.MustCompile(`h\('[a-z0-9]+', (?:\{[^{}]*\}|null), '[A-Z][a-z]+ `)
	for name, text := range scripts(t) {
		if lines := strings.Count(text, "\n"); lines >= 300 && name != table {
			t.Errorf("%s has %d lines", name, lines)
		}
		for i, line := range strings.Split(text, "\n") {
			if m := unsafe.FindString(line); m != "" && !strings.Contains(line, "forbidden =") {
				t.Errorf("%s:%d: %s", name, i+1, m)
			}
			if foreign.MatchString(line) && !strings.Contains(line, "www.w3.org/2000/svg") && name != table {
				t.Errorf("%s:%d: %s", name, i+1, line)
			}
			if english.MatchString(line) {
				t.Errorf("%s:%d: a text that is not in the table: %s", name, i+1, line)
			}
			if strings.Contains(line, "localStorage") && name != "static/js/text.js" && name != "static/early.js" {
				t.Errorf("%s:%d: only keep() and early.js use localStorage", name, i+1)
			}
		}
	}
}

// TestImports checks that every imported module and name is there, and that index.html and
// the styles load nothing else.
func TestImports(t *testing.T) {
	all := scripts(t)
	from := regexp.MustCompile(`(?s)import ?(?:\{([^}]*)\} from |(\w+) from )?\(?'(\.[^']+)'`)
	for name, text := range all {
		for _, m := range from.FindAllStringSubmatch(text, -1) {
			target := filepath.Join(filepath.Dir(name), m[3])
			source, ok := all[target]
			if !ok {
				t.Errorf("%s imports %s, which is not there", name, m[3])
			}
			for _, one := range strings.Split(m[1], ",") {
				one = strings.TrimSpace(one)
				if one == "" {
					continue
				}
				if !regexp.MustCompile(`export (?:async )?(?:function|const|class|let) ` + one + `\b`).MatchString(source) {
					t.Errorf("%s: %s does not export %s", name, m[3], one)
				}
				if n := len(regexp.MustCompile(`\b`+one+`\b`).FindAllString(text, -1)); n < 2 {
					t.Errorf("%s: %s is imported and not used", name, one)
				}
			}
		}
	}
	page, _ := os.ReadFile("static/index.html")
	for _, m := range regexp.MustCompile(`(?:href|src)="([^"]+)"`).FindAllStringSubmatch(string(page), -1) {
		if files()["/"+m[1]] == nil {
			t.Errorf("index.html loads %s, which is not there", m[1])
		}
	}
	if regexp.MustCompile(`<style|style=|<script>|\son[a-z]+="`).Match(page) {
		t.Error("index.html has a style or a script of its own")
	}
	styles, _ := filepath.Glob("static/*.css")
	for _, name := range styles {
		text, _ := os.ReadFile(name)
		if regexp.MustCompile(`url\(|@import`).Match(text) {
			t.Errorf("%s loads something", name)
		}
	}
}

var (
	atStart = regexp.MustCompile(`(?m)^import (?:[^'"]*? from )?'(\.[^']+)'`)
	later   = regexp.MustCompile(`\bimport\('(\.[^']+)'\)`)
)

// imported are the files that each script imports in one of these ways.
func imported(scripts map[string]string, ways ...*regexp.Regexp) map[string][]string {
	all := map[string][]string{}
	for name, text := range scripts {
		for _, way := range ways {
			for _, m := range way.FindAllStringSubmatch(text, -1) {
				all[name] = append(all[name], filepath.Join(filepath.Dir(name), m[1]))
			}
		}
	}
	return all
}

// TestNoCircles checks that no module imports itself by way of others. A module of a circle may
// run before one that it imports, and which one comes first depends on the page that is opened.
func TestNoCircles(t *testing.T) {
	all := scripts(t)
	imports := imported(all, atStart, later)
	word := regexp.MustCompile(`(?m)^import\b|\bimport\(`)
	for name, text := range all {
		if n := len(word.FindAllString(text, -1)); n != len(imports[name]) {
			t.Errorf("%s has %d imports, and this test reads %d", name, n, len(imports[name]))
		}
	}
	done := map[string]bool{}
	var visit func(name string, way []string)
	visit = func(name string, way []string) {
		if i := slices.Index(way, name); i >= 0 {
			t.Errorf("a circle of imports: %s", strings.Join(append(way[i:], name), " → "))
			return
		}
		if done[name] {
			return
		}
		for _, next := range imports[name] {
			visit(next, append(slices.Clone(way), name))
		}
		done[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		visit(name, nil)
	}
}

// TestPreloads checks that index.html names the modules that main.js needs to start, so that the
// browser asks for all of them at once and for no other.
func TestPreloads(t *testing.T) {
	const first = "static/js/main.js"
	imports := imported(scripts(t), atStart)
	needed := []string{first}
	for i := 0; i < len(needed); i++ {
		for _, next := range imports[needed[i]] {
			if !slices.Contains(needed, next) {
				needed = append(needed, next)
			}
		}
	}
	page, err := os.ReadFile("static/index.html")
	if err != nil {
		t.Fatal(err)
	}
	named := []string{first}
	for _, m := range regexp.MustCompile(`<link rel="modulepreload" href="([^"]+)">`).FindAllStringSubmatch(string(page), -1) {
		named = append(named, m[1])
	}
	slices.Sort(needed)
	slices.Sort(named)
	if !slices.Equal(named, needed) {
		t.Errorf("index.html preloads\n%q\nand main.js needs\n%q", named, needed)
	}
}
