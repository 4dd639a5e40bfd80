package rules_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// folder is a new directory that holds these files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	return dir
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

// Of a directory, all files of rules are read, in the order of their names, links
// followed, and nothing else.
func TestReadDirectory(t *testing.T) {
	elsewhere := folder(t, map[string]string{"target": "linked"})
	dir := folder(t, map[string]string{"b.yaml": "B", "a.yml": "A", ".hidden.yaml": "x", "..data.yaml": "x", "readme.md": "x", "c.YAML": "x", "yaml": "x"})
	link(t, filepath.Join(elsewhere, "target"), filepath.Join(dir, "0.yaml"))
	link(t, elsewhere, filepath.Join(dir, "directory.yaml"))
	if err := os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := rules.Read(dir)
	if err != nil || said(files) != "0.yaml=linked a.yml=A b.yaml=B" {
		t.Errorf("%s, %v", said(files), err)
	}
	if len(files) > 0 && files[0].Name != filepath.Join(dir, "0.yaml") {
		t.Errorf("named %s", files[0].Name)
	}
	link(t, dir, filepath.Join(elsewhere, "link"))
	if files, err := rules.Read(filepath.Join(elsewhere, "link")); err != nil || len(files) != 3 {
		t.Errorf("by a link: %s, %v", said(files), err)
	}
}

func TestReadDirectoryErrors(t *testing.T) {
	many := t.TempDir()
	for i := range rules.MaxFiles + 1 {
		write(t, filepath.Join(many, fmt.Sprint(i, ".yaml")), "")
	}
	large := t.TempDir()
	for i := range 17 {
		path := filepath.Join(large, fmt.Sprint(i, ".yaml"))
		write(t, path, "")
		if err := os.Truncate(path, yamlnode.MaxFile); err != nil {
			t.Fatal(err)
		}
	}
	dangling := folder(t, map[string]string{"a.yaml": "A"})
	link(t, "nowhere", filepath.Join(dangling, "b.yaml"))
	for dir, want := range map[string]string{
		t.TempDir(): "no file in it ends in .yaml or .yml",
		folder(t, map[string]string{"a.json": "", ".b.yaml": ""}): "no file in it ends in .yaml or .yml",
		many:     "1001 files: at most 1000",
		large:    "71303168 bytes together: at most 67108864",
		dangling: "b.yaml: no such file or directory",
	} {
		if files, err := rules.Read(dir); err == nil || !strings.Contains(err.Error(), want) || files != nil {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := os.Remove(filepath.Join(many, "0.yaml")); err != nil {
		t.Fatal(err)
	}
	if files, err := rules.Read(many); err != nil || len(files) != rules.MaxFiles {
		t.Errorf("%d files, %v", len(files), err)
	}
	big := folder(t, map[string]string{"a.yaml": "rules: []", "b.yaml": "rules: []\n" + strings.Repeat("# x\n", yamlnode.MaxFile/4)})
	if _, err := rules.Load(big); err == nil || !strings.HasSuffix(err.Error(), "b.yaml:1:1: the file has 4194305 bytes: at most 4194304") {
		t.Errorf("big: %v", err)
	}
}

// Several files make one set, and what is wrong is told at its own place.
func TestParseFiles(t *testing.T) {
	for _, c := range []struct {
		about string
		files []string // a.yaml, b.yaml, …
		want  string   // what comes of it
	}{
		{"lists are appended", []string{
			"trusted_proxies: [10.0.0.1]\nblocklist: ['operation == \"a\"']\nrules: [{name: a, key: client.ip, limits: [1 per 1s]}]",
			"trusted_proxies: [10.0.0.2]\nrules: [{name: b, key: client.ip, limits: [1 per 1m]}]\nenabled: false",
			"ipv6_prefix: 48\nserver: {listen: whatever}",
		}, `enabled false, ipv6 /48, proxies [10.0.0.1/32 10.0.0.2/32]
a: enforce, on store error local, shape false, key client.ip
    1 per 1s (t1s:a)
b: enforce, on store error local, shape false, key client.ip
    1 per 1m (t1m:b)
`},
		{"some fields stand once", []string{"enabled: true\nserver: {}", "ipv6_prefix: 64", "rules: []\nenabled: true\nipv6_prefix: 64\nserver: {}"},
			`c.yaml:2:10: enabled is given twice, first at a.yaml:1: only one file may have it
c.yaml:3:14: ipv6_prefix is given twice, first at b.yaml:1: only one file may have it
c.yaml:4:9: server is given twice, first at a.yaml:2: only one file may have it
`},
		{"names are unique over all", []string{
			"rules:\n  - {name: a, key: client.ip, limits: [1 per 1s]}", "rules:\n\n  - {name: a, key: client.ip, limits: [1 per 1m]}"},
			"b.yaml:3:12: name \"a\": the rule at a.yaml:2 has it already (ST007)\n"},
		{"every file's problems", []string{"rulez: []", "rules: [5]", "rules: []", "rules: []\n\nenabled: 5"},
			`a.yaml:1:1: unknown field "rulez": did you mean rules? (fields: alerts, blocklist, credential_headers, enabled, errors, ipv6_prefix, nat64_prefixes, refusal, repeatable, rules, safelist, server, tiers, trusted_proxies)
b.yaml:1:9: want a mapping, have the number "5"
d.yaml:3:10: enabled: want true or false, have the number "5"
`},
		{"an empty file", []string{"rules: []", ""}, "b.yaml:1:1: the file is empty\n"},
		{"no files", nil, "rules: no files to read rules from\n"},
		{"findings over several", []string{
			"trusted_proxies: [0.0.0.0/1]\nrules: [{name: a, key: client.ip, limits: [1 per 1s]}]",
			"trusted_proxies: [0.0.0.0/0]\nrules: [{name: b, key: client.ip, limits: [1 per 1s]}]",
		}, `enabled true, ipv6 /64, proxies [0.0.0.0/1 0.0.0.0/0]
a: enforce, on store error local, shape false, key client.ip
    1 per 1s (t1s:a)
b: enforce, on store error local, shape false, key client.ip
    1 per 1s (t1s:b)
b.yaml:2:44: warning ST004: limit "1 per 1s" of rule "b" counts the same as rule "a": same match, key and period; only the smaller amount matters, so remove one
b.yaml:1:19: warning ST002: this network of trusted_proxies holds every IPv4 address, so every client can choose the address it is counted by: list only your own proxies
`},
	} {
		var files []rules.File
		for i, text := range c.files {
			files = append(files, rules.File{Name: string(rune('a'+i)) + ".yaml", Data: []byte(text)})
		}
		s, err := rules.ParseFiles(files)
		got := ""
		if err != nil {
			got = err.Error() + "\n"
		} else {
			got = describe(s)
		}
		if got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.about, got, c.want)
		}
	}
}

