package envoy

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/server/config"
)

// FromEnvironment reads the environment variables of envoyproxy/ratelimit, each a text NAME=VALUE as in
// os.Environ, and returns their settings. If a variable is not set and Stint's default differs,
// envoyproxy/ratelimit's default is used. Unknown variables are ignored.
//
// unused are the variables that are set and have no effect, sorted. The error names each wrong value, and
// contains no password; errors of config.Source name the variable, too. An empty number, duration or boolean
// counts as not set.
func FromEnvironment(variables []string) (given []config.Given, unused []string, err error) {
	e := &environment{values: map[string]string{}}
	for _, v := range variables {
		if name, value, ok := strings.Cut(v, "="); ok {
			e.values[name] = value
		}
	}
	e.write(alike)
	e.listeners()
	e.source()
	e.stats()
	e.counting()
	e.redis()
	e.tracing()
	return e.given, e.unused(), errors.Join(e.wrong...)
}

// environment reads variables, and collects their settings and errors.
type environment struct {
	values map[string]string
	given  []config.Given
	ignore []string // of those that are set; more than unusedNames
	wrong  []error
}

// unset is the source of a setting that no variable gives.
const unset = "stint envoy"

// give sets a setting to a text that the variables of names have given.
func (e *environment) give(path, text string, names ...string) {
	from := strings.Join(slices.DeleteFunc(names, func(name string) bool { _, ok := e.values[name]; return !ok }), " and ")
	e.given = append(e.given, config.Given{Path: path, Text: text, From: cmp.Or(from, unset), Literal: true})
}

// variable gives one setting, with its default if the variable is not set.
type variable struct {
	name, path string
	// text is the variable's value as in a file; false: it is not set, or wrong.
	text func(e *environment, name string) (string, bool)
}

