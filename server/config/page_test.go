package config_test

import (
	"bytes"
	"fmt"
	"io"
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
	{"Limits of this instance", "\"By memory\" means that the bound is computed from `memory`, so that all of them together fit into it ([bounds.md](bounds.md#what-an-instance-holds-at-most)).",
		[]string{"memory", "max_keys", "max_connections", "instance", "max_delayed", "max_delay", "offenders", "recent_requests"}},
	{"Upstreams", "", []string{"routes", "upstream_timeout", "response_timeout", "body_timeout", "upstream_proxy", "upgrades", "ambiguous", "stop_delay", "stop_timeout"}},
	{"Clients and proxies", "", []string{"client_header", "headers", "degraded_header", "violations_header", "cors", "jwt", "secrets"}},
	{"TLS", "Certificates of the gateway and of the check API. Those of the admin API, of Envoy's service and of what Stint calls are in their sections.", []string{"tls", "check_tls"}},
	{"Who may ask: tokens and certificates", "Tokens stand in files or variables, never in the settings.", []string{"check"}},
	{"The admin API", "", []string{"admin"}},
	{"Logs", "", []string{"log", "privacy"}},
	{"Traces", "", []string{"traces"}},
	{"Alerts", "", []string{"webhooks"}},
	{"Envoy", "`stint envoy` takes them from the variables of envoyproxy/ratelimit, too ([envoy-reference.md](envoy-reference.md#environment-variables)).", []string{"envoy"}},
}

func writeSettingsPage(w io.Writer) {
	fmt.Fprint(w, `<!-- Made by: go test ./server/config -run TestSettingsPage -update -->
# Settings

The settings of `+"`stint serve`"+` stand in a configuration file, under `+"`server`"+`, beside the [rules](rules.md). All may be left out.

`+"```yaml"+`
server:
  store: redis://localhost:6379
  admin: {listen: 127.0.0.1:8090}
  routes: [{upstream: "http://localhost:9000"}]
rules: []
`+"```"+`

- **Variables.** Each setting that is no list, and in none, can be given by a variable of the environment: `+"`STINT_SERVER_ADMIN_LISTEN`"+` is `+"`admin.listen`"+`. An empty variable is one that is not set. The log names variables that name no setting.
- **Flags** stand below the names of their settings.
- **Order.** A flag goes before a variable, a variable before the file, the file before the default. `+"`--upstream`"+` replaces all routes. `+"`stint status --settings`"+` shows what is in force, and the line, variable or flag that gave it.
- **Secrets.** Where it says so, a value may have `+"`${NAME}`"+`, a variable of the environment, and `+"`${file:/run/secrets/redis}`"+`, the text of a file without the end of its line, in it: `+"`store: \"redis://:${file:/run/secrets/redis}@redis:6379\"`"+`. They are read once, at the start; if one is missing, the server does not start, and says in which line. `+"`stint rules check`"+` needs none of them. `+"`$${`"+` stands for `+"`${`"+`.
- **Changes.** A change of the settings takes effect at the next start. Files that they name, such as certificates and tokens, are read again when they change. Rules always are.
- Durations are texts such as `+"`500ms`, `10s`, `1m30s`, `24h` or `7d`"+`, sizes such as `+"`64MiB` or `2GiB`"+`. Where no version is said, a setting is there since v0.1.0.
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
		schema.WriteTable(w, rows, "", func(_ string, row *schema.Row) string {
			if row.Flag == "" {
				return ""
			}
			return "`--" + row.Flag + "`"
		})
	}
}

// docs/settings.md is what the rows say, and has each of them once.
func TestSettingsPage(t *testing.T) {
	var page bytes.Buffer
	writeSettingsPage(&page)
	golden.File(t, settingsPage, page.String())
	config.Table().Walk("", func(path string, _ *schema.Row) {
		if n := strings.Count(page.String(), `<a id="`+path+`">`); n != 1 {
			t.Errorf("%s stands there %d times", path, n)
		}
	})
}
