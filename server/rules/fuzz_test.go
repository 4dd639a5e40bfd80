package rules_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/rules"
)

var problemLine = regexp.MustCompile(`^f\.yaml:(\d+:\d+: \S|.*and \d+ more$)`)

// Any file either compiles to a set that can be asked or is refused, with places.
func FuzzParse(f *testing.F) {
	paths, _ := filepath.Glob("testdata/*.txt")
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, story := range strings.Split(string(data), "=== ")[1:] {
			_, story, _ = strings.Cut(story, "\n")
			file, _, _ := strings.Cut(story, "---\n")
			f.Add([]byte(file))
		}
	}
	f.Add([]byte(rich))
	inputs := []*rules.Input{{}, benchInput(), {
		Client: addr("2001:db8::1"), Operation: "op", Request: get("/login?a=b", "User-Agent", "\xff"), Cost: math.MaxInt64,
		Attrs: map[string]any{"user": "u", "size": int64(5), "x": nil, "good": true},
	}, posted(f, `{"max_tokens": 5, "n": 1e300, "model": null, "messages": [{"content": ["x", {"data": "y"}]}]}`), {Spent: true, Cost: 3}}
	f.Fuzz(func(t *testing.T, file []byte) {
		s, err := rules.Parse("f.yaml", file)
		if err != nil {
			lines := strings.Split(err.Error(), "\n")
			for _, line := range lines {
				if !problemLine.MatchString(line) {
					t.Errorf("no place in %q", line)
				}
			}
			if s != nil || len(lines) > 21 {
				t.Errorf("a set, or %d lines: %v", len(lines), err)
			}
			return
		}
		for _, in := range inputs {
			var out rules.Plan
			checkAsks(t, s, in, &out)
		}
		for _, r := range s.Rules {
			checkCostAfter(t, r)
		}
	})
}

// Nothing that a request may say makes Asks fail other than by refusing it.
func FuzzAsks(f *testing.F) {
	whole := parse(f, rich)
	sets := []*rules.Set{whole}
	for _, r := range whole.Rules {
		alone := *whole
		alone.Rules = []*rules.Rule{r}
		sets = append(sets, &alone)
	}
	f.Add("GET", "/a/b", "example.com", "X-Safe", "10.0.0.1", "q=xy&m=1", []byte{192, 0, 2, 1}, "op", `{"a":"x","b":7,"list":["x",6],"m":{"n":{"o":1}},"when":"2020-01-01T00:00:00Z","net":"10.0.0.0/8"}`, int64(1))
	f.Add("", "", "", "User-Agent", "badbot", "%zz=1;&&=", []byte{}, "", `{"a":null,"b":1e300,"list":[],"m":[],"when":"0000-01-01T00:00:00Z"}`, int64(-1))
	f.Add("PUT", strings.Repeat("/a", 2000), "\xff\x00", "é", "\x00", "q="+strings.Repeat("x", 500), make([]byte, 16), "o\x00p", `{"a":"1h","b":"9223372036854775808","list":[[1],{"x":null}],"m":{"n":"x"},"when":"9999-12-31T23:59:59Z"}`, int64(math.MaxInt64))
	f.Add("GET", "/a", "aaa", "X-Safe", "::ffff:10.0.0.1%eth0", "q=y", []byte("0123456789abcdef"), "x", `{"a":2.5,"b":-1,"list":[true,2.5],"m":{"2.5":1},"net":"::/0"}`, int64(0))
	f.Fuzz(func(t *testing.T, method, path, host, name, value, query string, ip []byte, operation, attrs string, cost int64) {
		client, _ := netip.AddrFromSlice(ip)
		in := &rules.Input{
			Request:   &rules.Request{Method: method, Path: path, Host: host, Header: http.Header{}, RawQuery: query},
			Client:    client,
			Operation: operation,
			Attrs:     decode(attrs),
			Cost:      cost,
		}
		in.Request.Header.Add(name, value)
		in.Request.Header.Add(name, host)
		var out rules.Plan
		for _, s := range sets {
			checkAsks(t, s, in, &out)
		}
	})
}

// decode reads JSON with whole numbers as int64, as the server does.
func decode(text string) map[string]any {
	var m map[string]any
	if json.Unmarshal([]byte(text), &m) != nil {
		return nil
	}
	whole(m)
	return m
}

func whole(v any) any {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int64(v)
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = whole(v[k])
		}
	}
	return v
}

func checkAsks(t *testing.T, s *rules.Set, in *rules.Input, out *rules.Plan) {
	err := s.Asks(in, out)
	if err != nil {
		if !errors.Is(err, stint.ErrRequest) || strings.Contains(err.Error(), "internal error") {
			t.Errorf("not the request's fault: %v", err)
		}
		if len(out.Asks)+len(out.Rules) > 0 || out.List != rules.Unlisted || !utf8.ValidString(err.Error()) || len(err.Error()) > 1000 {
			t.Errorf("after the error: %+v %q", out, err)
		}
		return
	}
	if len(out.Asks) != len(out.Rules) || len(out.Asks) > 0 && out.List != rules.Unlisted {
		t.Errorf("%s: %d asks of %d rules", out.List, len(out.Asks), len(out.Rules))
	}
	for i, a := range out.Asks {
		name := out.Rules[i].Name
		if a.Limit != nil { // else it looks for a ban alone
			name, _, _ = strings.Cut(a.Limit.Spec().Name, "@") // the tier follows
		}
		if !utf8.ValidString(a.Key) || name != out.Rules[i].Name || strings.HasPrefix(a.Key, "\x00") && strings.Trim(a.Key, "\x00") == "" {
			t.Errorf("ask %+v of rule %s", a, out.Rules[i].Name)
		}
	}
	if len(out.Asks) > 0 {
		if err := stint.Internal(friend.Of{}).Check(&stint.Request{Asks: out.Asks}); err != nil {
			t.Error(err)
		}
	}
	var again rules.Plan
	if err := s.Asks(in, &again); err != nil || !slices.Equal(again.Asks, out.Asks) {
		t.Errorf("asked again: %v, %v", again.Asks, err)
	}
}

// checkCostAfter checks what a rule makes of responses that have the same value at every path.
func checkCostAfter(t *testing.T, r *rules.Rule) {
	for _, value := range []any{nil, true, "5", int64(5), int64(-5), int64(math.MaxInt64), math.NaN(), 1e300, []any{int64(1)}, map[string]any{"a": int64(1)}} {
		resp := &rules.Response{Status: 200, Bytes: 5, Seconds: math.Inf(1), Headers: http.Header{"A": {"\xff", "b"}}, JSON: func([]string) (any, bool) { return value, true }}
		cost, known, err := r.CostAfter(resp)
		if cost < 0 || known && err != nil || !known && cost != 0 {
			t.Errorf("rule %q, %v: cost %d, known %t, error %v", r.Name, value, cost, known, err)
		}
		if err != nil && (strings.Contains(err.Error(), "internal error") || len(err.Error()) > 1000) {
			t.Errorf("rule %q, %v: %v", r.Name, value, err)
		}
	}
}
