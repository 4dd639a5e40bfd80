package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stintdev/stint/server/rules"
)

// run calls functions of the page's modules in Node: each call is module, function and
// arguments. The results go to results, a pointer to a slice.
func run(t *testing.T, calls [][]any, results any) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("STINT_REQUIRE_PROXIES") != "" {
			t.Fatal(err)
		}
		t.Skip("node is not there")
	}
	in, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(node, "testdata/run.mjs")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if err := json.Unmarshal(out, results); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestKeys: the text of a key is read as the same key again, by the page and by the API.
func TestKeys(t *testing.T) {
	keys := []any{
		"203.0.113.9", "user-1", "2001:db8::/64", "a b", " a", "[x", `"x`, `x"y`, `["a"]`, "ü", "汉字", "a\tb", "a\u00a0b", "\u200b", "\\", `a\"b`, "x]",
		[]string{"192.0.2.1", "u-1"}, []string{"a"}, []string{"", `"`, "]"}, []string{"汉", "a b"},
	}
	var calls [][]any
	for _, k := range keys {
		calls = append(calls, []any{"format", "keyText", k})
	}
	var shown []string
	run(t, calls, &shown)
	calls = nil
	for _, text := range shown {
		calls = append(calls, []any{"format", "readKey", text}, []any{"format", "readKey", "  " + text + "\n"})
	}
	var read []any
	run(t, calls, &read)
	for i, k := range keys {
		want, _ := json.Marshal(k)
		for _, got := range read[2*i : 2*i+2] {
			if got, _ := json.Marshal(got); string(got) != string(want) {
				t.Errorf("%s is shown as %s and read as %s", want, shown[i], got)
			}
		}
		var key, asShown rules.Key
		if err := json.Unmarshal(want, &key); err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		text := shown[i]
		if !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, `"`) {
			quoted, _ := json.Marshal(text)
			text = string(quoted)
		}
		if err := json.Unmarshal([]byte(text), &asShown); err != nil || asShown != key {
			t.Errorf("%s is shown as %s, which is %q (%v)", want, shown[i], asShown, err)
		}
	}
}

