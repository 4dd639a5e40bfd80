package errorformat_test

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"html"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	xhtml "golang.org/x/net/html"

	"github.com/stintdev/stint/internal/errorformat"
)

func body(t *testing.T, mediaType, text string) errorformat.Body {
	t.Helper()
	b, offset, err := errorformat.ReadBody(mediaType, text, 0)
	if err != nil {
		t.Fatalf("%s: %q: at %d: %v", mediaType, text, offset, err)
	}
	return b
}

func formatOf(t *testing.T, types ...string) *errorformat.Format {
	t.Helper()
	var p errorformat.Parts
	for _, one := range types {
		text := "x"
		if strings.Contains(one, "json") {
			text = `"x"`
		}
		p.Bodies = append(p.Bodies, body(t, one, text))
	}
	return errorformat.New(p)
}

const problem = "application/problem+json"

func TestChoose(t *testing.T) {
	const (
		js, page, plain, graph = "application/json", "text/html", "text/plain", "application/graphql-response+json"
		chrome                 = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"
	)
	for _, c := range []struct {
		bodies, accept, want string
	}{
		{"", "text/html", ""},
		{js, "", js},
		{js + " " + page, "", js},
		{page + " " + js, "*/*", page},
		{js + " " + page, chrome, page},
		{js, chrome, js},
		{page + " " + js, "application/json, text/plain, */*", js}, // axios
		{page + " " + js, "application/json", js},
		{page + " " + js, "APPLICATION/JSON; charset=utf-8", js},
		{js + " " + graph, "application/graphql-response+json, application/json;q=0.9", graph},
		{js + " " + graph, "application/graphql-response+json;q=0.5, application/json;q=0.9", js},
		{js + " " + page + " " + plain, "text/*", page},
		{js + " " + page + " " + plain, "text/*, text/html;q=0", plain},
		{js + " " + page + " " + plain, "text/*;q=0.5, text/html;q=0.4, application/*;q=0.1", plain},
		{js + " " + page, "image/png", js},
		{js + " " + page, "*/*;q=0", js},
		{page + " " + js, "text/html;q=0, */*;q=0.1", js},
		{js + " " + page, "text/html;q=0.0001", page},
		{js + " " + page, "text/html;q=2, application/json;q=0.1", js},
		{js + " " + page, "text/html;q=NaN", js},
		{js + " " + page, "text/html;q=x, */*", js},
		{js + " " + page, `foo/bar;x=",text/html,", application/json`, js},
		{js + " " + page, ",, ,text/html,", page},
		{js + " " + page, "*/html", js},
		{js + " " + page, "html", js},
		{js + " " + page, strings.Repeat("a/b,", 600) + "text/html", js},
		{js + " " + page, strings.Repeat("a/b,", 31) + "text/html", page},
		{js + " " + page, strings.Repeat("a/b,", 32) + "text/html", js}, // a browser sends 8
		{js, problem, ""},
		{js, problem + ", application/json;q=0.9", ""},
		{js, problem + ", application/json", js},
		{js, problem + ";q=0.5, */*;q=0.4", ""},
		{js, problem + ";q=0", js},
		{js, "application/*", js},
		{js + " " + problem, problem, problem},
		{js + " " + problem, "application/json", js},
	} {
		got := ""
		if b := formatOf(t, strings.Fields(c.bodies)...).Choose([]string{c.accept}); b != nil {
			got = b.Type
		}
		if got != c.want {
			t.Errorf("of %s, %q gets %q, want %q", c.bodies, c.accept, got, c.want)
		}
	}
	f := formatOf(t, js, page)
	if b := f.Choose([]string{"application/json;q=0.5", "text/html"}); b.Type != page {
		t.Errorf("of two lines: %s", b.Type)
	}
	if b := f.Choose(nil); b.Type != js {
		t.Errorf("of none: %s", b.Type)
	}
}

// hostile are texts that would end a string, an element or a line.
var hostile = []string{
	"", "plain", `"`, `'`, `\`, `\"`, `\u0022`, "a\nb", "a\r\nb", "\t", "</script><script>alert(1)</script>", "<!--", "-->", "]]>", "&amp;", "&", "<b>",
	"\u2028\u2029", "第 2 次", "∞", "😀", "{message}", "{{", "%00", "null", `","x":"`, `" onload="x`, "`", "\ufeff",
}

