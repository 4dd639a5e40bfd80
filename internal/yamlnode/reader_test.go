package yamlnode_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/yamlnode"
)

type server struct {
	listen    string
	debug     bool
	workers   int64
	timeout   time.Duration
	algorithm algo.Kind
	hosts     []string
	others    []algo.Kind
}

// read is how a package reads its own section of a file that others read too.
func read(file string) (server, error) {
	s := server{listen: ":8080", timeout: time.Second}
	r, root := yamlnode.Open("f.yaml", []byte(file))
	r.Mapping(root, yamlnode.Fields{
		"": r.Skip,
		"server": func(n *yamlnode.Node) {
			found := r.Mapping(n, yamlnode.Fields{
				"listen":    r.Text(&s.listen),
				"debug":     r.Bool(&s.debug),
				"workers":   r.Int64(&s.workers, 1, 64),
				"timeout":   r.Period(&s.timeout),
				"algorithm": yamlnode.Parsed(r, &s.algorithm, algo.ParseKind),
				"hosts": func(n *yamlnode.Node) {
					r.Each(n, func(n *yamlnode.Node) {
						var host string
						r.Text(&host)(n)
						s.hosts = append(s.hosts, host)
					})
				},
				"algorithms": yamlnode.List(r, &s.others, algo.ParseKind),
			})
			if found != nil && found["workers"] == nil {
				r.Report(n, "the server has no workers")
			}
		},
	})
	return s, r.Err()
}

func TestSection(t *testing.T) {
	s, err := read(`
rules: [whatever, {there: is}]
server:
  workers: 8
  debug: True
  timeout: 7d
  algorithm: sliding_log
  hosts: [a, "b"]
  algorithms: [fixed_window, token_bucket]
`)
	want := server{":8080", true, 8, 7 * 24 * time.Hour, algo.SlidingLog, []string{"a", "b"}, []algo.Kind{algo.FixedWindow, algo.TokenBucket}}
	if err != nil || fmt.Sprint(s) != fmt.Sprint(want) {
		t.Errorf("got %+v, %v; want %+v", s, err, want)
	}
}

func TestProblemsAreSorted(t *testing.T) {
	s, err := read(`
server:
  listen: 8080
  timout: 5s
  timeout: 5 seconds
  debug: yes
  algorithm: magic
  hosts: [a, 5, [b]]
  algorithms: [fixed_window, magic]
`)
	const want = `f.yaml:3:3: the server has no workers
f.yaml:3:11: want text, have the number "8080" (quote it: "8080")
f.yaml:4:3: unknown field "timout": did you mean timeout? (fields: algorithm, algorithms, debug, hosts, listen, timeout, workers)
f.yaml:5:12: period "5 seconds": write 5s
f.yaml:6:10: debug: want true or false, have the text "yes"
f.yaml:7:14: unknown algorithm "magic": one of token_bucket, leaky_bucket, fixed_window, sliding_log, sliding_window, in_flight
f.yaml:8:14: want text, have the number "5" (quote it: "5")
f.yaml:8:17: want text, have a list
f.yaml:9:30: unknown algorithm "magic": one of token_bucket, leaky_bucket, fixed_window, sliding_log, sliding_window, in_flight`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if s.listen != ":8080" || s.timeout != time.Second || s.others != nil {
		t.Errorf("what cannot be read changed what was there: %+v", s)
	}
}

// A list that is empty is not one that is missing.
func TestEmptyList(t *testing.T) {
	if s, err := read("server: {workers: 1, algorithms: []}"); err != nil || s.others == nil || len(s.others) != 0 {
		t.Errorf("%#v, %v", s.others, err)
	}
	if s, err := read("server: {workers: 1}"); err != nil || s.others != nil {
		t.Errorf("%#v, %v", s.others, err)
	}
}

func TestErrorNamesTheFirstTwenty(t *testing.T) {
	for _, n := range []int{1, 20, 21, 5000} {
		r, root := yamlnode.Open("f.yaml", []byte(strings.Repeat("- x\n", n)))
		r.Each(root, r.Bool(new(bool)))
		var e *yamlnode.Error
		if !errors.As(r.Err(), &e) || len(e.Problems) != min(n, 20) || e.More != n-len(e.Problems) || r.Problems() != n {
			t.Errorf("%d problems: told %d and %d more", n, len(e.Problems), e.More)
		}
		if want := (yamlnode.Problem{Line: 1, Column: 3, Text: `want true or false, have the text "x"`}); e.Problems[0] != want {
			t.Errorf("first: %+v, want %+v", e.Problems[0], want)
		}
		if more := strings.HasSuffix(e.Error(), fmt.Sprintf("\nf.yaml: and %d more", e.More)); more != (e.More > 0) {
			t.Errorf("%d problems:\n%s", n, e)
		}
	}
}

func TestNilNode(t *testing.T) {
	r, root := yamlnode.Open("f.yaml", nil)
	var text string
	r.Text(&text)(root)
	r.Mapping(root, nil)
	r.Each(root, nil)
	r.Report(root, "x")
	r.Period(new(time.Duration))(root)
	if root != nil || r.Err() == nil || r.Err().Error() != "f.yaml:1:1: the file is empty" {
		t.Errorf("got %v", r.Err())
	}
}

func TestLongestFile(t *testing.T) {
	file := "a: 1 #" + strings.Repeat("x", yamlnode.MaxFile-6)
	if r, _ := yamlnode.Open("f.yaml", []byte(file)); r.Err() != nil {
		t.Error(r.Err())
	}
	r, root := yamlnode.Open("f.yaml", []byte(file+"x"))
	if root != nil || r.Err() == nil || r.Err().Error() != "f.yaml:1:1: the file has 4194305 bytes: at most 4194304" {
		t.Errorf("got %v", r.Err())
	}
}

