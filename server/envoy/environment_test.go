package envoy_test

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
)

// fromEnvironment are the settings that variables give.
func fromEnvironment(variables []string) (config.Settings, []string, error) {
	given, unused, err := envoy.FromEnvironment(variables)
	if err != nil {
		return config.Settings{}, nil, err
	}
	s, err := (&config.Source{Given: given, CheckStore: redislimit.CheckAddress}).ReadSettings()
	return s, unused, err
}

func TestEnvironmentDefaults(t *testing.T) {
	s, unused, err := fromEnvironment([]string{"PATH=/bin", "REDIS_PORT=tcp://10.0.0.1:6379", "REDIS_SERVICE_HOST=10.0.0.1", "nonsense"})
	if err != nil || len(unused) > 0 {
		t.Fatalf("%v, %v", unused, err)
	}
	want := config.Default()
	want.DecisionTimeout, want.Log.Level = 250*time.Millisecond, slog.LevelWarn
	want.Envoy = config.DefaultEnvoy()
	want.Envoy.HTTPListen, want.Envoy.DebugListen, want.Envoy.Listen = "0.0.0.0:8080", "0.0.0.0:6070", "0.0.0.0:8081"
	want.Envoy.EnvoySource = config.EnvoySource{Directory: "/srv/runtime_data/current/config", DirectoryLink: "/srv/runtime_data/current", DirectoryMayBeEmpty: true, DotFiles: true}
	want.Envoy.Stats.Statsd, want.Envoy.Stats.LocalCache = "localhost:8125", false
	if !s.Equal(&want) {
		t.Errorf("\n%+v\n%+v, want\n%+v\n%+v", s, s.Envoy, want, want.Envoy)
	}
	// These are the defaults of envoyproxy/ratelimit, too.
	like := config.DefaultEnvoy()
	like.MaxConnectionAge, like.MaxConnectionAgeGrace = 24*time.Hour, time.Hour
	like.Stats.FlushInterval, like.Stats.NearLimitRatio, like.Stats.PrometheusPath = 10*time.Second, 0.8, "/metrics"
	like.HeaderNames = config.EnvoyHeaders{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}
	if !reflect.DeepEqual(like, config.DefaultEnvoy()) {
		t.Errorf("by default %+v, want %+v", config.DefaultEnvoy(), like)
	}
}