// alike are the variables that each give one setting, independent of the others.
var alike = []variable{
	{"GRPC_MAX_CONNECTION_AGE", "envoy.max_connection_age", durationFrom(0)},
	{"GRPC_MAX_CONNECTION_AGE_GRACE", "envoy.max_connection_age_grace", durationFrom(0)},
	{"MERGE_DOMAIN_CONFIG", "envoy.merge_domains", (*environment).booleanText},
	{"FORCE_START_WITHOUT_INITIAL_CONFIG", "envoy.start_without_descriptors", (*environment).booleanText},
	{"EXTRA_TAGS", "envoy.stats.tags", pairsBy(":")},
	{"STATS_FLUSH_INTERVAL", "envoy.stats.flush_interval", durationFrom(time.Millisecond)},
	{"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "envoy.stats.prometheus_milliseconds", (*environment).booleanText},
	{"PROMETHEUS_MAPPER_YAML", "envoy.stats.prometheus_mapper", (*environment).asItIs},
	{"NEAR_LIMIT_RATIO", "envoy.stats.near_limit_ratio", (*environment).notEmpty},
	{"STINT_ENVOY_EACH", "envoy.each", (*environment).booleanText},
	{"STINT_ENVOY_QUOTA_SHARES", "envoy.quota_shares", oneOf("demand", "equal")},
	{"STINT_ENVOY_QUOTA_TTL", "envoy.quota_ttl", durationFrom(time.Second)},
	{"SHADOW_MODE", "envoy.shadow", (*environment).booleanText},
	{"QUOTA_MODE", "envoy.quota_mode", (*environment).booleanText},
	{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "envoy.health.needs_descriptors", (*environment).booleanText},
	{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "envoy.health.needs_store", (*environment).booleanText},
	{"RESPONSE_DYNAMIC_METADATA", "envoy.dynamic_metadata", (*environment).booleanText},
	{"LIMIT_RESPONSE_HEADERS_ENABLED", "envoy.response_headers", (*environment).booleanText},
	{"LIMIT_LIMIT_HEADER", "envoy.header_names.limit", (*environment).asItIs},
	{"LIMIT_REMAINING_HEADER", "envoy.header_names.remaining", (*environment).asItIs},
	{"LIMIT_RESET_HEADER", "envoy.header_names.reset", (*environment).asItIs},
}

// ofXDS are the variables of a management server.
var ofXDS = []variable{
	{"CONFIG_GRPC_XDS_NODE_ID", "envoy.xds.node_id", (*environment).asItIs},
	{"CONFIG_GRPC_XDS_NODE_METADATA", "envoy.xds.node_metadata", pairsBy("=")},
	{"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "envoy.xds.headers", pairsBy(":")},
	{"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "envoy.xds.retry", durationFrom(time.Millisecond)},
	{"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "envoy.xds.backoff", durationFrom(time.Millisecond)},
	{"XDS_CLIENT_BACKOFF_MAX_INTERVAL", "envoy.xds.max_backoff", durationFrom(time.Millisecond)},
	{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "envoy.xds.backoff_jitter", (*environment).notEmpty},
}

// tlsOfXDS are the variables of its certificates.
var tlsOfXDS = []variable{
	{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "envoy.xds.tls.cert", (*environment).asItIs},
	{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "envoy.xds.tls.key", (*environment).asItIs},
	{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "envoy.xds.tls.ca", (*environment).asItIs},
	{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", "envoy.xds.tls.server_name", (*environment).asItIs},
}

// write gives the settings of those of all variables that are set.
func (e *environment) write(all []variable) {
	for _, v := range all {
		if text, ok := v.text(e, v.name); ok {
			e.give(v.path, text, v.name)
		}
	}
}

// unusedNames are variables of envoyproxy/ratelimit that have no effect in Stint.
var unusedNames = []string{
	"REDIS_POOL_SIZE", "REDIS_PIPELINE_WINDOW", "REDIS_PIPELINE_LIMIT", "REDIS_CLUSTER_PIPELINE_PARALLELISM", "REDIS_POOL_ON_EMPTY_BEHAVIOR",
	"REDIS_STARTUP_INITIAL_INTERVAL", "REDIS_STARTUP_MAX_INTERVAL", "REDIS_STARTUP_MAX_ELAPSED_TIME",
	"REDIS_PERSECOND_POOL_SIZE", "REDIS_PERSECOND_PIPELINE_WINDOW", "REDIS_PERSECOND_PIPELINE_LIMIT",
	"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR",
	"MEMCACHE_HOST_PORT", "MEMCACHE_MAX_IDLE_CONNS", "MEMCACHE_SRV", "MEMCACHE_SRV_REFRESH", "MEMCACHE_TLS", "MEMCACHE_TLS_CLIENT_CERT",
	"MEMCACHE_TLS_CLIENT_KEY", "MEMCACHE_TLS_CACERT", "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION",
	"TRACING_SERVICE_NAMESPACE", "TRACING_SERVICE_INSTANCE_ID",
	"GRPC_SERVER_TLS_CA_CERT", // Envoy Gateway sets it, and envoyproxy/ratelimit does not read it either
}

func (e *environment) listeners() {
	e.give("envoy.http_listen", e.address("HOST", "0.0.0.0", "PORT", 8080), "HOST", "PORT")
	e.give("envoy.debug_listen", e.address("DEBUG_HOST", "0.0.0.0", "DEBUG_PORT", 6070), "DEBUG_HOST", "DEBUG_PORT")
	if tcp := e.address("GRPC_HOST", "0.0.0.0", "GRPC_PORT", 8081); e.set("GRPC_UDS") {
		e.give("envoy.listen", "unix:"+e.values["GRPC_UDS"], "GRPC_UDS")
	} else {
		e.give("envoy.listen", tcp, "GRPC_HOST", "GRPC_PORT")
	}
	e.listenerTLS()
	// The levels that end the program do not exist here: what would end theirs is an error.
	level := e.choice("LOG_LEVEL", "warn", "warning", "error", "info", "debug", "trace", "fatal", "panic")
	like := map[string]string{"warning": "warn", "trace": "debug", "fatal": "error", "panic": "error"}
	e.give("log.level", cmp.Or(like[level], level), "LOG_LEVEL")
	e.give("log.format", e.choice("LOG_FORMAT", "text", "json"), "LOG_FORMAT")
}

func (e *environment) listenerTLS() {
	files := []variable{
		{"GRPC_SERVER_TLS_CERT", "envoy.tls.cert", (*environment).notEmpty},
		{"GRPC_SERVER_TLS_KEY", "envoy.tls.key", (*environment).notEmpty},
		{"GRPC_CLIENT_TLS_CACERT", "envoy.tls.client_ca", (*environment).notEmpty},
		{"GRPC_CLIENT_TLS_SAN", "envoy.client_name", (*environment).notEmpty},
	}
	switch {
	case !e.boolean("GRPC_SERVER_USE_TLS", false):
		for _, v := range files { // clear text, although the operator may expect TLS
			e.ignored(v.name)
		}
	case !e.set("GRPC_SERVER_TLS_CERT") || !e.set("GRPC_SERVER_TLS_KEY"):
		e.report("GRPC_SERVER_USE_TLS", "needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY")
	case e.set("GRPC_CLIENT_TLS_SAN") && !e.set("GRPC_CLIENT_TLS_CACERT"):
		e.report("GRPC_CLIENT_TLS_SAN", "needs GRPC_CLIENT_TLS_CACERT: otherwise no client shows a certificate")
	default:
		e.write(files)
	}
}

func (e *environment) source() {
	root := e.text("RUNTIME_ROOT", "/srv/runtime_data/current")
	ignoreDotFiles, watchRoot := e.boolean("RUNTIME_IGNOREDOTFILES", false), e.boolean("RUNTIME_WATCH_ROOT", true)
	if e.choice("CONFIG_TYPE", "FILE", "GRPC_XDS_SOTW") != "FILE" {
		e.xds()
		return
	}
	if root == "" {
		e.report("RUNTIME_ROOT", "is empty")
	}
	e.give("envoy.directory", filepath.Join(root, e.values["RUNTIME_SUBDIRECTORY"], e.text("RUNTIME_APPDIRECTORY", "config")), "RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY")
	e.give("envoy.directory_may_be_empty", "true")
	e.give("envoy.dot_files", strconv.FormatBool(!ignoreDotFiles), "RUNTIME_IGNOREDOTFILES")
	if watchRoot {
		e.give("envoy.directory_link", root, "RUNTIME_ROOT", "RUNTIME_WATCH_ROOT")
	}
}

func (e *environment) xds() {
	e.give("envoy.xds.server", e.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"), "CONFIG_GRPC_XDS_SERVER_URL")
	e.write(ofXDS)
	if !e.boolean("XDS_CLIENT_BACKOFF_JITTER", true) {
		e.give("envoy.xds.backoff_jitter", "0", "XDS_CLIENT_BACKOFF_JITTER")
	}
	if n := e.number("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", 0, 0, 1<<30); n > 0 {
		e.give("envoy.xds.max_message", strconv.FormatInt(n, 10), "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES")
	}
	if e.set("CONFIG_GRPC_XDS_CLIENT_TLS_CERT") != e.set("CONFIG_GRPC_XDS_CLIENT_TLS_KEY") {
		e.report("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "and CONFIG_GRPC_XDS_CLIENT_TLS_KEY must be given together")
	}
	if e.boolean("CONFIG_GRPC_XDS_SERVER_USE_TLS", false) {
		e.give("envoy.xds.tls", "{}", "CONFIG_GRPC_XDS_SERVER_USE_TLS")
		e.write(tlsOfXDS)
	}
}

func (e *environment) counting() {
	each, prefix := e.boolean("STINT_ENVOY_EACH", false), e.values["CACHE_KEY_PREFIX"]
	jitter := time.Duration(e.number("EXPIRATION_JITTER_MAX_SECONDS", 300, 0, 1<<31-1)) * time.Second
	if e.boolean("STINT_ENVOY_KEYS", false) {
		e.give("envoy.shared_counters.key_prefix", prefix, "STINT_ENVOY_KEYS", "CACHE_KEY_PREFIX")
		e.give("envoy.shared_counters.expiry_jitter", limittext.Duration(jitter), "STINT_ENVOY_KEYS", "EXPIRATION_JITTER_MAX_SECONDS")
	} else {
		e.ignored("EXPIRATION_JITTER_MAX_SECONDS")
		if prefix != "" {
			e.give("namespace", namespaceOf(prefix), "CACHE_KEY_PREFIX")
		}
	}
	// A call that takes all or nothing charges no descriptor because of another one anyway.
	if e.boolean("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", false) && each {
		e.report("STINT_ENVOY_EACH", "is the opposite of STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: set one of them")
	}
	if v := e.values["BACKEND_TYPE"]; v != "" && v != "redis" {
		e.report("BACKEND_TYPE", "%.60q: Stint counts in Redis, or in memory if REDIS_URL is not set", v)
	}
}

func (e *environment) tracing() {
	protocol, name := e.choice("TRACING_EXPORTER_PROTOCOL", config.HTTP, config.GRPC), "TRACING_ENABLED"
	sample, enabled := cmp.Or(e.values["TRACING_SAMPLING_RATE"], "1"), e.boolean(name, false)
	if !enabled {
		return
	}
	e.give("traces.protocol", protocol, name, "TRACING_EXPORTER_PROTOCOL")
	e.give("traces.service", e.text("TRACING_SERVICE_NAME", "RateLimit"), name, "TRACING_SERVICE_NAME")
	e.give("traces.sample", sample, "TRACING_SAMPLING_RATE")
}
