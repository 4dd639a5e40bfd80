package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	wordOrQuote = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s"']+`)
	untilWord   = regexp.MustCompile(`--until \S+`)
)

// Of the commands in the pages for operators, those that exit with 1 here: their numbers
// and IDs are examples, and a diff tells that there is one.
var exitsWith1 = regexp.MustCompile(`^(ban lift pwnwlyfpen|override remove mbq2hjzt5x|rules rollback 7|rules diff|key release )`)

// The rules that docs/operations.md has in mind, and the pages that go on from there.
const operationsRules = `
tiers: {gold: attrs.plan == "gold"}
rules:
  - {name: login, match: request.path == "/login", key: client.ip, limits: [5 per 1m], penalty: {ban_after: 5, ban_for: 30m}}
  - {name: export, match: operation == "export", key: attrs.user, limits: [100 per 1h]}
  - {name: chat, match: operation == "chat", key: attrs.user, limits: [100000 per 1m fixed_window hold, 4 in_flight]}
`

// The commands of the pages for operators, one after the other, do what they say.
func TestOperations(t *testing.T) {
	var text strings.Builder
	for _, page := range []string{"operations", "deployment", "access"} {
		text.WriteString(readText(t, "../../docs/"+page+".md"))
	}
	if said := commandsOf(t, text.String(), operationsRules); said < 25 {
		t.Errorf("%d commands", said)
	}
}

// Those of docs/server.md do, with its rules, whose lists must not hold the
// clients that the commands limit, ban and explain.
func TestServerPage(t *testing.T) {
	text := readText(t, "../../docs/server.md")
	_, rules, _ := strings.Cut(text, "```yaml\n")
	rules, _, _ = strings.Cut(rules, "```")
	_, rules, ok := strings.Cut(rules, "\ntrusted_proxies:") // what stands before are settings
	rules = "trusted_proxies:" + rules
	if said := commandsOf(t, text, rules); !ok || said < 5 {
		t.Errorf("%d commands, with these rules:\n%s", said, rules)
	}
	put(t, "page.yaml", rules)
	code, out, errs := call("", "explain", "--config", "page.yaml", "--client", "192.0.2.7", "--method", "POST", "--path", "/login")
	if code != 0 || !strings.Contains(out, "5 per 1m sliding_log") {
		t.Errorf("explain: exit %d\n%s%s", code, out, errs)
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// plainWords are the words of a command where the shell has nothing to do but to take off quotes.
func plainWords(command string) (words []string) {
	for _, word := range wordOrQuote.FindAllString(command, -1) {
		words = append(words, strings.Trim(word, `'"`))
	}
	return words
}

// commandsOf makes the calls in the shell blocks of a document in order, but for
// those that serve or read recorded traffic, and returns how many. What stands after
// > is written.
func commandsOf(t *testing.T, text, rules string) (said int) {
	f := startFleetWith(t, rules, 1)
	t.Setenv("STINT_ADMIN", f.all[0].admin)
	t.Chdir(t.TempDir())
	put(t, "stint.yaml", rules)
	for _, block := range codeBlocks(text) {
		if !block.is("sh") {
			continue
		}
		for line := range strings.Lines(block.body) {
			line, ok := strings.CutPrefix(line, "stint ")
			if !ok || strings.HasPrefix(line, "simulate ") || strings.HasPrefix(line, "serve ") {
				continue
			}
			line, _, _ = strings.Cut(line, " #")
			line, file, _ := strings.Cut(strings.TrimSpace(line), " > ")
			line = untilWord.ReplaceAllString(line, "--until "+time.Now().Add(time.Hour).Format(time.RFC3339))
			args := plainWords(line)
			switch {
			case args[0] == "watch":
				args = append(args, "--lines=1") // it has no end of its own
			case args[0] == "healthcheck" && slices.Contains(args, "--envoy"):
				continue // none of stint envoy runs here
			case args[0] == "healthcheck": // the file does not have the port of these instances
				args = append(args, "--url", f.all[0].check)
			}
			code, out, errs := call("", args...)
			if code != 0 && (code != 1 || !exitsWith1.MatchString(line)) {
				t.Errorf("%s: exit %d\n%s%s", line, code, out, errs)
			}
			if strings.Contains(out, "no effect") {
				t.Errorf("%s:\n%s", line, out)
			}
			if file != "" {
				put(t, file, out)
			}
			said++
		}
	}
	return said
}