// controls cannot be said in XML; JSON and plain text do.
var controls = []string{"\x00", "a\x01b", "\x1b[0m", "\x7f", "\ufffe", "\uffff"}

// texts has a setter for each placeholder that is a text.
var texts = map[string]func(*errorformat.Values, string){
	"message": func(v *errorformat.Values, s string) { v.Message = s }, "outcome": func(v *errorformat.Values, s string) { v.Outcome = s },
	"decision_id": func(v *errorformat.Values, s string) { v.DecisionID = s }, "retry_after": func(v *errorformat.Values, s string) { v.RetryAfter = s },
	"ban_left": func(v *errorformat.Values, s string) { v.BanLeft = s }, "limit": func(v *errorformat.Values, s string) { v.Limit = s },
	"limit_name": func(v *errorformat.Values, s string) { v.LimitName = s },
}

var numbers = map[string]func(*errorformat.Values, int64){
	"status": func(v *errorformat.Values, n int64) { v.Status = int(n) }, "retry_after_seconds": func(v *errorformat.Values, n int64) { v.RetryAfterSeconds = n },
	"violations": func(v *errorformat.Values, n int64) { v.Violations = n }, "warn_after": func(v *errorformat.Values, n int64) { v.WarnAfter = n },
	"ban_after": func(v *errorformat.Values, n int64) { v.BanAfter = n },
}

// Whatever a value is, the body of each type parses, and says exactly that.
func TestBodiesSayExactlyTheText(t *testing.T) {
	for name, set := range texts {
		js := body(t, "application/vnd.api+json", fmt.Sprintf(`{"é\u00e9\\": "\n", "a": "<{%s}>", "b": [1, {}], "{x}": "{unknown_thing_entirely}\""}`, name))
		page := body(t, "text/html", fmt.Sprintf("<!doctype html><style>b{color:red}</style><title>{%[1]s}</title><p class='{%[1]s}'>{%[1]s}<b id=x lang='' / >!</b>", name))
		doc := body(t, "application/xml", fmt.Sprintf(`<?xml version="1.0"?><e a="{%[1]s}">{%[1]s}</e>`, name))
		plain := body(t, "text/plain", fmt.Sprintf("- {%s}{", name))
		for _, text := range slices.Concat(hostile, controls, []string{"\xff", "a\xc3"}) {
			var v errorformat.Values
			set(&v, text)
			valid := strings.ToValidUTF8(text, "\ufffd")
			var got struct{ A string }
			if err := json.Unmarshal(js.Fill(&v), &got); err != nil || got.A != "<"+valid+">" {
				t.Errorf("{%s} of %q in JSON: %s, %v", name, text, js.Fill(&v), err)
			}
			if got := string(plain.Fill(&v)); got != "- "+valid+"{" {
				t.Errorf("{%s} of %q in plain text: %q", name, text, got)
			}
			said := valid
			if slices.Contains(controls, text) && text != "\x7f" {
				said = strings.Map(func(c rune) rune {
					if c < ' ' || c >= 0xfffe && c <= 0xffff {
						return '\ufffd'
					}
					return c
				}, valid)
			}
			var element struct {
				A    string `xml:"a,attr"`
				Text string `xml:",chardata"`
			}
			if err := xml.Unmarshal(doc.Fill(&v), &element); err != nil || element.A != said || element.Text != said {
				t.Errorf("{%s} of %q in XML: %s, %v", name, text, doc.Fill(&v), err)
			}
			if got, want := readPage(t, page.Fill(&v)), "<style>b{color:red}</style><title>"+said+"</title><p class "+said+">"+said+"<b id x lang >!</b>"; got != want {
				t.Errorf("{%s} of %q in HTML: %q, want %q", name, text, got, want)
			}
		}
	}
}

