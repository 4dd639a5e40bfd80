package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// The workers and servers of a test are the test's own program.
func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" || os.Getenv(siteVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// All subjects open, limit and take turns, and something can be written of it. No
// figure is looked at.
func TestShort(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("STINT_REQUIRE_REDIS") != "" {
			t.Fatal("STINT_REQUIRE_REDIS is set, but there is no redis-server")
		}
		t.Skip("redis-server is not installed: scripts/get redis-server")
	}
	dir := t.TempDir()
	r, err := bench(true, 1, "", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	var document bytes.Buffer
	r.document(&document)
	all := tables(true)
	for i := range all {
		if !bytes.Contains(document.Bytes(), []byte("### "+all[i].title)) {
			t.Errorf("the document lacks %q", all[i].title)
		}
	}
	again, err := readRun(filepath.Join(dir, "benchmarks.raw.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if again.page(&page); !bytes.Equal(page.Bytes(), text) {
		t.Errorf("the raw figures make another page:\n%s\nnot\n%s", &page, text)
	}
	for group := range groupTitles {
		if group == pauseGroup {
			continue
		}
		picture, err := os.ReadFile(filepath.Join(dir, "benchmarks-"+group+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		wellFormed(t, group, picture)
	}
}

func wellFormed(t *testing.T, name string, picture []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// All cases of waiting run, and their page has each.
func TestShortWaiting(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("STINT_REQUIRE_REDIS") != "" {
			t.Fatal("STINT_REQUIRE_REDIS is set, but there is no redis-server")
		}
		t.Skip("redis-server is not installed: scripts/get redis-server")
	}
	dir := t.TempDir()
	if err := benchWaiting(true, 1, "", dir, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "benchmarks-waiting.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Concat(memoryWaits, redisWaits) {
		if !bytes.Contains(text, []byte("| "+c.about+" |")) {
			t.Errorf("the page lacks %q", c.title)
		}
	}
}

// All ways of telling rules apart run, and the page and the picture have each. That one rule applies, and
// which, the rows themselves check.
func TestShortRules(t *testing.T) {
	dir := t.TempDir()
	if err := benchRules(true, 2, dir, io.Discard); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "benchmarks-rules.md"))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(filepath.Join(dir, "benchmarks-rules.svg"))
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, "benchmarks-rules.svg", picture)
	for _, way := range ruleWays {
		if !bytes.Contains(page, []byte("\n| "+way.name+" | ")) {
			t.Errorf("the page lacks %q", way.name)
		}
		if !bytes.Contains(picture, []byte(">Stint, by "+way.name+"<")) {
			t.Errorf("the picture lacks %q", way.name)
		}
	}
	nginx := "one look-up | nginx, a request |"
	if _, err := exec.LookPath("nginx"); err != nil {
		nginx = "nginx was not there"
	}
	if !bytes.Contains(page, []byte(nginx)) {
		t.Errorf("the page lacks %q", nginx)
	}
	for _, lack := range []string{"NaN", "Inf", "%!"} {
		if bytes.Contains(page, []byte(lack)) || bytes.Contains(picture, []byte(lack)) {
			t.Errorf("%s in the page or the picture:\n%s", lack, page)
		}
	}
}

// A row is refused if a request finds another rule than it is for.
func TestRuleRow(t *testing.T) {
	way := &ruleWay{match: `operation == "o%[1]d" || operation == "o1"`}
	if _, err := stintRow("two", 2, ruleFile(way.matches(2))); err == nil {
		t.Error("two rules applied to a request")
	}
}

// Names of curves that end close to each other do not overlap.
func TestPlotCurves(t *testing.T) {
	var b bytes.Buffer
	one := func(name string, last float64) curve {
		return curve{name: name, kind: ours, sizes: []float64{1, 10}, times: []spread{{middle: 100}, {middle: last}}}
	}
	plotCurves(&b, "a < b", "", "", []curve{one("low", 1000), one("high", 1001), one("top", 1e6)})
	wellFormed(t, "curves", b.Bytes())
	at := map[string]float64{}
	for _, m := range regexp.MustCompile(`y="([0-9.]+)" fill="#[0-9a-f]+">(low|high|top)<`).FindAllStringSubmatch(b.String(), -1) {
		at[m[2]], _ = strconv.ParseFloat(m[1], 64)
	}
	if len(at) != 3 || at["top"] >= at["high"] || at["low"]-at["high"] < curvesLabel {
		t.Errorf("names are at %v", at)
	}
}

