package rules_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

func endpoint(method, path string) string {
	return rules.EndpointOf(&rules.Request{Method: method, Path: path}).Use()
}

// bases are what clients and proxies put before the paths of these APIs.
var bases = []string{"/v1/", "/", "/v1beta/", "/openai/v1/", "/openai/deployments/d/", "/v1beta/openai/", "/api/v1/", "/v1/projects/p/locations/l/publishers/p/"}

// samples are paths that a row of the table is about.
func samples(pattern string) []string {
	return []string{
		strings.NewReplacer("*:", "m-1.5:", "*", "id_1").Replace(pattern),
		strings.NewReplacer("*:", "a:", "*", "x").Replace(pattern),
	}
}

// Each row is found behind each base, also with an Upgrade. Reading is free everywhere.
func TestEndpoints(t *testing.T) {
	for _, row := range rules.EndpointRows() {
		for _, base := range bases {
			for _, path := range samples(row[0]) {
				path = base + path
				for _, post := range []string{"POST", ""} {
					if got := endpoint(post, path); got != row[1] {
						t.Errorf("%s %s %s, want %s", post, path, got, row[1])
					}
				}
				if got := endpoint("POST", path+"/"); got != row[1] {
					t.Errorf("%s/ %s, want %s", path, got, row[1])
				}
				for _, method := range []string{"GET", "HEAD", "OPTIONS", "DELETE"} {
					if got := endpoint(method, path); got != "reads" {
						t.Errorf("%s %s %s", method, path, got)
					}
				}
				for _, method := range []string{"PUT", "PATCH", "post", "get"} {
					if got := endpoint(method, path); got != "unknown" {
						t.Errorf("%s %s %s", method, path, got)
					}
				}
				upgraded := &rules.Request{Method: "POST", Path: path, Header: http.Header{"Upgrade": {"websocket"}}}
				if got := rules.EndpointOf(upgraded).Use(); got != row[1] { // a header alone must not make a batch cheap
					t.Errorf("POST %s upgraded: %s, want %s", path, got, row[1])
				}
			}
		}
	}
	if got := endpoint("POST", "/openai/files"); got != "free" {
		t.Errorf("files behind a base: %s", got)
	}
	in := posted(t, `{"max_tokens": 10}`) // what some upstreams take
	if in.Request.Method = "GET"; rules.EndpointOf(in.Request) != (rules.Endpoint{}) {
		t.Error("a body that is sent by GET only reads")
	}
	if got := rules.EndpointOf(nil); got != (rules.Endpoint{}) || got.IsKnown() {
		t.Error(got)
	}
}

// Where the body is not known, as for a check, the endpoint decides, too.
func TestEndpointsWithoutBody(t *testing.T) {
	s := tokens(t, "openai")
	for _, row := range rules.EndpointRows() {
		const guess = "1000000 per 1m fixed_window hold: 5120"
		want := guess
		if row[1] == "free" {
			want = "" // even a used-up budget lets it pass
		}
		for method, want := range map[string]string{"POST": want, "GET": "", "PUT": guess} {
			in := get("/v1/" + samples(row[0])[0])
			in.Method = method
			if got, want := asks(t, s, &rules.Input{Request: in, Client: addr("192.0.2.1"), Cost: 1}), want; got != want {
				t.Errorf("%s %s: got %s, want %s", method, in.Path, got, want)
			}
			if got, want := asks(t, s, &rules.Input{Request: in, Client: addr("192.0.2.1"), Cost: 77}), "1000000 per 1m fixed_window hold: 77"; got != want {
				t.Errorf("%s %s: got %s, want %s, as the caller says", method, in.Path, got, want)
			}
		}
	}
}

// What upstreams may take for a path that costs tokens is never taken for one that is free.
func TestEndpointsAreNotMadeFree(t *testing.T) {
	for _, row := range rules.EndpointRows() {
		if row[1] == "free" {
			continue
		}
		for _, path := range samples(row[0]) {
			for _, root := range rules.FreeRoots() {
				for _, way := range []string{"/%s/%s", "/v1/%s/%s", "/v1/%s/v1/%s", "/v1/%s/x/%s", "/%s;/%s", `/%s\%s`, `/%s/\%s`} {
					for _, p := range []string{path, strings.ToUpper(path), path + "/"} {
						whole := fmt.Sprintf(way, root, p)
						if got := endpoint("POST", whole); got == "free" && !isListedFree(whole) || got == "reads" {
							t.Errorf("POST %s %s", whole, got)
						}
					}
				}
			}
		}
	}
	for _, path := range []string{
		"/v1/moderations;x", `/v1/moderations\..\chat\completions`, "/v1/MODERATIONS", "/v1/Files", "/v1/x/files",
		"/v1/projects/p/models/m:newVerb", "/files", "/threads/t/runs/stream", "/v1/agents/a/invoke", "/v1/projects/p/locations/l/evaluationRuns", "/v1/messages/count_tokens/x", "/countTokens", "/v1/", "/", "", "/v1/chat", "/v1/xcompletions", "/v1/interactions",
		"/v1/files/x;y", "/vx/files", "/v-/files", "/v1beta/models/:countTokens", "/v1/responses//cancel",
	} {
		if got := endpoint("POST", path); got != "unknown" {
			t.Errorf("POST %s %s", path, got)
		}
	}
}

