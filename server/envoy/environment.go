package envoy

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FromEnvironment reads the environment variables of envoyproxy/ratelimit, each a text NAME=VALUE
// as in os.Environ. Variables that it does not know do not count.
//
// checkStore returns an error if an address of a Redis is wrong, as redislimit.CheckAddress does.
//
// unused are the variables that are set and have no effect, sorted. The error names
// each value that is wrong, and contains no password. A number, duration or boolean
// that is empty is not set.
func FromEnvironment(variables []string, checkStore func(address string) error) (s *Settings, unused []string, err error) {
	e := &environment{values: map[string]string{}}
	for _, v := range variables {
		if name, value, ok := strings.Cut(v, "="); ok {
			e.values[name] = value
		}
	}
	s = new(Settings)
	e.listeners(s)
	e.source(&s.Config)
	e.stats(&s.Stats)
	e.counting(s)
	e.answers(s)
	s.Redis = e.redis(s)
	if s.Redis.Store == "memory" {
		if s.SharedCounters {
			e.report("STINT_ENVOY_KEYS", "needs a Redis that is shared with envoyproxy/ratelimit: set REDIS_URL")
		}
	} else {
		if err := checkStore(s.Redis.Store); err != nil {
			e.report("REDIS_URL", "%v", err)
		}
		if s.Redis.PerSecond != "" && s.Redis.PerSecond != "memory" {
			if err := checkStore(s.Redis.PerSecond); err != nil {
				e.report("REDIS_PERSECOND_URL", "%v", err)
			}
		}
	}
	e.tracing(&s.Tracing)
	return s, e.unused(), errors.Join(e.wrong...)
}

// environment reads variables, and collects what is wrong with them.
type environment struct {
	values map[string]string
	ignore []string // of those that are set; more than unusedNames
	wrong  []error
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

func (e *environment) unused() []string {
	e.ignored(unusedNames...)
	slices.Sort(e.ignore)
	return slices.Compact(e.ignore)
}

// ignored notes variables that have no effect, of those that are set.
func (e *environment) ignored(names ...string) {
	for _, name := range names {
		if e.values[name] != "" {
			e.ignore = append(e.ignore, name)
		}
	}
}

// set reports whether a variable is set to something.
func (e *environment) set(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return e.values[name] != "" })
}

func (e *environment) report(name, format string, args ...any) {
	e.wrong = append(e.wrong, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...)))
}

// text returns a value as it is, also an empty one; otherwise is for a variable that is not set.
func (e *environment) text(name, otherwise string) string {
	if v, ok := e.values[name]; ok {
		return v
	}
	return otherwise
}

// choice returns a value that is one of several, in any case.
func (e *environment) choice(name string, values ...string) string {
	v := e.values[name]
	for _, want := range values {
		if v == "" || strings.EqualFold(v, want) {
			return want
		}
	}
	e.report(name, "%.60q: want one of %s", v, strings.Join(values, ", "))
	return values[0]
}

func (e *environment) boolean(name string, otherwise bool) bool {
	v := e.values[name]
	if v == "" {
		return otherwise
	}
	is, err := strconv.ParseBool(v)
	if err != nil {
		e.report(name, "%.60q: want true or false", v)
	}
	return is
}

func (e *environment) number(name string, otherwise, least, most int64) int64 {
	v := e.values[name]
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil || n < least || n > most {
		e.report(name, "%.60q: want a whole number from %d to %d", v, least, most)
		return otherwise
	}
	return n
}

func (e *environment) ratio(name string, otherwise float64) float64 {
	v := e.values[name]
	if v == "" {
		return otherwise
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f >= 0 && f <= 1) {
		e.report(name, "%.60q: want a number from 0 to 1", v)
		return otherwise
	}
	return f
}