// TestParse: what people paste is read as the request that it is.
func TestParse(t *testing.T) {
	type request struct {
		How, Client, Method, Path, Host, Operation string
		Unknown                                    string
		Headers                                    map[string]any
		Attrs                                      map[string]any
	}
	cases := []struct {
		text string
		want string // how client method path host headers operation
	}{
		{"", ""},
		{"hello", ""},
		{"curl http://a.test/x?y=1", "curl  GET /x?y=1 a.test map[] "},
		{"curl a.test", "curl  GET / a.test map[] "},
		{"curl 'https://u:p@a.test?y=1#z'", "curl  GET /?y=1 a.test map[] "},
		{`curl -X POST a.test/login -H "User-Agent: it's" -d 'a b'`, "curl  POST /login a.test map[content-type:application/x-www-form-urlencoded user-agent:it's] "},
		{"curl -XPUT -H'X-A: 1' -H 'x-a: 2' a.test/x", "curl  PUT /x a.test map[x-a:[1 2]] "},
		{"curl a.test/login \\\n  --data-raw '{\"a\": 1}' \\\n  -H 'Host: b.test' --compressed", "curl  POST /login b.test map[content-type:application/x-www-form-urlencoded] "},
		{"curl -sSXPATCH --json '{}' a.test/x", "curl  PATCH /x a.test map[content-type:application/json] "},
		{"curl -G -d a=1 --data b=2 'a.test/x?c=3'", "curl  GET /x?c=3&a=1&b=2 a.test map[] "},
		{"curl -u ann:pässword a.test", "curl  GET / a.test map[authorization:Basic YW5uOnDDpHNzd29yZA==] "},
		{"curl -T file a.test/x", "curl  PUT /x a.test map[] "},
		{"curl --frobnicate a.test/x", "curl     map[]  without --frobnicate"},
		{"curl -sZ a.test/x", "curl     map[]  without -Z"},
		{"curl -s -o /dev/null -I a.test/x", "curl  HEAD /x a.test map[] "},
		{"curl -b 'a=b' -A agent --url https://a.test/x", "curl  GET /x a.test map[cookie:a=b user-agent:agent] "},
		{"GET /x HTTP/1.1\r\nHost: a.test\r\nX-A: b\r\n\r\nbody: no", "http  GET /x a.test map[x-a:b] "},
		{"DELETE /x", "http  DELETE /x  map[] "},
		{`203.0.113.9 - - [10/Oct/2026:13:55:36 +0000] "POST /login?x=1 HTTP/1.1" 429 12 "-" "Mozilla/5.0 (X11)"`, "access 203.0.113.9 POST /login?x=1  map[user-agent:Mozilla/5.0 (X11)] "},
		{`203.0.113.9 - bob [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 -`, "access 203.0.113.9 GET /  map[] "},
		{`time=2026-11-22T06:35:15Z level=INFO msg=refused rule=login client=203.0.113.9 method=POST path="/log in"`, "log 203.0.113.9 POST /log in  map[] "},
		{`{"time": "x", "msg": "refused", "client": "203.0.113.9", "method": "POST", "path": "/login"}`, "log 203.0.113.9 POST /login  map[] "},
		{`{"operation": "send", "attrs": {"user": "u"}}`, "json     map[] send"},
		{`{"client": "192.0.2.1", "request": {"method": "GET", "path": "/", "headers": {"a": "b"}}}`, "json 192.0.2.1 GET /  map[a:b] "},
		{"https://a.test/x", "url  GET /x a.test map[] "},
		{"/x?y", "url  GET /x?y  map[] "},
	}
	var calls [][]any
	for _, c := range cases {
		calls = append(calls, []any{"pages/parse", "parse", c.text})
	}
	var got []*request
	run(t, calls, &got)
	for i, c := range cases {
		text := ""
		if r := got[i]; r != nil {
			text = fmt.Sprintf("%s %s %s %s %s %v %s", r.How, r.Client, r.Method, r.Path, r.Host, r.Headers, r.Operation)
			if r.Unknown != "" {
				text += " without " + r.Unknown
			}
		}
		if text != c.want {
			t.Errorf("%s\n is %q\nwant %q", c.text, text, c.want)
		}
	}
}

// TestDiff: without what was added, a difference is the old text, and without what was
// removed the new one; and it is as short as the longest common subsequence allows.
func TestDiff(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		lines := make([]string, random.IntN(12))
		for i := range lines {
			lines[i] = string(rune('a' + random.IntN(4)))
		}
		return strings.Join(lines, "\n")
	}
	pairs := [][2]string{{"", ""}, {"", "a"}, {"a", ""}, {"a\nb", "a\nb"}, {"a\n", "a"}}
	for range 300 {
		pairs = append(pairs, [2]string{text(), text()})
	}
	var calls [][]any
	for _, p := range pairs {
		calls = append(calls, []any{"diff", "lines", p[0], p[1]})
	}
	var got [][]struct{ Kind, Text string }
	run(t, calls, &got)
	for i, p := range pairs {
		var before, after []string
		same := 0
		for _, l := range got[i] {
			if l.Kind != "+" {
				before = append(before, l.Text)
			}
			if l.Kind != "-" {
				after = append(after, l.Text)
			}
			if l.Kind == " " {
				same++
			}
		}
		if a, b := strings.Join(before, "\n"), strings.Join(after, "\n"); a != p[0] || b != p[1] {
			t.Errorf("%q to %q: %v", p[0], p[1], got[i])
		}
		if want := common(before, after); same != want {
			t.Errorf("%q to %q keeps %d lines, want %d: %v", p[0], p[1], same, want, got[i])
		}
	}
}

// common is the length of the longest common subsequence.
func common(a, b []string) int {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	best := make([]int, len(b)+1)
	for _, x := range a {
		corner := 0
		for j, y := range b {
			above := best[j+1]
			if x == y {
				best[j+1] = corner + 1
			} else {
				best[j+1] = max(above, best[j])
			}
			corner = above
		}
	}
	return best[len(b)]
}

