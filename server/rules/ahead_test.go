package rules_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/server/rules"
)

// sameByWorkers fails t unless files mean the same, or are refused with the same words, however many workers
// compile their expressions. It returns why they are refused.
func sameByWorkers(t *testing.T, files []rules.File, inputs ...*rules.Input) error {
	t.Helper()
	read := func(workers int) (said string, err error) {
		s, err := rules.Open(files).Parse(t.Context(), workers)
		if err != nil {
			return err.Error(), err
		}
		said = s.Version + "\n" + describe(s)
		for _, in := range inputs {
			plan, claims := planOf(s, in)
			said += fmt.Sprintln(plan, claims)
		}
		return said, nil
	}
	want, _ := read(1)
	got, err := read(4)
	if got != want {
		t.Fatalf("%s\n4 workers: %s\n1 worker:  %s", clip(string(files[0].Data)), got, want)
	}
	return err
}

// spoil makes a mistake in a file, or several.
func (g conditions) spoil(file string) string {
	lines := strings.SplitAfter(file, "\n")
	for range 1 + g.IntN(4) {
		at := &lines[g.IntN(len(lines))]
		switch g.IntN(8) {
		case 0:
			*at = strings.Replace(*at, " == ", " = ", 1)
		case 1:
			*at = strings.Replace(*at, "request.", "requst.", 2)
		case 2:
			*at = strings.Replace(*at, "match: ", "match: [", 1)
		case 3:
			*at += *at // a name that is there twice
		case 4:
			*at = strings.Replace(*at, "key: ", "key: 'attrs', match: ", 1)
		case 5:
			*at = strings.Replace(*at, "9 per 1h", "9 for 1h", 1)
		case 6:
			*at = strings.Replace(*at, "client.ip", "192.0.2.0/24", 1)
		default:
			*at = strings.Replace(*at, "- {name", "- {nam", 1)
		}
	}
	return strings.Join(lines, "")
}

// Workers compile ahead of the reading, but only the reading says what follows.
func TestWorkersChangeNothing(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, path := range paths {
		for _, story := range golden.Read(t, path) {
			_ = sameByWorkers(t, []rules.File{{Name: "r.yaml", Data: []byte(story.Given), Envoy: strings.HasPrefix(story.Given, "domain:")}})
		}
	}
	n := 150
	if testing.Short() {
		n = 40
	}
	g, refused := conditions{rand.New(rand.NewPCG(attack.Seed(t), 1))}, 0
	for i := range n {
		file := g.file()
		if i%2 == 1 {
			file = g.spoil(file)
		}
		more := fmt.Sprintf("rules:\n- {name: more, match: %s, key: %s, limits: [1 per 1s]}\n", quoted(g.condition(2)), quoted(g.pick("attrs.a", "client.ip", "attrs")))
		err := sameByWorkers(t, []rules.File{
			{Name: "r.yaml", Data: []byte(file)}, {Name: "e.yaml", Envoy: true, Data: []byte(ofEnvoy)}, {Name: "more.yaml", Data: []byte(more)},
		}, g.input(), g.input(), g.input())
		if err != nil {
			refused++
		}
	}
	if refused < n/4 || refused > n*9/10 {
		t.Errorf("%d of %d files are refused", refused, n)
	}
}

// The bounds of all expressions hold at the same rule.
func TestWorkersKeepBounds(t *testing.T) {
	fileOf := func(n int, match string) []rules.File {
		var f strings.Builder
		f.WriteString("rules:\n")
		for i := range n {
			fmt.Fprintf(&f, "- {name: r%d, match: '%s || operation == \"%[1]d\"', limits: [1 per 1s]}\n", i, match)
		}
		return []rules.File{{Name: "r.yaml", Data: []byte(f.String())}}
	}
	for _, c := range []struct {
		files []rules.File
		want  string
	}{
		{fileOf(320, `client.ip == "`+strings.Repeat("a", 3500)+`"`), "all expressions together"},
		{fileOf(800, `client.ip == ("`+strings.Repeat("a", 500)+`"`+strings.Repeat(`.replace("a","aa")`, 5)+`)`), "constants in all expressions"},
		{fileOf(160, `client.ip.matches("(a{1000}|b{1000}|c{1000}|d{1000})")`), "the patterns of all expressions"},
		{fileOf(rules.MaxRules+1, `operation == "a"`), "10001 rules: at most 10000"},
	} {
		if err := sameByWorkers(t, c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %.300v, want %q", err, c.want)
		}
	}
}
