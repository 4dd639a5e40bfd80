package replaypage

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/cmd/stint/internal/replay"
	"github.com/stintdev/stint/server/rules"
)

var monday = time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)

// report is one with everything in it, in which text is wherever a log or a file has the word.
func report(n int, text string) *replay.Report {
	client := func(i int) string { return fmt.Sprint(text, i) }
	p := &replay.Report{
		From: monday, To: monday.Add(200 * time.Hour), Requests: 1_234_567, NewlyRefused: 1234, NewlyPassed: 99,
		Rules: replay.Outcome{File: text, Refused: 12_345, Clients: 5_000, RefusedClients: 70}, Against: &replay.Outcome{File: text, Refused: 9_999, Clients: 5_000, RefusedClients: 60},
		Log: replay.Log{
			Files: []replay.File{{Path: text, Form: text}, {Path: text, Skipped: text}, {Path: text}}, Unread: 7, Late: 3, Interrupted: true,
			FirstUnread: []replay.UnreadLine{{File: text, Line: 7, Why: text}},
		},
		Notes:       []phrase.Phrase{phrase.Of("There are more than %s clients: shares of them are of a sample.", 262_144)},
		Judgement:   phrase.Of("%s newly refused, and %s newly passed", 1234, 99),
		NotReplayed: []replay.NotReplayed{{Rule: text, Reads: []string{text, "body"}}, {Entry: text, Reads: []string{text}}},
	}
	for i := range n {
		r := replay.Rule{
			Name: client(i), Mode: "shadow", Key: text, Limits: []string{"5 per 2m", "100 per 1h", "9000000 per month in Europe/Berlin", text},
			Requests: 419, Refused: int64(n - i), Bans: 4, Keys: 5_000, RefusedKeys: 90, Sampled: true, NewlyRefused: 12,
			Judgement: phrase.Of("It %s few keys (%s), and of no client whose other requests all passed.", phrase.Of("refuses"), "0.06%"),
			Hours:     []replay.Hour{{From: monday.Add(41 * time.Hour), Requests: 419, Refused: 167}},
		}
		for k := range 10 {
			r.MostRefused = append(r.MostRefused, replay.Key{Key: rules.Key(client(k)), Refused: 167, Requests: int64(k) * 9})
			r.Best = append(r.Best, replay.Client{Client: client(k), Refused: 1, Passed: 12_345, SignedIn: k%2 > 0})
		}
		for d := range 7 {
			for h := range 24 {
				r.Week[d][h] = replay.Count{Requests: 419, Refused: int64(d * h)}
			}
		}
		old := r
		old.Limits, old.Refused, old.NewlyPassed = []string{"10 per 1m"}, 3, 2
		p.ByRule, p.AgainstByRule = append(p.ByRule, r), append(p.AgainstByRule, old)
		p.Studied = append(p.Studied, studied(r.Name, text))
	}
	p.AgainstByRule = append(p.AgainstByRule, replay.Rule{Name: text + "gone"})
	return p
}

func studied(rule, text string) replay.Suggestion {
	s := replay.Suggestion{Rule: rule, Limits: []string{"5 per 10m", "41 per 24h"}, Why: phrase.Of("%s of %s keys never used more than %s", "99.9%", 5000, "4"),
		Notes: []phrase.Phrase{phrase.Of("If keys set apart are customers, give them a tier of their own.")}}
	for k := range 10 {
		s.Apart = append(s.Apart, replay.Apart{Key: fmt.Sprint(text, k), Why: phrase.Of("%s in %s, %s times the mean of the others", 8803, "24h", "413")})
	}
	for i, seconds := range []float64{1, 10, 60, 600, 3600, 86400} {
		w := replay.Window{Seconds: seconds}
		for n := range int64(60) {
			w.Curve = append(w.Curve, [2]int64{(n + 1) * int64(i+1), 5000 - (59-n)*80})
		}
		s.Windows = append(s.Windows, w)
	}
	return s
}

func pageOf(t *testing.T, p *replay.Report) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var tags = regexp.MustCompile(`<[^>]*>`)

// Whatever a log says, the page has the tags that it has with harmless words, and no letters that turn others around.
func TestHostileLog(t *testing.T) {
	want := tags.FindAllString(pageOf(t, report(3, "x")), -1)
	for _, text := range []string{
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "' onmouseover='x", "</style></title><svg onload=x>", "<!--", "--><b>", "]]>", "{}", "%s%d", "&lt;b&gt;",
		"https://example.com", "\u202eabc\u2066", "\x00\x1b[31m", "\xff\xfe", strings.Repeat("<", 300), strings.Repeat("é\"", 300),
	} {
		page := pageOf(t, report(3, text))
		got := tags.FindAllString(page, -1)
		if !slices.Equal(got, want) {
			t.Errorf("%q makes %d tags, want %d", text, len(got), len(want))
		}
		if i := strings.IndexFunc(page, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q: the page has %q", text, page[i:i+1])
		}
	}
}