func (e *environment) duration(name string, otherwise, least time.Duration) time.Duration {
	v := e.values[name]
	if v == "" {
		return otherwise
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < least {
		e.report(name, "%.60q: want a duration from %v, such as 10s", v, least)
		return otherwise
	}
	return d
}

// pairs reads a list such as "key:value,key:value". separator is that of key and value.
func (e *environment) pairs(name, separator string) map[string]string {
	v := e.values[name]
	if strings.TrimSpace(v) == "" {
		return nil
	}
	all := map[string]string{}
	for pair := range strings.SplitSeq(v, ",") {
		key, value, ok := strings.Cut(pair, separator)
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || key == "" {
			e.report(name, "want a list such as key1%svalue1,key2%svalue2", separator, separator) // a value may be secret
			return nil
		}
		all[key] = value
	}
	return all
}

// address joins the host and the port of a listener or of a server.
func (e *environment) address(host, otherwiseHost, port string, otherwisePort int64) string {
	return net.JoinHostPort(e.text(host, otherwiseHost), strconv.FormatInt(e.number(port, otherwisePort, 0, 65535), 10))
}

func (e *environment) listeners(s *Settings) {
	s.HTTPListen = e.address("HOST", "0.0.0.0", "PORT", 8080)
	s.DebugListen = e.address("DEBUG_HOST", "0.0.0.0", "DEBUG_PORT", 6070)
	s.GRPCListen = e.address("GRPC_HOST", "0.0.0.0", "GRPC_PORT", 8081)
	s.GRPCSocket = e.text("GRPC_UDS", "")
	s.MaxConnectionAge = e.duration("GRPC_MAX_CONNECTION_AGE", 24*time.Hour, 0)
	s.MaxConnectionAgeGrace = e.duration("GRPC_MAX_CONNECTION_AGE_GRACE", time.Hour, 0)
	s.TLS = TLS{
		Use:         e.boolean("GRPC_SERVER_USE_TLS", false),
		Certificate: e.text("GRPC_SERVER_TLS_CERT", ""), Key: e.text("GRPC_SERVER_TLS_KEY", ""),
		ClientAuthority: e.text("GRPC_CLIENT_TLS_CACERT", ""), ClientSAN: e.text("GRPC_CLIENT_TLS_SAN", ""),
	}
	switch t := &s.TLS; {
	case !t.Use:
		for _, name := range []string{"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY", "GRPC_CLIENT_TLS_CACERT", "GRPC_CLIENT_TLS_SAN"} {
			if e.set(name) { // clear text, where the operator may believe that it is not
				e.ignore = append(e.ignore, name)
			}
		}
	case t.Certificate == "" || t.Key == "":
		e.report("GRPC_SERVER_USE_TLS", "needs GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY")
	case t.ClientSAN != "" && t.ClientAuthority == "":
		e.report("GRPC_CLIENT_TLS_SAN", "needs GRPC_CLIENT_TLS_CACERT: otherwise no client shows a certificate")
	}
	// Those that end the program have no level here; what would end theirs is an error.
	level := e.choice("LOG_LEVEL", "warn", "warning", "error", "info", "debug", "trace", "fatal", "panic")
	s.LogLevel = map[string]string{"warning": "warn", "trace": "debug", "fatal": "error", "panic": "error"}[level]
	if s.LogLevel == "" {
		s.LogLevel = level
	}
	s.LogFormat = e.choice("LOG_FORMAT", "text", "json")
}

func (e *environment) source(c *ConfigSource) {
	*c = ConfigSource{
		Root:           e.text("RUNTIME_ROOT", "/srv/runtime_data/current"),
		Subdirectory:   e.text("RUNTIME_SUBDIRECTORY", ""),
		Directory:      e.text("RUNTIME_APPDIRECTORY", "config"),
		IgnoreDotFiles: e.boolean("RUNTIME_IGNOREDOTFILES", false),
		WatchRoot:      e.boolean("RUNTIME_WATCH_ROOT", true),
		MergeDomains:   e.boolean("MERGE_DOMAIN_CONFIG", false),
		StartWithout:   e.boolean("FORCE_START_WITHOUT_INITIAL_CONFIG", false),
	}
	if e.choice("CONFIG_TYPE", "FILE", "GRPC_XDS_SOTW") == "FILE" {
		if c.Root == "" {
			e.report("RUNTIME_ROOT", "is empty")
		}
		return
	}
	x := &XDS{
		NodeID:            e.text("CONFIG_GRPC_XDS_NODE_ID", "default"),
		NodeMetadata:      e.pairs("CONFIG_GRPC_XDS_NODE_METADATA", "="),
		Server:            e.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"),
		RetryInterval:     e.duration("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", 3*time.Second, time.Millisecond),
		UseTLS:            e.boolean("CONFIG_GRPC_XDS_SERVER_USE_TLS", false),
		ClientCertificate: e.text("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", ""),
		ClientKey:         e.text("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", ""),
		ServerAuthority:   e.text("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", ""),
		ServerSAN:         e.text("CONFIG_GRPC_XDS_SERVER_TLS_SAN", ""),
		BackoffInitial:    e.duration("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", 10*time.Second, time.Millisecond),
		BackoffMax:        e.duration("XDS_CLIENT_BACKOFF_MAX_INTERVAL", time.Minute, time.Millisecond),
		BackoffFactor:     e.ratio("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", 0.5),
		BackoffJitter:     e.boolean("XDS_CLIENT_BACKOFF_JITTER", true),
		MaxMessage:        int(e.number("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", 0, 0, 1<<30)),
	}
	c.XDS = x
	for name, value := range e.pairs("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", ":") {
		if x.Headers == nil {
			x.Headers = map[string]string{}
		}
		name = strings.ToLower(name)
		if !isHeader(name) || strings.HasPrefix(name, "grpc-") {
			e.report("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "%.60q is not the name of a header for gRPC", name)
		}
		x.Headers[name] = value
	}
	if x.Server == "" {
		e.report("CONFIG_GRPC_XDS_SERVER_URL", "is empty: want host:port")
	}
	if (x.ClientCertificate == "") != (x.ClientKey == "") {
		e.report("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "and CONFIG_GRPC_XDS_CLIENT_TLS_KEY must be given together")
	}
}

// datadogVariables are those of Datadog's client, and the tags that it makes of them.
var datadogVariables = []struct{ name, tag string }{
	{"DD_ENTITY_ID", "dd.internal.entity_id"}, {"DD_ENV", "env"}, {"DD_SERVICE", "service"}, {"DD_VERSION", "version"},
}

func (e *environment) stats(s *Stats) {
	prometheus, dog := e.boolean("USE_PROMETHEUS", false), e.boolean("USE_DOG_STATSD", false)
	statsd := e.boolean("USE_STATSD", !prometheus && !dog)
	s.Tags = e.pairs("EXTRA_TAGS", ":")
	s.FlushInterval = e.duration("STATS_FLUSH_INTERVAL", 10*time.Second, time.Millisecond)
	address := e.address("STATSD_HOST", "localhost", "STATSD_PORT", 8125)
	listen, path := e.text("PROMETHEUS_ADDR", ":9090"), e.text("PROMETHEUS_PATH", "/metrics")
	// Refusals are remembered without it: see remembered_denials. But only with it are they counted.
	s.LocalCache = e.number("LOCAL_CACHE_SIZE_IN_BYTES", 0, 0, math.MaxInt64) > 0
	s.Milliseconds = e.boolean("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", false)
	s.MapperFile = e.text("PROMETHEUS_MAPPER_YAML", "")
	mogrifiers := e.mogrifiers()
	if e.boolean("DISABLE_STATS", false) {
		return
	}
	if statsd && dog {
		e.report("USE_STATSD", "and USE_DOG_STATSD are both true, but share one address: set one of them")
	}
	if statsd || dog {
		s.Statsd, s.DogStatsd = address, dog
	}
	if dog {
		s.Mogrifiers = mogrifiers
		for _, v := range datadogVariables {
			if e.set(v.name) {
				if s.Datadog == nil {
					s.Datadog = map[string]string{}
				}
				s.Datadog[v.tag] = e.values[v.name]
			}
		}
	}
	if !prometheus {
		return
	}
	s.Prometheus, s.Path = listen, path
	if _, _, err := net.SplitHostPort(listen); err != nil {
		e.report("PROMETHEUS_ADDR", "%.60q: want an address such as :9090", listen)
	}
	if !strings.HasPrefix(path, "/") {
		e.report("PROMETHEUS_PATH", "%.60q: want a path such as /metrics", path)
	}
}

// mogrifiers reads those that USE_DOG_STATSD_MOGRIFIERS names, in its order.
func (e *environment) mogrifiers() []Mogrifier {
	var all []Mogrifier
	for name := range strings.SplitSeq(e.values["USE_DOG_STATSD_MOGRIFIERS"], ",") {
		if name = strings.ToUpper(strings.TrimSpace(name)); name == "" {
			continue
		}
		// The documentation of envoyproxy/ratelimit has both spellings.
		prefix := "DOG_STATSD_MOGRIFIER_" + name + "_"
		if plural := "DOG_STATSD_MOGRIFIERS_" + name + "_"; !e.set(prefix+"PATTERN") && e.set(plural+"PATTERN") {
			prefix = plural
		}
		m := Mogrifier{Pattern: e.values[prefix+"PATTERN"], Name: e.values[prefix+"NAME"], Tags: e.pairs(prefix+"TAGS", ":")}
		if m.Pattern == "" {
			e.report(prefix+"PATTERN", "is missing, and USE_DOG_STATSD_MOGRIFIERS names it")
		}
		if _, err := regexp.Compile(m.Pattern); err != nil {
			e.report(prefix+"PATTERN", "%v", err)
		}
		if m.Name == "" {
			e.report(prefix+"NAME", "is missing, and USE_DOG_STATSD_MOGRIFIERS names it")
		}
		for _, tag := range slices.Sorted(maps.Keys(m.Tags)) {
			if m.Tags[tag] == "" {
				e.report(prefix+"TAGS", "%.60q has no value", tag)
			}
		}
		all = append(all, m)
	}
	return all
}

func (e *environment) counting(s *Settings) {
	s.NearLimitRatio = e.ratio("NEAR_LIMIT_RATIO", 0.8)
	s.SharedCounters = e.boolean("STINT_ENVOY_KEYS", false)
	s.KeyPrefix = e.text("CACHE_KEY_PREFIX", "")
	s.JitterMax = time.Duration(e.number("EXPIRATION_JITTER_MAX_SECONDS", 300, 0, 1<<31-1)) * time.Second
	s.Each = e.boolean("STINT_ENVOY_EACH", false)
	s.Quotas = Quotas{Shares: e.choice("STINT_ENVOY_QUOTA_SHARES", "demand", "equal"), TTL: e.duration("STINT_ENVOY_QUOTA_TTL", 0, time.Second)}
	s.Shadow, s.Quota = e.boolean("SHADOW_MODE", false), e.boolean("QUOTA_MODE", false)
	s.HealthNeedsConfig = e.boolean("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", false)
	s.HealthNeedsStore = e.boolean("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", false)
	if !s.SharedCounters {
		e.ignored("EXPIRATION_JITTER_MAX_SECONDS")
	}
	// A call that takes all or nothing charges no descriptor because of another one anyway.
	if e.boolean("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", false) && s.Each {
		e.report("STINT_ENVOY_EACH", "is the opposite of STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: set one of them")
	}
	if v := e.values["BACKEND_TYPE"]; v != "" && v != "redis" {
		e.report("BACKEND_TYPE", "%.60q: Stint counts in Redis, or in memory if REDIS_URL is not set", v)
	}
}

func (e *environment) answers(s *Settings) {
	s.DynamicMetadata = e.boolean("RESPONSE_DYNAMIC_METADATA", false)
	s.Headers.Enabled = e.boolean("LIMIT_RESPONSE_HEADERS_ENABLED", false)
	for _, h := range []struct {
		name, otherwise string
		to              *string
	}{
		{"LIMIT_LIMIT_HEADER", "RateLimit-Limit", &s.Headers.Limit},
		{"LIMIT_REMAINING_HEADER", "RateLimit-Remaining", &s.Headers.Remaining},
		{"LIMIT_RESET_HEADER", "RateLimit-Reset", &s.Headers.Reset},
	} {
		if *h.to = e.text(h.name, h.otherwise); !isHeader(*h.to) {
			e.report(h.name, "%.60q is not the name of a header", *h.to)
		}
	}
}

func (e *environment) tracing(t *Tracing) {
	t.Enabled = e.boolean("TRACING_ENABLED", false)
	t.Service = e.text("TRACING_SERVICE_NAME", "RateLimit")
	t.Sample = e.ratio("TRACING_SAMPLING_RATE", 1)
	t.Protocol = e.choice("TRACING_EXPORTER_PROTOCOL", "http", "grpc")
}

func isHeader(name string) bool {
	const letters = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return name != "" && strings.Trim(name, letters) == ""
}
