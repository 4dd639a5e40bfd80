package rules_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// findingsOf are the codes of the findings in a file, in order.
func findingsOf(t *testing.T, file string) (codes []string, text string) {
	t.Helper()
	s, err := rules.Parse("r.yaml", []byte(file))
	if err != nil {
		t.Fatalf("%s:\n%v", file, err)
	}
	var lines []string
	for _, f := range s.Findings {
		codes, lines = append(codes, f.Code), append(lines, f.String())
	}
	return codes, strings.Join(lines, "\n")
}

// What looks like a pattern is found wherever a text is compared, with what to write instead.
func TestPatternsInComparisons(t *testing.T) {
	paths := map[string]string{
		"/api/*": `request.path.under("/api")`, "/api/**": `request.path.under("/api")`, "/*": "request.path.matches", "*": "request.path.matches",
		"/a/*/b": `request.path.matches("^/a/[^/]*/b$")`, "/users/{id}": `request.path.matches("^/users/[^/]+$")`,
		"/users/:id/posts": `request.path.matches("^/users/[^/]+/posts$")`, "/v*": `request.path.matches("^/v[^/]*$")`, "*.php": "request.path.matches",
	}
	for path, want := range paths {
		for _, match := range []string{`request.path == "P"`, `"P" == request.path`, `request.path != "P"`, `request.path in ["/a", "P"]`, `!(request.path == "P") && request.method == "GET"`,
			`request.path.is("P")`, `request.path.under("P")`, `request.path.startsWith("P")`} {
			match = strings.Replace(match, "P", path, 1)
			codes, text := findingsOf(t, "rules:\n  - {name: a, match: '"+match+"', key: client.ip, limits: [1 per 1s]}\n")
			if !slices.Equal(codes, []string{"ST031"}) || !strings.Contains(text, want) {
				t.Errorf("%s: %s, want %s", match, text, want)
			}
		}
	}
	for match, want := range map[string]string{
		`request.host == "*.example.com"`: `request.host.endsWith(".example.com")`, `request.method == "GET|POST"`: "request.method in [", `request.method in ["*"]`: "request.method in [",
		`request.route == "api-*"`: `request.route.startsWith("api-")`,
	} {
		if codes, text := findingsOf(t, "blocklist: ['"+match+"']\n"); !slices.Equal(codes, []string{"ST031"}) || !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", match, text, want)
		}
	}
	for _, match := range []string{
		`request.path.matches("^/a/.*$")`, `request.path.contains("*")`, `request.headers["accept"] == "*/*"`, `request.path == "/v1/models:predict"`, `request.path == "/a{b}"`,
		`request.path == "/~user/$1"`, `request.query["q"] == "a*"`, `operation == "a/*"`, `request.path.endsWith("/*")`, `request.host == "example.com"`, `request.method in ["GET", "POST"]`, `request.route == "api"`,
	} {
		if codes, text := findingsOf(t, "blocklist: ['"+match+"']\n"); len(codes) > 0 {
			t.Errorf("%s: %s", match, text)
		}
	}
}

// What is said to be written instead is an expression without a finding that holds for a path of the
// pattern, and for no other.
func TestPatternsAreMended(t *testing.T) {
	for pattern, c := range map[string]struct{ in, out string }{
		"/api/*": {"/api/x", "/apis"}, "/a/*/b": {"/a/x/b", "/a/x/y/b"}, "/users/{id}": {"/users/7", "/users/"}, "/users/:id/posts": {"/users/7/posts", "/users/7"},
		"/v*": {"/v1", "/w"}, "*": {"x", "/a/b"}, "/**/x.y": {"/a/b/x.y", "/a/xzy"},
	} {
		_, text := findingsOf(t, `blocklist: ['request.path == "`+pattern+`"']`)
		_, mended, ok := strings.Cut(text, ": write ")
		if !ok {
			t.Errorf("%s: %s", pattern, text)
			continue
		}
		s, err := rules.Parse("r.yaml", []byte("blocklist: ['"+mended+"']\n"))
		if err != nil || len(s.Findings) > 0 {
			t.Errorf("%s: %v", mended, err)
			continue
		}
		for path, want := range map[string]bool{c.in: true, c.out: false} {
			var m rules.Plan
			if err := s.Asks(&rules.Input{Request: &rules.Request{Method: "GET", Path: path}}, &m); err != nil || (m.List == rules.Blocked) != want {
				t.Errorf("%s of %s: %v, %v", mended, path, m.List, err)
			}
		}
	}
}