var quoted = regexp.MustCompile(`="[^"]*"`)

// Markup stands in the code, has a place for each argument, and in tags only in quotes, which nothing escaped can leave.
func TestMarkup(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	calls, conversions := 0, 0
	fset := token.NewFileSet()
	for _, path := range files {
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if to, ok := c.Fun.(*ast.Ident); ok && to.Name == "markup" {
				conversions++
			}
			if f, ok := c.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "put" {
				return true
			}
			calls++
			literal, ok := c.Args[0].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: the markup is no constant", fset.Position(c.Pos()))
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil || strings.Count(text, "{}") != len(c.Args)-1 {
				t.Errorf("%s: %q has another number of arguments", fset.Position(c.Pos()), text)
			}
			for _, tag := range tags.FindAllString(quoted.ReplaceAllString(text, ""), -1) {
				if strings.Contains(tag, "{}") {
					t.Errorf("%s: an argument is not in quotes: %s", fset.Position(c.Pos()), tag)
				}
			}
			return true
		})
	}
	if calls < 40 || conversions != 1 { // that of put, of what is left of its markup
		t.Errorf("%d calls of put, %d conversions to markup", calls, conversions)
	}
}

// The page loads nothing, runs nothing and leads nowhere.
func TestNothingIsLoaded(t *testing.T) {
	page := pageOf(t, report(3, "x"))
	for _, wrong := range []string{"://", "url(", "@import", "javascript:", "<script", "<link", "<img", "<iframe", "<form", "src="} {
		if strings.Contains(strings.ToLower(page), wrong) {
			t.Errorf("the page has %s", wrong)
		}
	}
	for _, tag := range tags.FindAllString(page, -1) {
		if regexp.MustCompile(`\son\w+=|href="[^#]`).MatchString(tag) {
			t.Error(tag)
		}
	}
	if !strings.Contains(page, `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';`) {
		t.Error("the page has no policy")
	}
}

var (
	apart    = regexp.MustCompile(`(?s)<style>.*?</style>|<title>.*?</title>|<code>.*?</code>|<label.*?</label>`)
	siblings = regexp.MustCompile(`<span lang="en">([^<]*)</span><span lang="zh-CN">([^<]*)</span>`)
	number   = regexp.MustCompile(`^[\d.,%–-]+[kMGT]?$`)
)

// All words but names are there in both languages.
func TestLanguages(t *testing.T) {
	han := func(s string) bool {
		return strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Han, r) })
	}
	page := apart.ReplaceAllString(pageOf(t, report(3, "x")), "")
	pairs := siblings.FindAllStringSubmatch(page, -1)
	for _, pair := range pairs {
		if han(pair[1]) || !han(pair[2]) {
			t.Errorf("%q is %q in Chinese", pair[1], pair[2])
		}
	}
	if len(pairs) < 100 {
		t.Errorf("only %d texts are found", len(pairs))
	}
	for _, text := range strings.FieldsFunc(tags.ReplaceAllString(siblings.ReplaceAllString(page, ""), "\n"), unicode.IsSpace) {
		if strings.ContainsFunc(text, unicode.IsLetter) && !number.MatchString(text) {
			t.Errorf("%q is there once", text)
		}
	}
}

// The page is bounded, and says what it leaves out.
func TestBounded(t *testing.T) {
	for _, text := range []string{"x", strings.Repeat("\"", 300)} {
		page := pageOf(t, report(100, text))
		if len(page) > 500_000 {
			t.Errorf("%d bytes", len(page))
		}
		t.Logf("%d bytes", len(page))
		if n := strings.Count(page, `<section id="rule-`); n != mostSections || !strings.Contains(page, "Below are the 10 rules that refuse most; 90 more are in the table only, or in --json.") {
			t.Errorf("%d rules have a section", n)
		}
	}
	if page := pageOf(t, report(400, "x")); len(page) > 500_000 || !strings.Contains(page, "101 rules that refuse least are left out of the table.") {
		t.Errorf("%d bytes", len(page))
	}
}