// Deep nesting is refused by package yaml before it could hurt.
func TestDeepFile(t *testing.T) {
	for _, file := range []string{strings.Repeat("[", 1<<20), strings.Repeat("{a: ", 1<<20), strings.Repeat("- ", 1<<20), strings.Repeat("? ", 1<<20)} {
		r, root := yamlnode.Open("f.yaml", []byte(file))
		if root != nil || r.Err() == nil {
			t.Errorf("%s… was read", file[:8])
		}
	}
}

func TestCharacters(t *testing.T) {
	for file, want := range map[string]string{
		"a: \"\x00\"":                   "f.yaml:1:5: the character U+0000 is not allowed",
		"a: b\nü: \x1b[31m":             "f.yaml:2:4: the character U+001B is not allowed",
		"a: b\r\nc: \x7f":               "f.yaml:2:4: the character U+007F is not allowed",
		"a: \xc3\x28":                   "f.yaml:1:4: not valid UTF-8",
		"a: \ufeff":                     "f.yaml:1:4: the character U+FEFF is not allowed",
		"\ufeffa: \"\u0085\u00a0é😀\t\"": "",
	} {
		r, _ := yamlnode.Open("f.yaml", []byte(file))
		got := ""
		if r.Err() != nil {
			got = r.Err().Error()
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", file, got, want)
		}
	}
}

// Every character of a text is found where the file has it.
func TestPosition(t *testing.T) {
	for _, c := range []struct {
		what, file string
		want       map[string]string // a part of the text → its line:column
	}{
		{"plain", "k:   ab  cdé f # x", map[string]string{"ab": "1:6", "cd": "1:10", "f": "1:14"}},
		{"single quotes", `k: 'a ''b'' c'`, map[string]string{"a": "1:5", "'b": "1:7", "b": "1:9", "c": "1:13"}},
		{"double quotes", `k: "\"é\" \x41 \u0042 \U00000043 \\ d"`, map[string]string{`"é`: "1:5", "é": "1:7", "A": "1:11", "B": "1:16", "C": "1:23", `\`: "1:34", "d": "1:37"}},
		{"in a flow", "k: [{v: [a, 'x y']}]", map[string]string{"x": "1:14", "y": "1:16"}},
		{"literal", "a: 1\nk: |\n  one\n\n    two ü three\n", map[string]string{"one": "3:3", "two": "5:5", "three": "5:11"}},
		{"literal, its first lines empty", "k: |\n\n\n   one\n  \n   two", map[string]string{"one": "4:4", "two": "6:4"}},
		{"literal, indentation given", "k: |2-\n    one\n  two", map[string]string{"one": "2:5", "two": "3:3"}},
		{"literal, Windows", "k: |\r\n  one\r\n  two\r\n", map[string]string{"one": "2:3", "two": "3:3"}},
		{"folded: only where it begins", "k: >\n  one\n  two", map[string]string{"one": "1:4", "two": "1:4"}},
		{"plain on two lines: what is on the first", "k: one\n  two", map[string]string{"one": "1:4", "two": "1:4"}},
		{"quoted on two lines: what is on the first", "k: 'one x\n  two'", map[string]string{"x": "1:9", "two": "1:4"}},
		{"after a byte order mark", "\ufeffk: ab cd", map[string]string{"cd": "1:7"}},
	} {
		for part, want := range c.want {
			r, root := yamlnode.Open("f", []byte(c.file))
			n := last(root)
			at := strings.Index(n.Value, part)
			if at < 0 {
				t.Fatalf("%s: no %q in %q", c.what, part, n.Value)
			}
			r.ReportWithin(n, len([]rune(n.Value[:at])), "x")
			if got := r.Err().Error(); got != "f:"+want+": x" {
				t.Errorf("%s: %q: got %s, want %s", c.what, part, got, want)
			}
		}
	}
}

// last is the last scalar under n.
func last(n *yamlnode.Node) *yamlnode.Node {
	for len(n.Content) > 0 {
		n = n.Content[len(n.Content)-1]
	}
	return n
}

// Any bytes are read or refused, and every place reported is in the file.
func FuzzOpen(f *testing.F) {
	for _, file := range []string{"a: 1", "- [x, {y: 'z'}]", "k: |2-\n    one\n  two", "a: &b c\nd: *b", "\"\\x41\\u", "? [a]\n: b", "<<: {a: b}", "--- a\n--- b", "!!int 5", "k: >\n a\n\n b"} {
		f.Add([]byte(file))
	}
	f.Add([]byte("\u2029\u2029\u2029⨀"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, root := yamlnode.Open("f", data)
		var walk func(n *yamlnode.Node)
		walk = func(n *yamlnode.Node) {
			for i := range len(n.Value) + 2 {
				if i < 50 {
					r.ReportWithin(n, i, "x")
				}
			}
			for _, child := range n.Content {
				walk(child)
			}
		}
		if root != nil {
			walk(root)
		}
		var e *yamlnode.Error
		if !errors.As(r.Err(), &e) {
			if root != nil {
				t.Error("nothing reported")
			}
			return
		}
		lines := 2
		for _, c := range string(data) {
			if slices.Contains([]rune("\n\r\u0085\u2028\u2029"), c) {
				lines++
			}
		}
		for _, p := range e.Problems {
			if p.Line < 1 || p.Column < 1 || p.Line > lines {
				t.Errorf("%+v", p)
			}
		}
	})
}