func TestSpread(t *testing.T) {
	if got, want := spreadOf([]float64{5, 1, 4, 2, 3}), (spread{2, 3, 4}); got != want {
		t.Errorf("%v, not %v", got, want)
	}
	if got, want := spreadOf([]float64{2, 1}), (spread{1.25, 1.5, 1.75}); got != want {
		t.Errorf("%v, not %v", got, want)
	}
}

// Ratios are taken within a round: where the machine is twice as slow in one, both
// are.
func TestOver(t *testing.T) {
	a, b := result{}, result{}
	for _, slow := range []int64{1, 2, 7} {
		a.Samples = append(a.Samples, sample{Calls: 10, Nanos: 30 * slow})
		b.Samples = append(b.Samples, sample{Calls: 10, Nanos: 10 * slow})
	}
	if got, want := a.over(&b), (spread{3, 3, 3}); got != want {
		t.Errorf("%v, not %v", got, want)
	}
}

// A histogram tells less than 2 % too little, however long what it counts.
func TestHistogram(t *testing.T) {
	for _, one := range []int64{0, 1, 127, 128, 129, 255, 256, 1000, 999_999, 1 << 40, 1<<63 - 1} {
		var h histogram
		h.add(1)
		h.add(one)
		h.add(1<<63 - 1)
		if got := h.quantile(0.5); got > max(1, one) || float64(got) < 0.98*float64(one) {
			t.Errorf("%d, not %d", got, one)
		}
	}
}

// Keys made anew are those that were made known, and their making is no allocation of
// the subject's.
func TestFreshKeys(t *testing.T) {
	known := map[string]bool{}
	for _, k := range allKeys(1000) {
		known[k] = true
	}
	var strangers int
	l := only(func(key string) {
		if !known[key] {
			strangers++
		}
	})
	s := turn(&table{fresh: true, keys: 1000, callers: 1, batch: 256}, l, nil, 20*time.Millisecond)
	if strangers > 0 || s.Calls < 256 || s.Mallocs > 100+uint64(s.Calls)/10 {
		t.Errorf("%d strangers, %+v", strangers, s)
	}
}

// All keys come in, and what only waits has not worked.
func TestPauses(t *testing.T) {
	l := only(func(key string) {
		if key == "500" {
			time.Sleep(20 * time.Millisecond)
		}
	})
	s := turnOfPauses(&table{newcomers: 1000}, l, 0)
	if p := s.Pauses; s.Calls != 1000 || p.Slowest < 20e6 || p.Long < 1 || p.P9999 > p.Slowest || p.Median > p.P999 {
		t.Errorf("%+v, %+v", s, p)
	}
	if p := s.Pauses; p.Worked <= 0 || p.Worked > 10e6 {
		t.Errorf("worked for %d ns of %d", p.Worked, p.Slowest)
	}
}

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		duration(4.126): "4.13 ns", duration(99.96): "100 ns", duration(12345): "12.3 µs", duration(2e6): "2.00 ms", duration(1.5e9): "1.50 s",
		number(1234): "1,234", number(12.34): "12.3", number(0): "0", number(2345678): "2.35 M", number(100): "100",
		percent(0.5): "50.0 %", percent(0.0001): "< 0.1 %", count(-1): "–",
	} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// A difference that the rounds do not agree on is no figure.
func TestBeside(t *testing.T) {
	one := []float64{1000, 1010, 990, 1000}
	for _, c := range []struct {
		times []float64
		want  string
	}{
		{one, "1.00 µs"},
		{[]float64{1010, 990, 1000, 1005}, "1.00 µs, not measurable: within 10.0 ns"},
		{[]float64{2000, 2020, 1980, 2000}, "2.00 µs, 2"},
		{[]float64{500, 1010, 495, 500}, "500 ns, 0.50 (0.50–1.00)"},
	} {
		if got := beside(c.times, one); got != c.want {
			t.Errorf("%v: got %q, want %q", c.times, got, c.want)
		}
	}
}
