package main

import (
	"fmt"
	"strings"
	"testing"
)

// The recipes of docs/replay.md give what rules read: the real nginx logs it; Envoy's keys are recognised; and the
// folders of AWS are read.
func TestReplayRecipes(t *testing.T) {
	_, recipes, found := strings.Cut(readText(t, "../../docs/replay.md"), "## Recipes\n")
	blocks := codeBlocks(recipes)
	if !found || len(blocks) < 5 {
		t.Fatalf("%d blocks", len(blocks))
	}
	block := func(i int, info, has string) string {
		if body := blocks[i].body; blocks[i].info[0] == info && strings.Contains(body, has) {
			return body
		}
		t.Fatalf("block %d is %+v", i, blocks[i])
		return ""
	}

	const rules = `
rules:
  - {name: tenant, match: request.host == "shop.example" && request.path.is("/a"), key: 'request.headers["x-tenant"]', limits: [1 per 1h]}
`
	t.Run("nginx", func(t *testing.T) {
		runText(t, "nginx", pageOf(
			"stint.yaml", "yaml", rules,
			"log.conf", "nginx", block(0, "nginx", "log_format"),
			"nginx.conf", "nginx", `daemon off;
pid nginx.pid;
events {}
http {
  client_body_temp_path temp; proxy_temp_path temp; fastcgi_temp_path temp; uwsgi_temp_path temp; scgi_temp_path temp;
  include log.conf;
  server { listen 127.0.0.1:8080; location / { return 200 "hello\n"; } }
}
`,
			"", "sh", `nginx -p "$PWD" -c nginx.conf 2> nginx.log &
curl -s --retry 20 --retry-connrefused localhost:8080/
for tenant in a a b a; do curl -s -H "X-Tenant: $tenant" -H "Host: shop.example" "localhost:8080/a?q=%22"; done
until [ "$(wc -l < limits.log)" = 5 ]; do sleep 0.1; done
`,
			"", "sh", block(1, "sh", "--format"),
			"", "text", "…\ntenant: 1 per 1h, by request.headers[\"x-tenant\"]\n…\n    a                                            2 of 3\n…\n",
			"", "sh", "kill %1\n"))
	})

	const byClient = "rules: [{name: one, match: 'request.host == \"shop.example\" && request.path.is(\"/a\")', key: client.ip, limits: [1 per 1h]}]\n"
	t.Run("envoy", func(t *testing.T) {
		line := map[string]string{}
		for text := range strings.Lines(block(2, "yaml", "json_format")) {
			if key, operator, found := strings.Cut(strings.TrimSpace(text), ": \"%"); found {
				line[key] = map[string]string{
					`START_TIME%"`: "2026-11-20T10:00:00.123Z", `DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"`: "192.0.2.7",
					`REQ(:METHOD)%"`: "GET", `REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"`: "/a?b=c", `REQ(:AUTHORITY)%"`: "shop.example",
					`RESPONSE_CODE%"`: "200", `REQ(USER-AGENT)%"`: "curl/8",
				}[operator]
			}
		}
		var members []string
		for key, value := range line {
			members = append(members, fmt.Sprintf("%q:%q", key, value))
		}
		log := strings.Repeat("{"+strings.Join(members, ",")+"}\n", 3)
		command := strings.Replace(block(3, "sh", "kubectl"), "kubectl logs deploy/envoy --since 24h", "cat envoy.jsonl", 1)
		runText(t, "envoy", pageOf("stint.yaml", "yaml", byClient, "envoy.jsonl", "json", log,
			"", "sh", command, "", "text", "…\n    192.0.2.7                                    2 of 3\n…\n"))
	})

	t.Run("aws", func(t *testing.T) {
		const line = `h2 2026-11-20T10:00:00.100000Z app/lb/50dc 192.0.2.7:2817 198.51.100.66:9000 0.0 0.002 0.0 200 200 5 257 ` +
			`"GET https://shop.example:443/a?b HTTP/2.0" "curl/8" ECDHE TLSv1.2 arn:aws:elasticloadbalancing:x "Root=1" "-" "-" 1 2026-11-20T10:00:00.000000Z ` +
			`"forward" "-" "-" "198.51.100.66:9000" "200" "-" "-" TID_1` + "\n"
		sync, command, _ := strings.Cut(block(4, "sh", "aws s3 sync"), "\n")
		if !strings.HasSuffix(sync, " alb") {
			t.Fatal(sync)
		}
		runText(t, "aws", pageOf("stint.yaml", "yaml", strings.Replace(byClient, `request.host == "shop.example" && `, "", 1), "alb/20/a.log", "log", line+line, "alb/21/b.log", "log", line,
			"", "sh", "gzip alb/*/*\n", "", "sh", command, "", "text", "…\n    192.0.2.7                                    2 of 3\n…\n"))
	})
}

// What docs/replay.md shows is printed for the log of the page about numbers.
func TestReplayDocs(t *testing.T) {
	files := map[string]string{}
	for _, b := range codeBlocks(readText(t, "../../docs/start/numbers.md")) {
		if name := namedFile.FindStringSubmatch(b.above); name != nil {
			files[name[1]] = b.body
		}
	}
	var printed []string
	for _, b := range codeBlocks(readText(t, "../../docs/replay.md")) {
		if b.is("text") {
			printed = append(printed, b.body)
		}
	}
	if len(printed) != 2 {
		t.Fatalf("%d blocks of text", len(printed))
	}
	runText(t, "docs/replay.md", pageOf("log.py", "python", files["log.py"], "guess.yaml", "yaml", files["guess.yaml"],
		"", "sh", "python3 log.py > access.log\n",
		"", "sh", "stint replay --rules guess.yaml access.log\n", "", "text", printed[0],
		"", "sh", "stint replay --rules guess.yaml --suggest login,pages access.log\n", "", "text", printed[1]))
}

// pageOf is a page that writes files and runs commands: for each, a name or "", the language, and the text.
func pageOf(blocks ...string) string {
	var b strings.Builder
	for i := 0; i < len(blocks); i += 3 {
		if blocks[i] != "" {
			fmt.Fprintf(&b, "Write `%s`:\n\n", blocks[i])
		}
		fmt.Fprintf(&b, "```%s\n%s```\n\n", blocks[i+1], blocks[i+2])
	}
	return b.String()
}