// readPage writes what a browser reads of HTML, without escapes.
func readPage(t *testing.T, page []byte) string {
	t.Helper()
	var b strings.Builder
	z := xhtml.NewTokenizer(strings.NewReader(string(page)))
	for {
		switch z.Next() {
		case xhtml.ErrorToken:
			if z.Err() != io.EOF {
				t.Fatal(z.Err())
			}
			return b.String()
		case xhtml.DoctypeToken:
		case xhtml.StartTagToken:
			token := z.Token()
			fmt.Fprintf(&b, "<%s", token.Data)
			for _, a := range token.Attr {
				fmt.Fprintf(&b, " %s %s", a.Key, a.Val)
			}
			b.WriteString(">")
		case xhtml.TextToken:
			b.WriteString(z.Token().Data)
		default:
			fmt.Fprint(&b, z.Token())
		}
	}
}

// Numbers outside of quotes are numbers, or null; within, they are digits, or nothing.
func TestNumbers(t *testing.T) {
	for name, set := range numbers {
		js := body(t, "application/json", fmt.Sprintf(`{"a":{%[1]s},"b":"{%[1]s}","c":[-1,{%[1]s}]}`, name))
		for n, want := range map[int64]string{0: `{"a":null,"b":"","c":[-1,null]}`, 42: `{"a":42,"b":"42","c":[-1,42]}`, math.MaxInt64: `{"a":9223372036854775807,"b":"9223372036854775807","c":[-1,9223372036854775807]}`} {
			var v errorformat.Values
			set(&v, n)
			if got := string(js.Fill(&v)); got != want || !json.Valid([]byte(got)) {
				t.Errorf("{%s} of %d: %s, want %s", name, n, got, want)
			}
		}
	}
}

// A header is one line of printable ASCII whatever the text is, and says all of it.
func TestHeaders(t *testing.T) {
	for name, set := range texts {
		h, _, err := errorformat.ReadHeader("x-error-text", "a {"+name+"}")
		if err != nil {
			t.Fatal(err)
		}
		alone, _, err := errorformat.ReadHeader("X-Alone", " {"+name+"} ")
		if err != nil {
			t.Fatal(err)
		}
		f := errorformat.New(errorformat.Parts{Headers: []errorformat.Header{h, alone}})
		for _, text := range slices.Concat(hostile, controls) {
			var v errorformat.Values
			set(&v, text)
			got := http.Header{}
			f.SetHeaders(got, &v)
			line := got.Get("X-Error-Text")
			if strings.ContainsFunc(line, func(c rune) bool { return c < ' ' || c > '~' }) {
				t.Errorf("{%s} of %q: %q", name, text, line)
			}
			if decoded, err := url.PathUnescape(line); err != nil || decoded != strings.Trim("a "+text, " ") {
				t.Errorf("{%s} of %q: %q, %v", name, text, decoded, err)
			}
			if _, is := got["X-Alone"]; is == (text == "") {
				t.Errorf("{%s} of %q: %v", name, text, got)
			}
		}
	}
}

func TestStatuses(t *testing.T) {
	for status, right := range map[int]bool{200: false, 399: false, 400: true, 599: true, 600: false} {
		_, _, err := errorformat.ReadBody("text/html", "x", status)
		if (errorformat.CheckStatus(status) == nil) != right || (err == nil) != (right || status == 200) {
			t.Errorf("%d: %v, for a body %v", status, errorformat.CheckStatus(status), err)
		}
	}
	ok, _, _ := errorformat.ReadBody("application/json", "1", 200)
	page, _, _ := errorformat.ReadBody("text/html", "x", 0)
	under := errorformat.New(errorformat.Parts{Status: 418, Code: 14, Bodies: []errorformat.Body{ok, page}})
	over := errorformat.New(errorformat.Parts{Status: 420})
	failing := errorformat.New(errorformat.Parts{Status: 503, Bodies: []errorformat.Body{page}})
	for _, c := range []struct {
		f      *errorformat.Format
		accept string
		want   int
	}{
		{nil, "", 429},
		{new(errorformat.Format), "", 429},
		{under, "", 200},
		{under, "text/html", 418},
		{under.ForProxies(), "", 418},
		{failing, "", 503},
		{failing.ForProxies(), "", 429},
		{failing.ForProxies().ForProxies(), "text/html", 429},
		{over.Over(under), "text/html", 420},
		{over.Over(under), "", 200},
		{over.Over(under).ForProxies(), "", 420},
		{under.Over(over), "text/html", 418},
		{over.Over(nil), "", 420},
		{(*errorformat.Format)(nil).Over(over), "", 420},
		{(*errorformat.Format)(nil).ForProxies(), "", 429},
	} {
		if got := c.f.StatusOf(c.f.Choose([]string{c.accept}), 429); got != c.want {
			t.Errorf("%q: %d, want %d", c.accept, got, c.want)
		}
	}
	if over.Over(under).CodeOf(8) != 14 || over.CodeOf(8) != 8 {
		t.Error("codes")
	}
	if b := under.Choose(nil); b.Status != 200 {
		t.Error("ForProxies has changed its Format")
	}
}

