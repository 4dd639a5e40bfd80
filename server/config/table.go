package config

import (
	"strconv"
	"time"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
)

// The kinds of texts that several settings have.
var (
	address      = schema.Shape{What: "address", Kind: schema.KindScalar, Pattern: `^(\[[^\]]*\]|[^\[\]:]*):[^:]*$`}
	addressOrOff = address.OrElse(schema.Words(Off))
	webURL       = schema.Shape{What: "URL", Kind: schema.KindScalar, Pattern: "^" + schema.AnyCase("http", "https") + "://[^/]"}
)

const hour = time.Hour

// rows are all settings: what each is, and how it is read. Default, the flags of the program, the
// variables STINT_SERVER_..., the JSON Schema and docs/settings.md come from them. check is set to
// what looks at "check", which is done last.
func (s *Settings) rows(r *yamlnode.Reader, check *func(*yamlnode.Node)) schema.Rows {
	return schema.Rows{
		{Name: "listen", Value: schema.Parsed(r, &s.Listen, parseListen, address).Expanding(r), Default: ":8080", Example: `":80"`, Flag: "listen", See: "deployment.md#upstreams",
			Says: "Address of the gateway; unused without routes."},
		{Name: "check_listen", Value: schema.Parsed(r, &s.CheckListen, parseListenOrOff, addressOrOff).Expanding(r), Default: "127.0.0.1:8082", Flag: "check-listen", See: "access.md#who-may-ask-the-check-api",
			Says: "Address of the check API, /healthz, /readyz and /metrics; off: none."},
		{Name: "probe_listen", Value: schema.Parsed(r, &s.ProbeListen, parseListenOrOff, addressOrOff).Expanding(r), Default: Off, Example: `":9100"`, Flag: "probe-listen", See: "deployment.md#probes-and-metrics-from-elsewhere",
			Says: "Second address of /healthz, /readyz and /metrics, for probes from other machines."},
		{Name: "tls", Value: readTLS(r, &s.TLS), See: "access.md#tls", Example: "{cert: /etc/stint/tls.crt, key: /etc/stint/tls.key}",
			Says: "The gateway's certificate; without it, plain HTTP."},
		{Name: "check_tls", Value: readTLS(r, &s.CheckTLS), See: "access.md#tls", Example: "{cert: /etc/stint/tls.crt, key: /etc/stint/tls.key, client_ca: /etc/stint/clients.pem}",
			Says: "The check API's certificate, and the authority of its callers."},

		{Name: "store", Value: schema.Text(r, &s.Store, "URL").OrWords("memory").Expanding(r), Default: "memory", Example: `"redis://localhost:6379"`, Flag: "store", Secret: true, See: "redis.md",
			Says: "Where counts are kept: memory (this instance alone), or a Redis URL."},
		{Name: "per_second_store", Value: schema.Text(r, &s.PerSecondStore, "URL").Expanding(r), Example: `"redis://localhost:6380"`, Secret: true, See: "redis.md",
			Says: "URL of another Redis, for limits with periods under a minute."},
		{Name: "namespace", Value: schema.Parsed(r, &s.Namespace, ParseNamespace, schema.Scalar("name", "^[A-Za-z0-9_.:-]{1,64}$")).ByDefault(func() {}, func() string { return s.Namespace }), Computed: "from the store URL, else stint", Example: "shop", Flag: "namespace",
			See: "deployment.md#several-services-on-one-redis", Says: "Separates this service from others in the same Redis. Services with the same namespace share counts of rules with equal names, bans, switches and pushed rules."},
		{Name: "decision_timeout", Value: schema.Duration(r, "decision_timeout", &s.DecisionTimeout, schema.AboveZero, schema.Endless), Default: "25ms", See: "reliability.md#how-an-instance-notices-a-failure",
			Says: "How long a request waits for the store before its rule's on_store_error decides."},
		{Name: "breaker", Value: readBreaker(r, &s.Breaker), See: "reliability.md#how-an-instance-notices-a-failure",
			Says: "When an instance stops asking a failing store, and when it tries again."},
		{Name: "instances", Value: schema.Number(r, &s.Instances, 1, 100_000).ByDefault(func() { s.Instances = 0 }, nil), Computed: "the last count", Example: "4", See: "operations.md#while-redis-is-away",
			Says: "How many instances share the limits while the store is away."},
		{Name: "state_dir", Value: schema.Parsed(r, &s.StateDir, parseStateDir, schema.Scalar("directory", "^(/|[A-Za-z]:)")), Example: "/var/lib/stint", See: "operations.md#a-start-while-redis-is-away",
			Says: "Directory for this instance alone: bans, lists, switches and pushed rules for a start while the store is away."},
		{Name: "ready_without_controls", Value: schema.Bool(r, &s.ReadyWithoutControls), Default: "true", See: "operations.md#a-start-while-redis-is-away",
			Says: "Lets /readyz answer 200 before bans, lists, switches and pushed rules are read from the store or state_dir."},
		{Name: "remembered_denials", Value: byMemory(r, &s.RememberedDenials, 0, 1<<24), Computed: "by memory, up to 100,000", Example: "50000", See: "deployment.md#a-flood-of-refused-requests",
			Says: "Most refusals that this instance repeats without asking the store; 0: none."},

		{Name: "memory", Value: schema.Parsed(r, &s.Memory, parseByteSize, schema.Size("1MiB", "")).ByDefault(func() { s.Memory = 0 }, func() string { return ByteSize(s.Memory).String() }),
			Computed: "of the cgroup or machine", Example: "512MiB", See: "bounds.md#what-an-instance-holds-at-most",
			Says: "Memory for all bounds \"by memory\"."},
		{Name: "max_keys", Value: byMemory(r, &s.MaxKeys, 1, 1<<31), Computed: "by memory, up to 1,000,000", Example: "200000", See: "bounds.md#what-an-instance-holds",
			Says: "Most counts in a store in memory, and as many while another store is away."},
		{Name: "max_connections", Value: byMemory(r, &s.MaxConnections, 1, 1<<31), Computed: "by memory and open files, up to 50,000", Example: "10000", See: "deployment.md#protect-an-instance-from-overload",
			Says: "Most connections per listener. Further ones are closed."},
		{Name: "instance", Value: schema.Section(r, s.Instance.rows(r), nil), See: "deployment.md#protect-an-instance-from-overload",
			Says: "Limits of this instance's gateway and check API, whatever the rules say."},
		{Name: "max_delayed", Value: schema.Number(r, &s.MaxDelayed, 1, 1<<20), Default: "1000", See: "rules.md#shaping",
			Says: "Most requests of shaping rules that wait at once."},
		{Name: "max_delay", Value: schema.Duration(r, "max_delay", &s.MaxDelay, schema.AboveZero, schema.Endless), Default: "10s", See: "rules.md#shaping",
			Says: "Longest wait of a request of a shaping rule."},
		{Name: "body_timeout", Value: schema.Duration(r, "body_timeout", &s.BodyTimeout, 0, hour), Default: "30s", See: "deployment.md#upstreams",
			Says: "How long a client of the gateway may delay a body or a response: in one pause, or in all by falling behind 500 bytes a second. 0s: no limit."},
		{Name: "offenders", Value: schema.Number(r, &s.Offenders, 0, 10_000), Default: "1000", See: "offenders.md",
			Says: "How many top keys, rules, paths and clients this instance counts; 0: none."},
		{Name: "recent_requests", Value: schema.Parsed(r, &s.RecentRequests, parseRecent, schema.Size("1MiB", "1GiB").OrElse(schema.Words(Off))), Default: "4MiB", See: "operations.md#try-a-change-on-the-last-minutes",
			Says: "Memory for the requests of the last 5 minutes, to try other rules on them."},

		{Name: "routes", Value: schema.Mappings(r, func(to *Route) schema.Rows { return to.rows(r) }, func(t *Route, n *yamlnode.Node, fields map[string]*yamlnode.Node) { s.addRoute(r, t, n, fields) }),
			Example: `[{path: /v1, upstream: "http://localhost:9000"}]`, See: "deployment.md#upstreams", Says: "Where the gateway sends requests: by host, then longest path."},
		{Name: "upstream_timeout", Value: schema.Duration(r, "upstream_timeout", &s.UpstreamTimeout, schema.AboveZero, schema.Endless), Default: "1m", See: "deployment.md#upstreams",
			Says: "How long an upstream may take to begin its answer before the client gets 504."},
		{Name: "response_timeout", Value: schema.Duration(r, "response_timeout", &s.ResponseTimeout, 0, schema.Endless), Default: "0s", Example: "30m", See: "deployment.md#upstreams",
			Says: "How long a whole response may take, from when the request is passed on. 0s: no limit."},
		{Name: "upstream_proxy", Value: schema.Parsed(r, &s.UpstreamProxy, parseProxy, schema.Scalar("URL", "^"+schema.AnyCase("http", "https", "socks5")+"://[^/]").OrElse(schema.Words(fromEnvironment))).Expanding(r), Example: "http://proxy.internal:3128", Secret: true, See: "deployment.md#upstreams",
			Says: "Proxy for upstreams, jwks_url and URLs of lists: its URL, or environment for HTTP_PROXY, HTTPS_PROXY and NO_PROXY."},
		{Name: "upgrades", Value: schema.List(r, &s.Upgrades, parseUpgrade, schema.Scalar("protocol", "^[^ ]+$")), Default: "[websocket]", Example: "[websocket, mqtt]", See: "deployment.md#upgrades-of-connections",
			Says: "Protocols that a connection may switch to. Others are removed from requests."},
		{Name: "ambiguous", Value: schema.Custom(ambiguousShape(), readAmbiguous(r, &s.AllowAmbiguous)), Default: "refuse", See: "deployment.md#paths-that-servers-read-differently",
			Says: "What happens to requests that servers read in different ways, if a rule, list or route reads that part: refuse (400), allow, or a mapping of what may pass."},
		{Name: "stop_delay", Value: schema.Duration(r, "stop_delay", &s.StopDelay, 0, hour), Default: "0s", Example: "5s", See: "deployment.md#stop-and-restart-without-losing-requests",
			Says: "How long to keep serving after a signal to stop, with /readyz failing, so that load balancers send requests elsewhere."},
		// Less than the 30 seconds after which Kubernetes kills a process that has not stopped.
		{Name: "stop_timeout", Value: schema.Duration(r, "stop_timeout", &s.StopTimeout, 0, hour), Default: "25s", See: "deployment.md#stop-and-restart-without-losing-requests",
			Says: "How long requests in flight may then take before they are cut off."},

		{Name: "client_header", Value: schema.Parsed(r, &s.ClientHeader, parseHeader, schema.Scalar("header", "^[A-Za-z0-9-]+$")), Computed: "X-Forwarded-For and Forwarded", Example: "X-Real-Ip", See: "rules.md#addresses-of-clients",
			Says: "The header in which trusted_proxies write the client's address."},
		{Name: "headers", Value: s.dialect(r), Default: "[x-ratelimit]", Example: "[x-ratelimit, draft-11]", Flag: "headers", See: "operations.md#tell-clients-why",
			Says: "The headers that tell clients about their limits."},
		{Name: "degraded_header", Value: schema.Bool(r, &s.DegradedHeader), Default: "false", See: "bounds.md#who-decided",
			Says: "Adds Stint-Degraded, with who decided, to responses that the store did not decide."},
		{Name: "violations_header", Value: schema.Bool(r, &s.ViolationsHeader), Default: "false", See: "operations.md#tell-clients-why",
			Says: "Adds Stint-Violations to refusals: the violations so far, and how many lead to a ban."},
		{Name: "cors", Value: readCORS(r, &s.CORS), Example: `{origins: ["https://app.example.com"]}`, See: "access.md#let-web-pages-read-refusals",
			Says: "Which pages of other origins may read answers."},
		{Name: "jwt", Value: readJWT(r, &s.JWT), Example: `{jwks_url: "https://id.example.com/.well-known/jwks.json", issuer: "https://id.example.com"}`, See: "access.md#tokens-of-clients",
			Says: "Which tokens of clients are valid. Expressions read their claims."},
		{Name: "secrets", Value: readSecrets(r, &s.Secrets), Example: "{pepper: {file: /etc/stint/pepper}}", See: "access.md#hide-addresses-and-names-in-keys",
			Says: "Secrets for hmac in expressions, by name."},
		{Name: "lists", Value: readLists(r, &s.Lists), Example: "{bad: {file: /etc/stint/bad.cidr}}", See: "access.md#lists-of-networks",
			Says: "Lists of networks for list in expressions, by name; at most 100."},

		{Name: "check", Value: s.Check.value(s, r).After(r, check), See: "access.md#who-may-ask-the-check-api",
			Says: "Who may use the check API."},
		{Name: "admin", Value: s.Admin.value(r), See: "access.md#who-may-use-the-admin-api",
			Says: "The admin API: its address and its callers."},
		{Name: "rules", Value: schema.Parsed(r, &s.RulesFrom, ParseRulesFrom, schema.Words("file", "fleet")), Default: "file", See: "operations.md#change-the-fleets-rules",
			Says: "Where rules come from: this file, or pushes to the fleet."},

		{Name: "privacy", Value: schema.Parsed(r, &s.HashKeys, parsePrivacy, schema.Words("show", "hash")), Default: "show", See: "logs.md#hide-keys-and-addresses",
			Says: "Whether logs, pages and messages show keys, client addresses and user names, or a keyed hash of each."},
		{Name: "log", Value: s.Log.value(r), See: "logs.md",
			Says: "What is logged, and how."},
		{Name: "traces", Value: readTraces(r, &s.Traces), Example: "{endpoint: http://localhost:4318}", See: "traces.md",
			Says: "Where spans are sent, by OTLP."},
		{Name: "webhooks", Value: readWebhooks(r, &s.Webhooks), Example: "[{name: ops, kind: slack, url_file: /etc/stint/slack}]", See: "alerts.md#send-alerts-to-webhooks",
			Says: "Where alerts of the rules are sent, at most 10."},

		{Name: "envoy", Value: readEnvoy(r, &s.Envoy), Example: "{directory: /etc/ratelimit/config}", See: "envoy.md#beside-the-gateway",
			Says: "Envoy's rate limit service, rate limit quota service and external authorization, over gRPC."},
	}
}

// byMemory is a bound that depends on the memory where it is left out; see Settings.FitMemory.
func byMemory(r *yamlnode.Reader, to *int64, least, most int64) schema.Value {
	return schema.Number(r, to, least, most).ByDefault(func() { *to = ByMemory }, func() string {
		if *to == ByMemory {
			return "by memory"
		}
		return strconv.FormatInt(*to, 10)
	})
}