func TestWarningsAfterBans(t *testing.T) {
	for penalty, want := range map[string]bool{
		"warn_after: 5, ban_after: 3, ban_for: 1h": true, "warn_after: 3, ban_after: 3, ban_for: 1h": true, "warn_after: 2, ban_after: 3, ban_for: 1h": false,
		"warn_after: 5": false, "ban_after: 3, ban_for: 1h": false, "warn_after: 0, ban_after: 1, ban_for: 1h": false, "warn_after: 5, ban_after: 0": false,
	} {
		if codes, text := findingsOf(t, "rules:\n  - {name: a, key: client.ip, limits: [1 per 1s], penalty: {"+penalty+"}}\n"); slices.Contains(codes, "ST032") != want || len(codes) > 1 {
			t.Errorf("%s: %s, want %t", penalty, text, want)
		}
	}
}

// omissibleKeys need what a client may leave out.
var omissibleKeys = []string{
	`request.headers["x-tenant"]`, `request.headers.tenant`, `request.query["q"]`, `request.cookies["SESSION"]`, `body.user`, `sha256(request.cookies["SESSION"])`,
	`[client.ip, request.headers["x-tenant"]]`, `request.headers["x-tenant"] + request.path`, `request.path == "/a" ? "a" : request.query.q`,
}

func TestOmittedKeys(t *testing.T) {
	rule := func(key, rest string) string {
		return "rules:\n  - {name: a, key: '" + key + "', limits: [1 per 1s]" + rest + "}\n"
	}
	for _, key := range omissibleKeys {
		for what, file := range map[string]string{
			"alone":                   rule(key, ""),
			"beside another":          rule(key, "") + "  - {name: b, match: request.path == \"/b\", key: client.ip, limits: [1 per 1s]}\n",
			"beside one of its kind":  rule(key, `, match: request.path == "/a"`) + "  - {name: b, match: request.path == \"/a\", key: request.query.b, limits: [1 per 1s]}\n",
			"beside one of more":      rule(key, `, match: request.path == "/a"`) + "  - {name: b, match: request.path == \"/a\" && request.method == \"POST\", key: client.ip, limits: [1 per 1s]}\n",
			"beside one in shadow":    rule(key, "") + "  - {name: b, key: client.ip, limits: [1 per 1s], mode: shadow}\n",
			"beside one that watches": rule(key, "") + "  - {name: b, key: client.ip, penalty: {ban_after: 3, ban_for: 1m, on_status: [401]}}\n",
			"beside one of claims":    rule(key, "") + "  - {name: b, key: claims.sub, limits: [1 per 1s]}\n",
			"by default":              rule(key, ", default: true"),
		} {
			if codes, text := findingsOf(t, file); !slices.Contains(codes, "ST033") {
				t.Errorf("%s, %s: %s", key, what, text)
			}
		}
		for what, file := range map[string]string{
			"shadow":                 rule(key, ", mode: shadow"),
			"a default":              rule(key, "") + "  - {name: b, default: true, key: client.ip, limits: [2 per 1m]}\n",
			"one without a match":    rule(key, "") + "  - {name: b, key: client.ip, limits: [1 per 1m]}\n",
			"one with the same":      rule(key, `, match: request.path == "/a"`) + "  - {name: b, match: request.path == \"/a\", limits: [1 per 1m]}\n",
			"one of a part of it":    rule(key, `, match: request.path == "/a" && request.method == "POST"`) + "  - {name: b, match: request.path=='/a', key: client.ip, limits: [1 per 1m]}\n",
			"tokens":                 strings.Replace(rule(key, ", tokens: openai"), "1 per 1s", "100 per 1m fixed_window hold", 1),
			"it only watches":        "rules: [{name: a, key: '" + key + "', penalty: {ban_after: 3, ban_for: 1m, on_status: [401]}}]\n",
			"the blocklist reads it": "blocklist: ['" + blockOf(key) + "']\n" + rule(key, ""),
			"the match reads it":     rule(key, ", match: '"+blockOf(key)+"'"),
		} {
			if codes, text := findingsOf(t, file); slices.Contains(codes, "ST033") {
				t.Errorf("%s, %s: %s", key, what, text)
			}
		}
	}
	for _, key := range []string{
		`client.ip`, `request.path`, `attrs.user`, `[attrs.user, request.query["q"]]`, `"all"`, `request.credential`, `sha256(request.credential)`, `request.headers["x-api-key"]`, `sha256(request.headers["authorization"])`,
		`"x-tenant" in request.headers ? request.headers["x-tenant"] : client.ip`, `has(request.query.q) ? request.query.q : "none"`,
	} {
		if codes, text := findingsOf(t, rule(key, "")); slices.Contains(codes, "ST033") {
			t.Errorf("%s: %s", key, text)
		}
	}
	if codes, text := findingsOf(t, "credential_headers: [x-shop-key]\n"+rule(`request.headers["x-shop-key"]`, "")); len(codes) > 0 {
		t.Errorf("a credential of the file's own: %s", text)
	}
}