// A map has what was refused in its place, with a colour for its share.
func TestWeek(t *testing.T) {
	p := report(1, "x")
	p.Against, p.AgainstByRule = nil, nil
	r := &p.ByRule[0]
	r.Week = replay.Week{}
	r.Week[2][17] = replay.Count{Requests: 4190, Refused: 1670}
	r.Week[2][18] = replay.Count{Requests: 9}
	page := pageOf(t, p)
	want := `<span lang="zh-CN">周三</span></th>` + strings.Repeat("<td></td>", 17) + `<td class="c4" title="1,670 / 4,190">2k</td><td class="c0"></td>` + strings.Repeat("<td></td>", 5) + "</tr>"
	if !strings.Contains(page, want) {
		t.Errorf("there is no %s", want)
	}
	for share, want := range map[int64]int{1: 1, 10: 1, 11: 2, 50: 2, 51: 3, 200: 3, 201: 4, 500: 4, 501: 5, 1000: 5} {
		if got := colour(replay.Count{Requests: 1000, Refused: share}); got != want {
			t.Errorf("%d of 1000 has the colour %d, want %d", share, got, want)
		}
	}
}

// A limit is drawn into the curve of the nearest window, scaled to its length, and the page says how many keys have no
// higher peak: that its burst refuses none of them would not be true.
func TestCurve(t *testing.T) {
	p := report(1, "x")
	p.Against, p.AgainstByRule = nil, nil
	p.ByRule[0].Limits = []string{"20 per 2m", "100 per 1h", "unlimited", "0 per 1h", "900 per 1h burst 3"}
	s := &p.Studied[0]
	s.Limits, s.Windows = nil, []replay.Window{{Seconds: 60, Curve: [][2]int64{{1, 50}, {10, 90}, {100, 100}}}, {Seconds: 3600, Curve: [][2]int64{{10, 7}}}}
	page := pageOf(t, p)
	for _, want := range []string{
		`<code>20 per 2m</code>: <span lang="en">at least 90 of 100 keys have no peak above it</span>`, "(<span lang=\"en\">scaled to the window: 10 in 1m</span>",
		`<code>100 per 1h</code>: <span lang="en">no peak of 7 keys is above it</span>`, `<code>0 per 1h</code>: <span lang="en">at least 0 of 7 keys have no peak above it</span>`,
		`no peak of 7 keys is above it</span><span lang="zh-CN">全部 7 个键的峰值都不高于它</span> (<span lang="en">its burst of 3 is not drawn</span>`,
		// From 0.8 to 125, 10 is in the middle.
		`d="M50.00 0V100"`, `d="M0 100H4.4V50.0H50.0V10.0H95.6V0.0H100"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %s", want)
		}
	}
	if strings.Contains(page, "unlimited</code>:") || strings.Count(page, "<svg") != 2 {
		t.Errorf("%d curves", strings.Count(page, "<svg"))
	}
}

// Places and ticks are on the axis, whatever the numbers are.
func TestScale(t *testing.T) {
	for _, s := range []scale{{0.8, 1.25}, {0.8, 12}, {2, 20}, {0.008, 1e16}, {7, 70_000}} {
		ticks := s.ticks()
		if len(ticks) == 0 || len(ticks) > 12 || !slices.IsSorted(ticks) {
			t.Errorf("%v: %v", s, ticks)
		}
		for _, n := range append(ticks, 0, s.low, s.high, 1e300) {
			if at := s.at(n); !(at >= 0 && at <= 100) {
				t.Errorf("%v: %g is at %g", s, n, at)
			}
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1k", 1499: "1k", 1500: "2k", 2_000_000: "2M", 3e9: "3G", 9_007_199_254_740_991: "9007T"} {
		if got := compact(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}

// A report of nothing is a page, too.
func TestEmpty(t *testing.T) {
	page := pageOf(t, &replay.Report{Judgement: phrase.Of("The log has no requests.")})
	if !strings.Contains(page, "日志中没有请求。") || strings.Contains(page, "UTC") {
		t.Error(page)
	}
}

// Under the same name, another key may be counted. Limits of before are about other peaks then.
func TestOtherKeyBefore(t *testing.T) {
	p := report(1, "client.ip")
	if page := pageOf(t, p); strings.Contains(page, "Key before") || !strings.Contains(page, "limit before") {
		t.Error("the same key is told, or the limit before is not drawn")
	}
	p.AgainstByRule[0].Key = "request.path"
	if page := pageOf(t, p); !strings.Contains(page, "Key before</span><span lang=\"zh-CN\">之前的键</span></dt><dd><code>request.path</code>") || strings.Contains(page, "limit before") {
		t.Error("the key before is not told, or its limit is drawn")
	}
}