func TestCodes(t *testing.T) {
	for name, want := range map[string]int{"canceled": 1, "resource_exhausted": 8, "unavailable": 14, "unauthenticated": 16} {
		if got, err := errorformat.ReadCode(name); err != nil || got != want {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "ok", "OK", "14", "UNAVAILABLE"} {
		if got, err := errorformat.ReadCode(name); err == nil {
			t.Errorf("%q is %d", name, got)
		}
	}
}

// A body that is read is well-formed with any value.
func FuzzBody(f *testing.F) {
	for _, seed := range []struct{ mediaType, text string }{
		{"application/json", `{"error": {"message": "{message}", "wait": {retry_after_seconds}}}`},
		{"application/json", `["\u{status}", "\\{outcome}"]`},
		{"application/json", `{"{outcome}": 1, "a": 1, "a": 2}`},
		{"text/html", `<p title="{message}">{message}</p><script>1</script><!-- x --><a href=x>`},
		{"text/html", `<textarea>{message}</textarea><x {message}><style>{message}`},
		{"application/xml", `<a b="{limit}">{message}<![CDATA[x]]></a>`},
		{"image/svg+xml", `<svg><script/>{message}</svg>`},
		{"application/xml", `<!DOCTYPE a [<!ENTITY b "{message}">]><a/>`},
		{"image/svg+xml", "<!DOCTYPE svg><svg>{message}</svg>"},
		{"text/plain", "{message} {"},
		{"text/csv", "a,b"},
	} {
		f.Add(seed.mediaType, seed.text, `"'</p></textarea>\`)
	}
	f.Fuzz(func(t *testing.T, mediaType, text, value string) {
		b, offset, err := errorformat.ReadBody(mediaType, text, 0)
		if err != nil {
			if offset < 0 || offset > len([]rune(text)) {
				t.Errorf("%q: offset %d", text, offset)
			}
			return
		}
		for _, v := range []errorformat.Values{
			{},
			{Message: value, Outcome: value, DecisionID: value, RetryAfter: value, BanLeft: value, Limit: value, LimitName: value, Status: 429, RetryAfterSeconds: math.MaxInt64, Violations: 1, WarnAfter: 1, BanAfter: 1},
		} {
			filled := b.Fill(&v)
			switch {
			case mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"):
				if !json.Valid(filled) {
					t.Errorf("%q became %q", text, filled)
				}
			case mediaType == "application/xml" || strings.HasSuffix(mediaType, "+xml"):
				if err := xml.Unmarshal(filled, new(struct{})); err != nil {
					t.Errorf("%q became %q: %v", text, filled, err)
				}
			case mediaType == "text/html":
				plain := b.Fill(&errorformat.Values{Message: "M", Outcome: "M", DecisionID: "M", RetryAfter: "M", BanLeft: "M", Limit: "M", LimitName: "M", Status: 1, RetryAfterSeconds: 1, Violations: 1, WarnAfter: 1, BanAfter: 1})
				if got, want := tags(filled), tags(plain); got != want {
					t.Errorf("%q became %q: the tags are %s, want %s", text, filled, got, want)
				}
			}
		}
	})
}

// tags are the tags that a browser finds in HTML, and the names of their attributes.
func tags(page []byte) string {
	var b strings.Builder
	z := xhtml.NewTokenizer(strings.NewReader(string(page)))
	for {
		kind := z.Next()
		if kind == xhtml.ErrorToken {
			return b.String()
		}
		if kind == xhtml.TextToken {
			continue
		}
		token := z.Token()
		fmt.Fprintf(&b, "%s %s", kind, html.EscapeString(token.Data))
		for _, a := range token.Attr {
			fmt.Fprintf(&b, " %s", a.Key)
		}
		b.WriteString("\n")
	}
}