// TestLimits: the page draws a limit as its algorithm.
func TestLimits(t *testing.T) {
	wants := map[string]string{
		"100 per 1m":                          "token_bucket 6e+07",
		"login: 5 per 1m30s sliding_log":      "sliding_log 9e+07",
		"a:b: 5 per 7d fixed_window":          "fixed_window 6.048e+11",
		"5 per day in Europe/Berlin hold":     "fixed_window 8.64e+10",
		"100 per 1h token_bucket burst 20":    "token_bucket 3.6e+09",
		"500 per 1d sliding_window buckets 4": "sliding_window 8.64e+10",
		"5 per 250ms leaky_bucket":            "leaky_bucket 250000",
	}
	texts := slices.Sorted(maps.Keys(wants))
	var calls [][]any
	for _, text := range texts {
		calls = append(calls, []any{"pages/gauges", "readLimit", text})
	}
	var got []struct {
		Kind   string
		Period float64
	}
	run(t, calls, &got)
	for i, text := range texts {
		if s := fmt.Sprint(got[i].Kind, " ", got[i].Period); s != wants[text] {
			t.Errorf("%s: %s, want %s", text, s, wants[text])
		}
	}
}

// TestAmountAt: a number is replaced only where the text has the old one, as a number of its own.
func TestAmountAt(t *testing.T) {
	type place struct {
		Line   int `json:"line"`
		Column int `json:"column"`
		Length int `json:"length"`
	}
	cases := []struct {
		text   string
		at     place
		amount int
		want   string // what is before it
	}{
		{"limits: [100 per 1m]", place{1, 10, 3}, 100, "limits: ["},
		{"a\n\n  - 5 per 1s\n", place{3, 5, 1}, 5, "a\n\n  - "},
		{"🙂汉: 5", place{1, 5, 1}, 5, "🙂汉: "}, // columns are characters
		{"limits: [1000 per 1m]", place{1, 10, 3}, 100, "nowhere"},
		{"limits: [1100 per 1m]", place{1, 11, 3}, 100, "nowhere"},
		{"limits: [ 100 per 1m]", place{1, 10, 3}, 100, "nowhere"},
		{"limits: [200 per 1m]", place{1, 10, 3}, 100, "nowhere"},
		{"limits: [10", place{1, 10, 3}, 100, "nowhere"},
		{"a", place{2, 1, 1}, 5, "nowhere"},
	}
	var calls [][]any
	for _, c := range cases {
		calls = append(calls, []any{"pages/peaks", "amountAt", c.text, c.at, c.amount})
	}
	var got []int
	run(t, calls, &got)
	for i, c := range cases {
		before := "nowhere"
		if got[i] >= 0 {
			before = string(utf16.Decode(utf16.Encode([]rune(c.text))[:got[i]]))
		}
		if before != c.want {
			t.Errorf("%q has %d at %+v after %q, want %q", c.text, c.amount, c.at, before, c.want)
		}
	}
}

// TestSlider: small amounts have room on a slider up to large ones, and each can be reached.
func TestSlider(t *testing.T) {
	var got [][]int
	run(t, [][]any{
		{"pages/peaks", "places", [][2]int{{1, 5}, {2, 8}, {10, 9}, {1_000_000, 10}}}, {"pages/peaks", "places", [][2]int{{7, 5}}},
		{"pages/peaks", "places", [][2]int{{0, 0}, {1, 5}, {3, 6}}},
	}, &got)
	if text := fmt.Sprint(got); text != "[[0 31 130 1000] [0] [0 500 1000]]" {
		t.Error(text)
	}
	var at []int
	places := got[0]
	run(t, [][]any{
		{"pages/peaks", "nearest", places, 0, 3}, {"pages/peaks", "nearest", places, 15, 0}, {"pages/peaks", "nearest", places, 16, 0},
		{"pages/peaks", "nearest", places, 600, 0}, {"pages/peaks", "nearest", places, 1000, 0}, {"pages/peaks", "nearest", []int{0, 500, 500}, 500, 2},
	}, &at)
	if text := fmt.Sprint(at); text != "[0 0 1 3 3 2]" {
		t.Error(text)
	}
}