// A thousand files with nothing right do not fill the log.
func TestParseFilesProblems(t *testing.T) {
	files := make([]rules.File, 1000)
	for i := range files {
		files[i] = rules.File{Name: "a.yaml", Data: []byte("nothing: right")}
	}
	_, err := rules.ParseFiles(files)
	if err == nil || strings.Count(err.Error(), "\n") != 20 || !strings.HasSuffix(err.Error(), "\nrules: and 980 more files with problems") {
		t.Error(err)
	}
}

// Lists are bounded over all files together.
func TestParseFilesBounds(t *testing.T) {
	half := "trusted_proxies: [" + strings.Repeat("10.0.0.1, ", 600) + "]"
	_, err := rules.ParseFiles([]rules.File{{Name: "a.yaml", Data: []byte(half)}, {Name: "b.yaml", Data: []byte(half)}})
	if err == nil || err.Error() != "b.yaml:1:18: 1200 networks: at most 1000" {
		t.Error(err)
	}
}

// The version is that of the rules alone, wherever they lie and whatever is beside
// them.
func TestVersionOfFiles(t *testing.T) {
	version := func(texts ...string) string {
		t.Helper()
		var files []rules.File
		for i, text := range texts {
			files = append(files, rules.File{Name: fmt.Sprint(t.TempDir(), i), Data: []byte(text)})
		}
		s, err := rules.ParseFiles(files)
		if err != nil {
			t.Fatal(err)
		}
		return s.Version
	}
	a, b := "rules: []\n", "safelist: []\n"
	first := version(a, b)
	if again := version(a, b); again != first {
		t.Errorf("it depends on the names: %s, then %s", first, again)
	}
	s, err := rules.Parse("r.yaml", []byte(a))
	if err != nil || version(a) != s.Version {
		t.Error("one file in a directory is another version than the file alone")
	}
	all := map[string]bool{}
	rule := func(limits string) string { return "rules: [{name: r, key: client.ip, limits: [" + limits + "]}]\n" }
	different := [][]string{{a}, {b}, {a, b}, {b, a}, {a + b}, {"enabled: true\n"}, {"enabled: false\n"},
		{rule("1 per 1h")}, {rule("2 per 1h")}, {rule("1 per 1h, 2 per 1m")}, {rule("2 per 1m, 1 per 1h")}}
	for _, texts := range different {
		all[version(texts...)] = true
	}
	if len(all) != len(different) {
		t.Errorf("%d sets of rules have %d versions", len(different), len(all))
	}
	for _, same := range []string{"server: {listen: ':1'}\n" + a, a + "server:\n  store: memory\n  listen: ':2'\n", "# why\nrules:  [] # none\n"} {
		if v := version(same); v != version(a) || rules.VersionOf(same) != v {
			t.Errorf("%q has version %s", same, v)
		}
	}
	if version("server: {store: memory}\n", a) != version(a) {
		t.Error("a file with settings alone counts")
	}
}