const everyVariable = `HOST=1.1.1.1
PORT=0x50
DEBUG_HOST=::1
DEBUG_PORT=81
GRPC_HOST=
GRPC_PORT=82
GRPC_UDS=/run/rls.sock
GRPC_MAX_CONNECTION_AGE=1h
GRPC_MAX_CONNECTION_AGE_GRACE=2h
GRPC_SERVER_USE_TLS=T
GRPC_SERVER_TLS_CERT=cert
GRPC_SERVER_TLS_KEY=key
GRPC_CLIENT_TLS_CACERT=ca
GRPC_CLIENT_TLS_SAN=san
LOG_LEVEL=TRACE
LOG_FORMAT=JSON
CONFIG_TYPE=GRPC_XDS_SOTW
FORCE_START_WITHOUT_INITIAL_CONFIG=true
RUNTIME_ROOT=/root
RUNTIME_SUBDIRECTORY=sub
RUNTIME_APPDIRECTORY=app
RUNTIME_IGNOREDOTFILES=1
RUNTIME_WATCH_ROOT=false
MERGE_DOMAIN_CONFIG=true
HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true
CONFIG_GRPC_XDS_NODE_ID=node
CONFIG_GRPC_XDS_NODE_METADATA=a=b, c=d=e
CONFIG_GRPC_XDS_SERVER_URL=xds:1
CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL=4s
CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=Authorization:Bearer x:y,b:c
CONFIG_GRPC_XDS_SERVER_USE_TLS=true
CONFIG_GRPC_XDS_CLIENT_TLS_CERT=xcert
CONFIG_GRPC_XDS_CLIENT_TLS_KEY=xkey
CONFIG_GRPC_XDS_SERVER_TLS_CACERT=xca
CONFIG_GRPC_XDS_SERVER_TLS_SAN=xsan
XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=11s
XDS_CLIENT_BACKOFF_MAX_INTERVAL=61s
XDS_CLIENT_BACKOFF_RANDOM_FACTOR=0.25
XDS_CLIENT_BACKOFF_JITTER=false
XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=123
USE_STATSD=false
STATSD_HOST=statsd
STATSD_PORT=83
USE_DOG_STATSD=true
USE_DOG_STATSD_MOGRIFIERS=one, Two
DOG_STATSD_MOGRIFIER_ONE_PATTERN=^a(.*)$
DOG_STATSD_MOGRIFIER_ONE_NAME=a
DOG_STATSD_MOGRIFIER_ONE_TAGS=rest:$1
DOG_STATSD_MOGRIFIERS_TWO_PATTERN=b
DOG_STATSD_MOGRIFIERS_TWO_NAME=c
USE_PROMETHEUS=true
PROMETHEUS_ADDR=:84
PROMETHEUS_PATH=/m
PROMETHEUS_MAPPER_YAML=mapper
PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS=true
EXTRA_TAGS=tag:value,other:1
STATS_FLUSH_INTERVAL=12s
DD_ENTITY_ID=pod
DD_ENV=prod
DD_SERVICE=limits
DD_VERSION=1.2
EXPIRATION_JITTER_MAX_SECONDS=7
NEAR_LIMIT_RATIO=0.5
CACHE_KEY_PREFIX=pre:
BACKEND_TYPE=redis
STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true
STINT_ENVOY_KEYS=true
STINT_ENVOY_QUOTA_SHARES=equal
STINT_ENVOY_QUOTA_TTL=30s
STINT_DECISION_TIMEOUT=250ms
SHADOW_MODE=true
QUOTA_MODE=true
RESPONSE_DYNAMIC_METADATA=true
LIMIT_RESPONSE_HEADERS_ENABLED=true
LIMIT_LIMIT_HEADER=l
LIMIT_REMAINING_HEADER=r
LIMIT_RESET_HEADER=s
REDIS_SOCKET_TYPE=tcp
REDIS_URL=redis:6379
REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true
REDIS_POOL_SIZE=20
REDIS_PIPELINE_WINDOW=150us
REDIS_PERSECOND=true
REDIS_PERSECOND_URL=other:6379
MEMCACHE_HOST_PORT=
LOCAL_CACHE_SIZE_IN_BYTES=1000
TRACING_ENABLED=true
TRACING_SERVICE_NAME=limits
TRACING_SAMPLING_RATE=0.1
TRACING_EXPORTER_PROTOCOL=grpc`