// A path that upstreams may read otherwise is not free.
func TestAmbiguousEndpointsAreNotFree(t *testing.T) {
	for target, want := range map[string]string{
		"/v1/files/x%252F..%252F..%252Fchat%252Fcompletions": "unknown",
		"/v1/chat/completions/%252e":                         "unknown",
		"//files/v1/rerank":                                  "unknown",
		"/v1/chat%2Fcompletions":                             "generates",
		"/v1/files/%66ile":                                   "free",
	} {
		to, err := rules.ReadTarget(target)
		if err != nil {
			t.Fatal(err)
		}
		if got := rules.EndpointOf(&rules.Request{Method: "POST", Path: to.Path, Ambiguous: to.Ambiguous}).Use(); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}

// isListedFree reports whether a row says so: threads/*/messages is another API's than messages.
func isListedFree(path string) bool {
	return strings.HasPrefix(path, "/threads/") || strings.HasPrefix(path, "/v1/threads/")
}

// The table in docs/tokens.md is the one in use, in its order: the first that fits counts.
func TestEndpointsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/tokens.md")
	if err != nil {
		t.Fatal(err)
	}
	var have [][3]string
	for _, m := range regexp.MustCompile("(?m)^\\| ([^|]+?) \\| (OpenAI|Anthropic|Gemini|any) \\| (`[^|]+`) \\|$").FindAllStringSubmatch(string(page), -1) {
		for path := range strings.SplitSeq(m[3], ", ") {
			have = append(have, [3]string{strings.Trim(path, "`"), m[1], strings.ToLower(m[2])})
		}
	}
	want := rules.EndpointRows()
	for i := range want {
		if want[i][2] == "none" {
			want[i][2] = "any"
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("docs/tokens.md has\n%v\nwant\n%v", have, want)
	}
	for _, root := range rules.FreeRoots() {
		if !strings.Contains(string(page), "`"+root+"`") {
			t.Errorf("docs/tokens.md does not name %s", root)
		}
	}
}

// costly are endpoints of the official clients that the table does not know, on purpose: what they cost
// is in no response, or in tokens of another kind.
var costly = []string{
	"/fine_tuning/jobs", "/fine_tuning/alpha/graders/run", // training
	"/threads/id/runs/id",                                                                                  // of OpenAI, it changes labels; other servers run agents there
	"/v1/sessions", "/v1/sessions/*", "/v1/deployments", "/v1/deployments/*", "/v1/dreams", "/v1/dreams/*", // agents that run by themselves
}

// Every path to which the official clients of OpenAI and Anthropic post is known, or costly.
func TestEndpointsOfClients(t *testing.T) {
	modules := "../../examples/llm/testdata/node_modules"
	all := 0
	for _, root := range []string{"openai/src/resources", "@anthropic-ai/sdk/src/resources"} {
		root = filepath.Join(modules, root)
		if _, err := os.Stat(root); err != nil {
			if os.Getenv("STINT_REQUIRE_CLIENTS") != "" {
				t.Fatal(err)
			}
			t.Skip("scripts/clients has not installed the official clients")
		}
		err := filepath.WalkDir(root, func(file string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".ts") {
				return err
			}
			source, err := os.ReadFile(file)
			for _, m := range regexp.MustCompile("\\.post\\((?:\\s*path)?\\s*['`]([^'`?]+)").FindAllStringSubmatch(string(source), -1) {
				all++
				path := regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAllString(m[1], "id")
				from := path
				if !strings.HasPrefix(from, "/v1/") {
					from = "/v1" + from // which is in the address of OpenAI's client
				}
				known := rules.EndpointOf(&rules.Request{Method: "POST", Path: from})
				isCostly := slices.ContainsFunc(costly, func(c string) bool {
					below, all := strings.CutSuffix(c, "*")
					return path == c || all && strings.HasPrefix(path, below)
				})
				if known == (rules.Endpoint{}) != isCostly {
					t.Errorf("%s: %s", path, known.Use())
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if all < 100 {
		t.Errorf("only %d paths were found", all)
	}
}
