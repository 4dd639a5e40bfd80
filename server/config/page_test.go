package config_test

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/server/config"
)

const settingsPage = "../../docs/settings.md"

// settingsGroups are the settings as a person looks for them.
var settingsGroups = []struct {
	title, says string
	names       []string
}{
	{"Listen", "", []string{"listen", "check_listen", "probe_listen"}},
	{"The store", "", []string{"store", "per_second_store", "namespace", "decision_timeout", "breaker", "instances", "remembered_denials", "state_dir", "ready_without_controls", "rules"}},
	{"Limits of this instance", "Bounds \"by memory\" together fit into `memory` ([bounds.md](bounds.md#what-an-instance-holds-at-most)).",
		[]string{"memory", "max_keys", "max_connections", "instance", "max_delayed", "max_delay", "offenders", "recent_requests"}},
	{"Upstreams", "", []string{"routes", "upstream_timeout", "response_timeout", "body_timeout", "upstream_proxy", "upgrades", "ambiguous", "stop_delay", "stop_timeout"}},
	{"Clients and proxies", "", []string{"client_header", "headers", "degraded_header", "violations_header", "cors", "jwt", "secrets", "lists"}},
	{"TLS", "Certificates that Stint shows to clients. For servers that it calls, see [upstreams](#routes[].tls).", []string{"tls", "check_tls"}},
	{"Who may ask: tokens and certificates", "Tokens stand in files or variables, never in the settings.", []string{"check"}},
	{"The admin API", "", []string{"admin"}},
	{"Logs", "", []string{"log", "privacy"}},
	{"Traces", "", []string{"traces"}},
	{"Alerts", "", []string{"webhooks"}},
	{"Envoy", "`stint envoy` also takes them from [the variables of envoyproxy/ratelimit](envoy-reference.md#environment-variables).", []string{"envoy"}},
}

// sameFields are mappings whose fields are those of another. The page has these once, where the other is.
var sameFields = map[string]string{
	"check_tls.": "tls.", "admin.tls.": "tls.", "envoy.tls.": "tls.",
	"traces.tls.": "routes[].tls.", "webhooks[].tls.": "routes[].tls.", "envoy.xds.tls.": "routes[].tls.",
	"check.tokens[].": "admin.tokens[].", "check.clients[].": "admin.clients[].",
}

// nameMore is what stands below the name of a setting: its flag, and where the fields in it are.
func nameMore(path string, row *schema.Row) string {
	for _, below := range []string{".", "[]."} {
		if at, ok := sameFields[path+below]; ok {
			return "[fields](#" + strings.TrimSuffix(strings.TrimSuffix(at, "."), "[]") + ")"
		}
	}
	if row.Flag == "" {
		return ""
	}
	return "`--" + row.Flag + "`"
}

var tableRow = regexp.MustCompile(`(?m)^\| <a id="([^"]+)"></a>.*\n`)

// withoutSameFields drops the rows of sameFields, and makes links to them lead to the rows that stay.
func withoutSameFields(t *testing.T, page string) string {
	says := map[string]string{}
	config.Table().Walk("", func(path string, row *schema.Row) { says[path] = row.Says })
	var anchors []string
	page = tableRow.ReplaceAllStringFunc(page, func(line string) string {
		path := tableRow.FindStringSubmatch(line)[1]
		dot := strings.LastIndexByte(path, '.') + 1
		of, ok := sameFields[path[:dot]]
		if !ok {
			return line
		}
		stays := of + path[dot:]
		if says[path] != says[stays] {
			t.Errorf("%s says %q, and %s says %q", path, says[path], stays, says[stays])
		}
		stays = `<a id="` + stays + `"></a>`
		anchors = append(anchors, stays, `<a id="`+path+`"></a>`)
		return ""
	})
	for i := 0; i < len(anchors); i += 2 {
		page = strings.Replace(page, anchors[i], anchors[i]+anchors[i+1], 1)
	}
	return page
}

func writeSettingsPage(w io.Writer) {
	fmt.Fprint(w, `<!-- Made by: go test ./server/config -run TestSettingsPage -update -->
# Settings

The settings of `+"`stint serve`"+` are in a configuration file, under `+"`server`"+`, beside the [rules](rules.md). All are optional.

`+"```yaml"+`
server:
  store: redis://localhost:6379
  admin: {listen: 127.0.0.1:8090}
  routes: [{upstream: "http://localhost:9000"}]
rules: []
`+"```"+`

- **Order.** Flags override variables, variables override the file. `+"`stint status --settings`"+` shows the values in force, and their sources.
- **Flags** are below the names. `+"`--upstream`"+` replaces all routes.
- **Variables.** `+"`STINT_SERVER_ADMIN_LISTEN`"+` is `+"`admin.listen`"+`, and so on for each setting that is not a list or in one. Empty variables do not count. The log names variables of unknown settings.
- **Secrets.** A value marked `+"`${NAME}`"+` may contain variables (`+"`${NAME}`"+`) and files (`+"`${file:PATH}`"+`, without the last line end): `+"`store: \"redis://:${file:/run/secrets/redis}@redis:6379\"`"+`. They are read at the start; if one is missing, the server does not start, and names the line. `+"`stint rules check`"+` needs none. `+"`$${`"+` stands for `+"`${`"+`.
- **Changes** of settings take effect at the next start. Files marked *reread*, and rules, are read again when they change.
- **Values.** Durations are like `+"`500ms`, `1m30s` or `7d`"+`, sizes like `+"`64MiB`"+`; ranges such as `+"`1 to 100`"+` are whole numbers. Without a default, a setting is off or not set.
`)
	table := config.Table()
	for _, g := range settingsGroups {
		fmt.Fprintf(w, "\n## %s\n\n", g.title)
		if g.says != "" {
			fmt.Fprintf(w, "%s\n\n", g.says)
		}
		var rows schema.Rows
		for _, name := range g.names {
			rows = append(rows, table[slices.IndexFunc(table, func(r schema.Row) bool { return r.Name == name })])
		}
		schema.WriteTable(w, rows, "", nameMore)
	}
}

// docs/settings.md is what the rows say, and has each of them once.
func TestSettingsPage(t *testing.T) {
	var whole bytes.Buffer
	writeSettingsPage(&whole)
	page := withoutSameFields(t, whole.String())
	golden.File(t, settingsPage, page)
	config.Table().Walk("", func(path string, _ *schema.Row) {
		if n := strings.Count(page, `<a id="`+path+`">`); n != 1 {
			t.Errorf("%s stands there %d times", path, n)
		}
	})
}