// TestEnvironment gives each variable a value of its own, so that two that are mixed up show.
func TestEnvironment(t *testing.T) {
	s, unused, err := fromEnvironment(strings.Split(everyVariable, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"REDIS_PIPELINE_WINDOW", "REDIS_POOL_SIZE"}; !slices.Equal(unused, want) {
		t.Errorf("unused: %v, want %v", unused, want)
	}
	want := config.Default()
	want.Store, want.PerSecondStore, want.DecisionTimeout = "redis://redis:6379", "redis://other:6379", 250*time.Millisecond
	want.Log.Level, want.Log.JSON = slog.LevelDebug, true
	want.Traces = &config.Traces{Service: "limits", Sample: 0.1, Protocol: "grpc"}
	want.Envoy = &config.Envoy{
		EnvoySource: config.EnvoySource{
			MergeDomains: true, StartWithoutDescriptors: true,
			XDS: &config.XDS{
				NodeID: "node", NodeMetadata: map[string]string{"a": "b", "c": "d=e"}, Server: "xds:1", Retry: 4 * time.Second,
				Headers: map[string]string{"authorization": "Bearer x:y", "b": "c"}, TLS: &config.UpstreamTLS{Cert: "xcert", Key: "xkey", CA: "xca", ServerName: "xsan"},
				Backoff: 11 * time.Second, MaxBackoff: 61 * time.Second, BackoffJitter: 0, MaxMessage: 123,
			},
		},
		Listen: "unix:/run/rls.sock", HTTPListen: "1.1.1.1:80", DebugListen: "[::1]:81",
		MaxConnectionAge: time.Hour, MaxConnectionAgeGrace: 2 * time.Hour,
		TLS: &config.TLSFiles{Cert: "cert", Key: "key", ClientCA: "ca"}, ClientName: "san",
		Stats: config.EnvoyStats{
			DogStatsd: "statsd:83", PrometheusListen: ":84", PrometheusPath: "/m", PrometheusMapper: "mapper", PrometheusMilliseconds: true,
			Tags: map[string]string{"tag": "value", "other": "1"}, FlushInterval: 12 * time.Second, LocalCache: true, NearLimitRatio: 0.5,
			DogStatsdTags: map[string]string{"dd.internal.entity_id": "pod", "env": "prod", "service": "limits", "version": "1.2"},
			Mogrifiers:    []config.Mogrifier{{Pattern: "^a(.*)$", Name: "a", Tags: map[string]string{"rest": "$1"}}, {Pattern: "b", Name: "c"}},
		},
		ResponseHeaders: true, HeaderNames: config.EnvoyHeaders{Limit: "l", Remaining: "r", Reset: "s"},
		QuotaShares: "equal", QuotaTTL: 30 * time.Second, Shadow: true, QuotaMode: true, DynamicMetadata: true,
		Health:         config.EnvoyHealth{NeedsDescriptors: true, NeedsStore: true},
		SharedCounters: &config.EnvoyCounters{KeyPrefix: "pre:", ExpiryJitter: 7 * time.Second},
	}
	if !s.Equal(&want) {
		t.Errorf("\n%+v\n%+v\n%+v, want\n%+v\n%+v\n%+v", s, s.Envoy, s.Envoy.XDS, want, want.Envoy, want.Envoy.XDS)
	}
}

// What stands for something else in a file stands for itself in these variables.
func TestEnvironmentIsLiteral(t *testing.T) {
	s, _, err := fromEnvironment([]string{
		"EXTRA_TAGS=a:${HOME}", "REDIS_URL=redis+cluster://h?password_file=/${HOME}", "GRPC_UDS=/run/${HOME}", "PROMETHEUS_MAPPER_YAML=/${HOME}",
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a:$${HOME}",
	})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{s.Envoy.Stats.Tags["a"], s.Store, s.Envoy.Listen, s.Envoy.Stats.PrometheusMapper, s.Envoy.XDS.Headers["a"]}
	want := []string{"${HOME}", "redis+cluster://h?password_file=/${HOME}", "unix:/run/${HOME}", "/${HOME}", "$${HOME}"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEnvironmentRedis(t *testing.T) {
	for _, c := range []struct{ variables, want string }{
		{"REDIS_URL=", "memory"},
		{"REDIS_POOL_SIZE=1", "memory"},
		{"REDIS_URL=memory", "memory"},
		{"REDIS_URL=localhost:6379", "redis://localhost:6379"},
		{"REDIS_URL=/run/redis.sock", "unix:///run/redis.sock"},
		{"REDIS_SOCKET_TYPE=unix", "unix:///var/run/nutcracker/ratelimit.sock"},
		{"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379 REDIS_AUTH=secret", "redis://:secret@redis:6379"},
		{"REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379 REDIS_AUTH=user:p@s:s?/%+", "redis://user:p%40s%3As%3F%2F%25%2B@redis:6379"},
		{"REDIS_SOCKET_TYPE=unix REDIS_URL=/r.sock REDIS_AUTH=x", "unix://:x@/r.sock"},
		{"REDIS_URL=redis://:pw@host:1/2 REDIS_TIMEOUT=3s", "redis://:pw@host:1/2?timeout=3s"},
		{"REDIS_URL=host:1 REDIS_TIMEOUT=10m", "redis://host:1?timeout=1m0s"},
		{"REDIS_URL=host:1 REDIS_TIMEOUT=0", "redis://host:1"},
		{"REDIS_TYPE=CLUSTER REDIS_URL=a:1,b:2 REDIS_SOCKET_TYPE=tcp", "redis+cluster://a:1,b:2"},
		{"REDIS_TYPE=cluster REDIS_URL=a:1 REDIS_TLS=true REDIS_AUTH=x", "rediss+cluster://:x@a:1"},
		{"REDIS_TYPE=SENTINEL REDIS_URL=master,a:1,b:2 REDIS_AUTH=x REDIS_SENTINEL_AUTH=u:y", "redis+sentinel://:x@a:1,b:2/master?sentinel_password=y&sentinel_user=u"},
		{"REDIS_TYPE=SENTINEL REDIS_URL=master,a:1 REDIS_SENTINEL_AUTH=y&z", "redis+sentinel://a:1/master?sentinel_password=y%26z"},
		{"REDIS_URL=h:1 REDIS_TLS=true REDIS_TLS_CACERT=/ca REDIS_TLS_CLIENT_CERT=/c REDIS_TLS_CLIENT_KEY=/k", "rediss://h:1?ca=%2Fca&cert=%2Fc&key=%2Fk"},
		{"REDIS_URL=h:1 REDIS_TLS=true REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true", "rediss://h:1?verify=chain"},
		{"REDIS_URL=h:1 REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true", "redis://h:1"},
		{"REDIS_URL=rediss+cluster://u:p@a,b?ca=/ca REDIS_TYPE=CLUSTER", "rediss+cluster://u:p@a,b?ca=/ca"},
	} {
		s, _, err := fromEnvironment(strings.Fields(c.variables))
		if err != nil || s.Store != c.want {
			t.Errorf("%s: %q, %v, want %q", c.variables, s.Store, err, c.want)
			continue
		}
		given, _, _ := envoy.FromEnvironment(strings.Fields(c.variables))
		chosen := slices.ContainsFunc(given, func(g config.Given) bool { return g.Path == "store" })
		if want := strings.Contains(c.variables, "REDIS_URL=m") || c.want != "memory"; chosen != want {
			t.Errorf("%s: chosen: %v", c.variables, chosen)
		}
		if c.want == "memory" || !strings.Contains(c.variables, "REDIS_URL") {
			continue
		}
		// The second Redis is named as the first; both have the same certificates.
		second := strings.NewReplacer("REDIS_TLS_", "REDIS_TLS_", "REDIS_", "REDIS_PERSECOND_").Replace(c.variables)
		s, unused, err := fromEnvironment(append(strings.Fields(second), "REDIS_PERSECOND=true", "REDIS_URL=first:1"))
		if err != nil || len(unused) > 0 || s.PerSecondStore != c.want || s.Store != "redis://first:1" {
			t.Errorf("%s: %q, unused %v, %v, want %q", second, s.PerSecondStore, unused, err, c.want)
		}
		s, unused, err = fromEnvironment(append(strings.Fields(second), "REDIS_PERSECOND=false", "REDIS_URL=first:1"))
		if err != nil || len(unused) == 0 || s.PerSecondStore != "" {
			t.Errorf("%s, switched off: %q, unused %v, %v", second, s.PerSecondStore, unused, err)
		}
	}
	for variables, want := range map[string]string{
		"REDIS_PERSECOND=true": "REDIS_PERSECOND: needs a REDIS_URL",
		"REDIS_PERSECOND=true REDIS_URL=a:1 REDIS_PERSECOND_TYPE=CLUSTER":    "REDIS_PERSECOND_URL: is missing",
		"REDIS_PERSECOND=true REDIS_URL=a:1 REDIS_PERSECOND_URL=a:b":         "REDIS_PERSECOND_URL: a port must be a number",
		"REDIS_PERSECOND=true REDIS_URL=a:1 REDIS_PERSECOND_SOCKET_TYPE=udp": `REDIS_PERSECOND_SOCKET_TYPE: "udp"`,
	} {
		if _, _, err := fromEnvironment(strings.Fields(variables)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", variables, err)
		}
	}
}

func TestEnvironmentNamespace(t *testing.T) {
	for prefix, want := range map[string]string{"": "", "team-a:": "team-a:", "a b": `^stint-[0-9a-f]{12}$`, strings.Repeat("x", 65): `^stint-[0-9a-f]{12}$`} {
		s, _, err := fromEnvironment([]string{"CACHE_KEY_PREFIX=" + prefix, "REDIS_URL=h:1"})
		if err != nil || !regexp.MustCompile("^"+want+"$").MatchString(s.Namespace) {
			t.Errorf("%q: %q, %v", prefix, s.Namespace, err)
		}
	}
}

func TestEnvironmentWrong(t *testing.T) {
	for variables, want := range map[string]string{
		"PORT=http":                     `PORT: "http": want a whole number from 0 to 65535`,
		"GRPC_PORT=65536":               `GRPC_PORT: "65536": want a whole number`,
		"GRPC_MAX_CONNECTION_AGE=1":     `GRPC_MAX_CONNECTION_AGE: "1": want a duration`,
		"STATS_FLUSH_INTERVAL=-1s":      `STATS_FLUSH_INTERVAL: "-1s": want a duration from 1ms`,
		"STINT_DECISION_TIMEOUT=0s":     `STINT_DECISION_TIMEOUT: "0s": want a duration from 1ms`,
		"SHADOW_MODE=yes":               `SHADOW_MODE: "yes": want true or false`,
		"NEAR_LIMIT_RATIO=80":           `NEAR_LIMIT_RATIO: "80": want a number from 0 to 1`,
		"NEAR_LIMIT_RATIO=NaN":          `NEAR_LIMIT_RATIO`,
		"LOG_LEVEL=loud":                `LOG_LEVEL: "loud": want one of warn`,
		"CONFIG_TYPE=XDS":               `CONFIG_TYPE: "XDS": want one of FILE, GRPC_XDS_SOTW`,
		"RUNTIME_ROOT=":                 `RUNTIME_ROOT: is empty`,
		"GRPC_SERVER_USE_TLS=true":      `GRPC_SERVER_USE_TLS: needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY`,
		"EXTRA_TAGS=a":                  `EXTRA_TAGS: want a list such as key1:value1`,
		"BACKEND_TYPE=memcache":         `BACKEND_TYPE: "memcache": Stint counts in Redis`,
		"LIMIT_LIMIT_HEADER=a:b":        `LIMIT_LIMIT_HEADER: "a:b" is not the name of a header`,
		"USE_STATSD=1 USE_DOG_STATSD=1": `USE_STATSD: and USE_DOG_STATSD are both true`,
		"USE_DOG_STATSD_MOGRIFIERS=a":   `DOG_STATSD_MOGRIFIER_A_PATTERN: is missing`,
		"USE_DOG_STATSD_MOGRIFIERS=a DOG_STATSD_MOGRIFIER_A_PATTERN=( DOG_STATSD_MOGRIFIER_A_NAME=n":                                    `DOG_STATSD_MOGRIFIER_A_PATTERN: error parsing regexp`,
		"USE_DOG_STATSD_MOGRIFIERS=a DOG_STATSD_MOGRIFIER_A_PATTERN=x DOG_STATSD_MOGRIFIER_A_NAME=n DOG_STATSD_MOGRIFIER_A_TAGS=empty:": `DOG_STATSD_MOGRIFIER_A_TAGS: "empty" has no value`,
		"USE_PROMETHEUS=1 PROMETHEUS_ADDR=9090":                                                    `PROMETHEUS_ADDR: "9090": want an address`,
		"USE_PROMETHEUS=1 PROMETHEUS_PATH=m":                                                       `PROMETHEUS_PATH: "m": want a path`,
		"STINT_ENVOY_EACH=1 STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=1":                             `STINT_ENVOY_EACH: is the opposite of`,
		"TRACING_EXPORTER_PROTOCOL=udp":                                                            `TRACING_EXPORTER_PROTOCOL`,
		"STINT_ENVOY_KEYS=true":                                                                    `STINT_ENVOY_KEYS: needs a Redis`,
		"REDIS_TYPE=CLUSTER":                                                                       `REDIS_URL: is missing`,
		"REDIS_TYPE=ring REDIS_URL=a:1":                                                            `REDIS_TYPE: "ring": want one of SINGLE, CLUSTER, SENTINEL`,
		"REDIS_TYPE=SENTINEL REDIS_URL=a:1":                                                        `REDIS_URL: with REDIS_TYPE=SENTINEL: want the name of the master`,
		"REDIS_SOCKET_TYPE=unix REDIS_URL=a:1":                                                     `REDIS_SOCKET_TYPE: unix, but REDIS_URL is host:port`,
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=/a":                                                       `REDIS_SOCKET_TYPE: tcp, but REDIS_URL is the path of a socket`,
		"REDIS_URL=/a REDIS_TLS=true":                                                              `REDIS_TLS: is for tcp`,
		"REDIS_URL=redis://:a@b REDIS_AUTH=c":                                                      `REDIS_AUTH: REDIS_URL has a password, too`,
		"REDIS_URL=redis+cluster://a REDIS_AUTH=c":                                                 `REDIS_AUTH: REDIS_URL is an address of Stint`,
		"REDIS_URL=a:b":                                                                            `REDIS_URL: a port must be a number`,
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_NODE_METADATA=a":                                `CONFIG_GRPC_XDS_NODE_METADATA: want a list such as key1=value1`,
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_CLIENT_TLS_CERT=a":                              `CONFIG_GRPC_XDS_CLIENT_TLS_CERT: and CONFIG_GRPC_XDS_CLIENT_TLS_KEY must`,
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=é:1":                  `"é" is not the name of a header`,
		"GRPC_SERVER_USE_TLS=1 GRPC_SERVER_TLS_CERT=a GRPC_SERVER_TLS_KEY=b GRPC_CLIENT_TLS_SAN=c": `GRPC_CLIENT_TLS_SAN: needs GRPC_CLIENT_TLS_CACERT`,
	} {
		_, _, err := fromEnvironment(strings.Fields(variables))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", variables, err, want)
		}
	}
}

// TestEnvironmentTellsNoSecrets gives wrong values that hold secrets.
func TestEnvironmentTellsNoSecrets(t *testing.T) {
	for _, variables := range []string{
		"REDIS_URL=redis://:hidden%zz@host:1", "REDIS_URL=redis://:hidden@host:99999", "REDIS_URL=host:hidden REDIS_AUTH=hidden",
		"CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=hidden", "REDIS_URL=redis://:hidden@host:1?x=%zz",
	} {
		_, _, err := fromEnvironment(strings.Fields(variables))
		if err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", variables, err)
		}
	}
}

// The table of the page has which settings the variables of a row give: what their values are a part of, with all
// others set. -update writes them.
func TestSettingsOfVariables(t *testing.T) {
	of := settingsOfVariables(t)
	if len(of) < 70 {
		t.Errorf("only %d variables give settings", len(of))
	}
	const page = "../../docs/envoy-reference.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "<!-- Settings are made by: go test ./server/envoy -run TestSettingsOfVariables -update -->\n\n")
	table, _, found := strings.Cut(rest, "\n\n")
	if !found {
		t.Fatal("the page has no table")
	}
	variables := regexp.MustCompile("`([A-Z_]+)`")
	rows := strings.Split(table, "\n")
	for i, row := range rows {
		cells := strings.Split(row, "|")
		if len(cells) != 5 {
			t.Fatalf("want three cells: %s", row)
		}
		var settings []string
		for _, m := range variables.FindAllStringSubmatch(cells[1], -1) {
			for _, path := range slices.Sorted(slices.Values(of[m[1]])) {
				if link := fmt.Sprintf("[`%s`](settings.md#%s)", path, path); !slices.Contains(settings, link) {
					settings = append(settings, link)
				}
			}
			delete(of, m[1])
		}
		if i >= 2 { // after the head and its line
			cells[2] = strings.TrimRight(" "+strings.Join(settings, ", "), " ") + " "
			rows[i] = strings.Join(cells, "|")
		}
	}
	if len(of) > 0 {
		t.Errorf("no row has %q", slices.Sorted(maps.Keys(of)))
	}
	golden.File(t, page, strings.Replace(string(text), table, strings.Join(rows, "\n"), 1))
}

// settingsOfVariables are the settings that each variable gives.
func settingsOfVariables(t *testing.T) map[string][]string {
	of := map[string][]string{}
	for _, more := range []string{"", "CONFIG_TYPE=FILE\nRUNTIME_WATCH_ROOT=true", "GRPC_UDS=", "USE_STATSD=true\nUSE_DOG_STATSD=false", "STINT_ENVOY_KEYS=false", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=false\nSTINT_ENVOY_EACH=true"} {
		given, _, err := envoy.FromEnvironment(strings.Split(everyVariable+"\n"+more, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range given {
			for name := range strings.SplitSeq(g.From, " and ") {
				if !slices.Contains(of[name], g.Path) {
					of[name] = append(of[name], g.Path)
				}
			}
		}
	}
	delete(of, "stint envoy")
	return of
}

// TestEnvironmentIsDocumented holds the table of docs/envoy-reference.md and what is read equal.
func TestEnvironmentIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/envoy-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, name := range []string{"environment.go", "environment_stats.go", "environment_redis.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(text)
	}
	names := regexp.MustCompile(`"((?:[A-Z]+_)*[A-Z]+)"`)
	notVariables := []string{"TTL", "SINGLE", "CLUSTER", "SENTINEL", "FILE", "GRPC_XDS_SOTW", "PATTERN", "NAME", "TAGS", "URL", "TYPE", "SOCKET_TYPE", "AUTH", "TLS", "SENTINEL_AUTH", "TIMEOUT"}
	seen := map[string]bool{}
	for _, m := range names.FindAllStringSubmatch(sources.String(), -1) {
		name := m[1]
		if slices.Contains(notVariables, name) || seen[name] {
			continue
		}
		seen[name] = true
		documented := strings.Contains(string(page), "`"+name+"`") || strings.HasPrefix(name, "MEMCACHE_") || strings.HasPrefix(name, "REDIS_PERSECOND_")
		if !documented {
			t.Errorf("docs/envoy-reference.md does not have %s", name)
		}
	}
	if len(seen) < 80 {
		t.Error(fmt.Sprint("only ", len(seen), " variables were found in the sources"))
	}
}