// TestNumbers: numbers and durations are short and mean what they say.
func TestNumbers(t *testing.T) {
	var got []string
	calls := [][]any{
		{"format", "rate", 0}, {"format", "rate", 0.004}, {"format", "rate", 1}, {"format", "rate", 12.34}, {"format", "rate", 1234.5}, {"format", "rate", 123456},
		{"format", "percent", 0}, {"format", "percent", 0.00001}, {"format", "percent", 0.0042}, {"format", "percent", 0.03}, {"format", "percent", 0.999},
		{"format", "micros", 0}, {"format", "micros", 950}, {"format", "micros", 1500}, {"format", "micros", 250_000}, {"format", "micros", 2_500_000},
		{"format", "span", -1}, {"format", "span", 1_500_000}, {"format", "span", 59_600_000}, {"format", "span", 3_599_600_000}, {"format", "span", 90_061_000_000},
		{"format", "count", 99_999}, {"format", "count", 184_223}, {"format", "count", 12_345_678},
	}
	run(t, calls, &got)
	want := "0 0.00 1.00 12.3 1,235 123k | 0 % <0.01 % 0.42 % 3.0 % 100 % | – 950 µs 1.5 ms 250 ms 2.50 s | never 1.5 s 1 m 1 h 1 d 1 h | 99,999 184k 12.3M"
	if text := strings.Join(got, " "); text != strings.ReplaceAll(want, " |", "") {
		t.Errorf("%s\nwant %s", text, want)
	}
}

// What cannot be seen in a text, or turns it, is shown as escapes, and the rest as it is.
func TestVisible(t *testing.T) {
	texts := map[string]string{
		"ann": "ann", "": "", "a\tb\n": "a\tb\n", "ünï 中文 עברית 🙂": "ünï 中文 עברית 🙂", "a\u00a0b": "a\u00a0b",
		"user\u202e\u2066x\u2069": `user\u202e\u2066x\u2069`, "ad\u200bmin": `ad\u200bmin`, "a\x00\x1b[31m": `a\u0000\u001b[31m`,
		"\ufeffa\u00ad\u200d": `\ufeffa\u00ad\u200d`, "a\u2028b": `a\u2028b`,
	}
	var calls [][]any
	var want, got []string
	for text, shown := range texts {
		calls, want = append(calls, []any{"dom", "visible", text}), append(want, shown)
	}
	run(t, calls, &got)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSentences: no text says "1 rules", nor "2 rule". A number that is no rate, and stands before a
// noun in the plural, has two forms of it; Chinese has one.
func TestSentences(t *testing.T) {
	name, form := regexp.MustCompile(`\{(\w+)`), regexp.MustCompile(`\{\w+\|`)
	plural := regexp.MustCompile(`(?:^|[ (])1 (?:of 1 )?([a-z]{3,}s)\b`)
	verbs := []string{"holds"} // of what has a number as its name
	all := texts(t)
	keys := slices.Sorted(maps.Keys(all))
	var calls [][]any
	for _, key := range keys {
		for _, n := range []string{"1", "2"} {
			values := map[string]string{}
			for _, m := range name.FindAllStringSubmatch(all[key][0], -1) {
				if values[m[1]] = n; m[1] == "rate" {
					values[m[1]] = n + ".00"
				}
			}
			calls = append(calls, []any{"text", "t", key, values})
		}
	}
	var got []string
	run(t, calls, &got)
	counted := 0
	for i, key := range keys {
		one, two := got[2*i], got[2*i+1]
		if m := plural.FindStringSubmatch(one); m != nil && !slices.Contains(verbs, m[1]) {
			t.Errorf("%s: %q", key, one)
		}
		if form.MatchString(all[key][0]) {
			if counted++; strings.ReplaceAll(one, "1", "2") == two || strings.Contains(one+two, "|") {
				t.Errorf("%s: %q and %q", key, one, two)
			}
		}
		if form.MatchString(all[key][1]) {
			t.Errorf("%s: %s", key, all[key][1])
		}
	}
	if counted < 10 {
		t.Errorf("only %d texts have two forms", counted)
	}
}
