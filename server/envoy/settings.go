package envoy

import "time"

// Settings are those of the environment variables of envoyproxy/ratelimit, in its defaults where a
// variable is not set. FromEnvironment makes them.
type Settings struct {
	// The addresses, as host:port. GRPCSocket, the path of a unix socket, goes before GRPCListen.
	// Empty: no listener.
	HTTPListen, DebugListen, GRPCListen, GRPCSocket string
	// MaxConnectionAge and its grace end connections of gRPC, so that callers spread over
	// instances.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	// TLS of the gRPC listener; see GRPC_SERVER_USE_TLS.
	TLS TLS
	// LogLevel and LogFormat are those of a server.LogWriter: debug, info, warn or error, and text or json.
	LogLevel, LogFormat string

	Config  ConfigSource    // where the rules come from
	Stats   Stats           // where statistics go
	Headers ResponseHeaders // which headers responses have
	Redis   Redis           // where counts are kept
	Tracing Tracing         // where spans go
	Quotas  Quotas          // of the rate limit quota service

	// NearLimitRatio is the part of a limit above which a call counts as near the limit.
	NearLimitRatio float64
	// Shadow turns every refusal into OK. Quota makes all rules those of quota_mode.
	Shadow, Quota bool
	// DynamicMetadata adds a description of the call to responses.
	DynamicMetadata bool
	// Each decides each descriptor of a call by itself, as envoyproxy/ratelimit does. Otherwise
	// a call takes all or nothing.
	Each bool
	// HealthNeedsConfig makes the service unhealthy until a configuration with a domain was loaded.
	// HealthNeedsStore makes it unhealthy while the store does not decide.
	HealthNeedsConfig, HealthNeedsStore bool
	// SharedCounters counts in the keys of envoyproxy/ratelimit (STINT_ENVOY_KEYS).
	SharedCounters bool
	// KeyPrefix is before each of those keys, and JitterMax is how much longer than its window a
	// key lives at most.
	KeyPrefix string
	JitterMax time.Duration
}

// TLS is a listener's. Without Use, the others mean nothing.
type TLS struct {
	Use                        bool
	Certificate, Key           string // files
	ClientAuthority, ClientSAN string // a file, and a name that clients' certificates must have; empty: any
}

// ConfigSource is where the descriptors' files come from.
type ConfigSource struct {
	// XDS is where a management server is; nil: files.
	XDS *XDS
	// Files are read from Root/Subdirectory/Directory, or from Root/Directory.
	Root, Subdirectory, Directory string
	// IgnoreDotFiles leaves out files and folders whose names begin with a dot. With
	// WatchRoot, they are read again when Root, a symbolic link, points elsewhere, else when one of
	// them changes.
	IgnoreDotFiles, WatchRoot bool
	// MergeDomains lets several files have one domain.
	MergeDomains bool
	// StartWithout lets the service start before it has a configuration.
	StartWithout bool
}

// XDS is a management server of the aggregated discovery service.
type XDS struct {
	NodeID       string            // by which the server knows this instance
	NodeMetadata map[string]string // sent besides, as strings
	Server       string            // host:port
	// RetryInterval is how long to wait after a connection that failed, give or take a half.
	RetryInterval time.Duration
	// Headers are sent with each stream; their names are in lower case.
	Headers map[string]string
	UseTLS  bool // else, plain text
	// ClientCertificate, ClientKey and ServerAuthority are files. Without ServerAuthority, the
	// system's authorities count. ServerSAN is the name that the server's certificate must have;
	// empty: that in Server.
	ClientCertificate, ClientKey, ServerAuthority, ServerSAN string
	// BackoffInitial is how long to wait after a stream that ended. Each further failure doubles it,
	// up to BackoffMax. With BackoffJitter, up to BackoffFactor of the wait is added or taken off.
	BackoffInitial, BackoffMax time.Duration
	BackoffFactor              float64
	BackoffJitter              bool
	MaxMessage                 int // bytes; 0: 4 MiB
}

// Stats says where statistics go.
type Stats struct {
	// Statsd is the host:port of a statsd; empty: there is none. It is sent statsd over TCP, or
	// with DogStatsd its dialect with tags over UDP.
	Statsd        string
	DogStatsd     bool
	Mogrifiers    []Mogrifier // if DogStatsD; the first that matches counts
	Prometheus    string      // the address of its listener; empty: none
	Path          string      // of the metrics on that listener, such as /metrics
	MapperFile    string      // empty: the default mapping
	Milliseconds  bool        // the time of a response is in milliseconds for Prometheus, else in seconds
	Tags          map[string]string
	Datadog       map[string]string // more tags, if DogStatsD
	FlushInterval time.Duration     // how often statsd is sent what has changed
	// LocalCache counts refusals without Redis apart, and keeps the statistics of the local cache.
	LocalCache bool
}

// Mogrifier turns the names of statistics that match the regular expression Pattern into Name with
// Tags, in which $1 is what the first group matched.
type Mogrifier struct {
	Pattern, Name string
	Tags          map[string]string
}

// ResponseHeaders are the names of three headers of responses, which are sent only if Enabled: the
// Limit, the units Remaining, and the seconds until the Reset.
type ResponseHeaders struct {
	Enabled                 bool
	Limit, Remaining, Reset string
}

// Redis is how to reach the store.
type Redis struct {
	// Store is the address as redislimit.Connect takes it, or "memory".
	Store string
	// PerSecond is the address of another store for limits of less than a minute; empty: there is none.
	PerSecond string
	// Chosen says that a variable chose Store. Otherwise it is memory because none did.
	Chosen bool
	// Namespace keeps the keys of this service apart from others in Store; empty: the default.
	Namespace string
	// DecisionTimeout is how long a decision waits for Store; 0: it was not said.
	DecisionTimeout time.Duration
}

// Quotas are the settings of the rate limit quota service; see package quota.
type Quotas struct {
	// Shares says how streams share a limit: demand or equal.
	Shares string
	// TTL is how long an assignment lasts; 0: the default.
	TTL time.Duration
}

// Tracing is where spans go; OTEL_EXPORTER_OTLP_ENDPOINT and its like have the address.
type Tracing struct {
	Enabled bool // else, no span is made
	// Service is the service's name in spans, and Sample the part of the traces that is recorded.
	Service string
	Sample  float64
	// Protocol is config.HTTP or config.GRPC.
	Protocol string
}