// blockOf is a condition that reads what a key reads.
func blockOf(key string) string {
	for _, part := range []string{`request.headers["x-tenant"]`, `request.headers.tenant`, `request.query["q"]`, `request.query.q`, `request.cookies["SESSION"]`, `body.user`} {
		if strings.Contains(key, part) {
			return part + ` == ""`
		}
	}
	return "false"
}

func TestQueues(t *testing.T) {
	for limits, want := range map[string]bool{
		"[10 per 1s leaky_bucket burst 1]": true, "[1 per 1m leaky_bucket]": true, "[100 per 1h, 10 per 1s leaky_bucket burst 1]": true,
		"[10 per 1s leaky_bucket]": false, "[10 per 1s leaky_bucket burst 2]": false, "[1 per 1h, 10 per 1s leaky_bucket]": false,
	} {
		for shape, shapes := range map[string]bool{"true": true, "false": false} {
			codes, text := findingsOf(t, "rules:\n  - {name: a, key: client.ip, limits: "+limits+", shape: "+shape+"}\n")
			if slices.Contains(codes, "ST034") != (want && shapes) || len(codes) > 1 {
				t.Errorf("%s, shape %s: %s", limits, shape, text)
			}
		}
	}
}

// Many rules that no index finds are worth a word, few are not, nor are those which are for all requests anyhow.
func TestUnindexed(t *testing.T) {
	for match, want := range map[string]bool{
		`request.path.endsWith("/%d")`: true, `!(operation == "%d")`: true, `operation == "a" || request.path.matches("%d")`: true, `operation == "a" ? true : operation == "%d"`: true,
		`has(attrs.x) && claims.sub == "%d"`: true, `attrs.l.all(x, x != "%d") && operation == "a"`: true, `body.model == "%d"`: true, `attrs.n == %d`: true,
		`operation == "%d"`: false, `claims.sub == "%d"`: false, `request.path.endsWith("/%d") && operation in ["a", "b"]`: false, "true": false, "": false,
	} {
		for n, many := range map[int]bool{99: false, 100: true} {
			file := "rules:\n- {name: off, key: client.ip, match: request.path.endsWith(\"x\"), limits: [1 per 1s], mode: off}\n"
			for i := range n {
				file += fmt.Sprintf("- {name: r%d, key: client.ip, limits: [1 per 1s]", i)
				if match != "" {
					file += ", match: '" + strings.ReplaceAll(match, "%d", fmt.Sprint(i)) + "'"
				}
				file += "}\n"
			}
			s := parse(t, file)
			if all := s.Unindexed(); (len(all) == n) != want || !want && len(all) > 0 {
				t.Errorf("%s: %d of %d are unindexed", match, len(all), n)
			}
			var found string
			for _, f := range s.Findings {
				if f.Code == "ST035" {
					found = f.String()
				}
			}
			if (found != "") != (want && many) || found != "" && !strings.Contains(found, "r.yaml:3:") {
				t.Errorf("%s, %d rules: %q", match, n, found)
			}
		}
	}
}

// The files and pages that people copy from show none of the findings that follow from a file alone.
func TestExamplesHaveNoFindings(t *testing.T) {
	read := 0
	check := func(name, text string) {
		if s, err := rules.Parse(name, []byte(text)); err == nil && len(s.Rules) > 0 {
			read++
			for _, f := range s.Findings {
				t.Errorf("%s: %s", name, f)
			}
		}
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for _, dir := range []string{"../../README.md", "../../docs", "../../examples"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			isPage := strings.HasSuffix(path, ".md")
			if !isPage && !strings.HasSuffix(path, ".yaml") {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if !isPage {
				check(path, string(text))
			}
			for i, m := range block.FindAllStringSubmatch(string(text), -1) {
				check(fmt.Sprintf("%s, block %d", path, i+1), m[1])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 20 {
		t.Errorf("%d files and blocks with rules", read)
	}
}
