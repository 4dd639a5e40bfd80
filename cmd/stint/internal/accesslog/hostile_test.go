package accesslog

import (
	"strings"
	"testing"
	"time"
)

// What is no JSON object, or a broken one, is not read, however little of it is wanted.
func TestBrokenJSON(t *testing.T) {
	const good = `{"time":1,"path":"/","o":{"a":[1,{"b":"}\""}],"c":null},"n":-1.5e3}`
	r := jsonForm("json", wellKnown, "").of("")
	read := func(line string) error {
		var e Entry
		var d draft
		d.begin(&e, 0, 1)
		return readLine(r, line, &d)
	}
	for _, line := range []string{good, " " + good + "\t", strings.ReplaceAll(good, ",", " ,\t"), strings.ReplaceAll(good, ":", " : ")} {
		if err := read(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for i := range good {
		if err := read(good[:i]); err == nil {
			t.Errorf("%s is read", good[:i])
		}
	}
	for _, line := range []string{
		good + "}", good + good, good + "x", "[" + good + "]", `"` + good, "null", "1", strings.Replace(good, ",", ",,", 1), strings.Replace(good, ",", " ", 1), strings.Replace(good, ":", "", 1),
		strings.Replace(good, `"n"`, "n", 1), strings.Replace(good, "null", "nul", 1), strings.TrimSuffix(good, "}") + ",}", strings.Replace(good, "1,", "1,,", 1), `{"time":1,"path":"/","o":]}`,
		`{"time":1,"path":"/","o":` + strings.Repeat("[", 1<<19) + "}",
	} {
		if err := read(line); err == nil {
			t.Errorf("%.100s is read", line)
		}
	}
	deep := `{"time":1,"path":"/","o":` + strings.Repeat("[", 1<<18) + strings.Repeat("]", 1<<18) + "}"
	if err := read(deep); err != nil {
		t.Errorf("a deep one: %v", err)
	}
}

// No line takes long, whatever a client has put in it.
func TestLongLines(t *testing.T) {
	const most = longestLine / 4
	formats := []Options{{Format: `$remote_user [$time_local] $http_a $http_b $http_c "$request" "$http_d" $status`}, {Format: `log_format x escape=none '$http_a $http_b "$http_c" [$time_local] "$request" $status';`}}
	candidates := append([]form(nil), forms...)
	for _, o := range formats {
		more, err := formsOf(o)
		if err != nil {
			t.Fatal(err)
		}
		candidates = append(candidates, more...)
	}
	for _, part := range []string{`\"`, `\\"`, `" "`, ` [10/Oct/2000:13:55:36 +0000] `, ` [10/Oct/2000:13:55:36 +0000] "`, `{"a":`, `"a",`, `a=b `, `a="`, `\u0041`, `#41`, "aaaa"} {
		for _, before := range []string{"", `192.0.2.1 - `, `{"time":1,"path":"`, "time=", `192.0.2.1 - - [10/Oct/2000:13:55:36 +0000] "GET /`} {
			line := before + strings.Repeat(part, most/len(part))
			for _, f := range candidates {
				r := f.of(line)
				if r == nil {
					continue
				}
				var e Entry
				var d draft
				d.begin(&e, 0, 1)
				began := time.Now()
				_ = readLine(r, line, &d)
				if took := time.Since(began); took > 5*time.Second { // some ms, on an idle machine
					t.Errorf("%s took %v for a line of %q", f.name, took, part)
				}
			}
		}
	}
}

// The form is that of most lines, and of half of them at least.
func TestRecognise(t *testing.T) {
	combined, common := combinedLine(1, when)+"\n", `192.0.2.1 - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1`+"\n"
	for name, test := range map[string]struct{ text, want string }{
		"more combined": {combined + combined + common, "combined"}, "more common": {common + combined + common, "common"},
		"as many": {common + combined, "combined"}, "half": {common + "x\ny\n" + common, "common"}, "less than half": {common + "x\ny\n", ""},
		"only the beginning counts": {strings.Repeat(common, 2000) + strings.Repeat("x\n", 5000), "common"},
	} {
		l, err := Open([]string{write(t, "access.log", test.text)}, Options{})
		if err != nil {
			if test.want != "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if got := l.Sources()[0].Form; got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		l.Close()
	}
}
