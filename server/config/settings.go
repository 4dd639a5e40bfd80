// Package config reads and checks the section "server" of a configuration file. Read returns its Settings,
// completed by defaults, and the rules of the file. Settings do not change while a program runs.
//
// Settings contain the names of files such as certificates, tokens and secrets, never a secret. Package
// server reads the files.
package config

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// Settings is the section "server" of a configuration file; table.go has the names of the
// settings there. Package rules reads the rest of the file. Begin with Default: the zero
// Settings is not valid.
type Settings struct {
	// Listen is the address of the gateway, which listens only if there are Routes.
	// CheckListen is the address of the check API, or Off. ProbeListen is an address for
	// probes alone, or Off; the check API answers probes, too.
	Listen, CheckListen, ProbeListen string
	// Store is "memory", or the address of a Redis as for redislimit.Open, including how to
	// authenticate and encrypt, and how long to wait.
	Store string
	// Namespace separates this service's data in Store from that of other services. Services in one namespace
	// share the counts of rules with equal names, bans, switches and pushed rules. 1 to 64 characters of A–Z
	// a–z 0–9 _ . : -. Empty: the namespace in the address of the store, else "stint".
	Namespace string
	// Memory is the number of bytes from which ByMemory bounds are computed. 0: the memory of this process's
	// cgroup, or else of the machine.
	Memory int64
	// MaxKeys bounds the counts of a store in memory, and the local counts while another store is down.
	// ByMemory: up to 1,000,000.
	MaxKeys int64
	// DecisionTimeout is how long a request waits for the store before the rules'
	// on_store_error decides.
	DecisionTimeout time.Duration
	// Breaker says when to stop asking the store; see fleet.Fallback.
	Breaker fleet.Breaker
	// Instances is how many instances share the limits while the store is down. 0: as many
	// as were last counted.
	Instances int64
	// PerSecondStore is the address of another Redis for limits of less than a minute, if Store is one;
	// see redislimit.Divided. Empty: there is none.
	PerSecondStore string
	// RememberedDenials is how many refusals this instance remembers, so that it can repeat
	// them without asking the store; see fleet.Denials. 0: none. ByMemory: up to 100,000.
	RememberedDenials int64
	// Offenders is how many keys, rules, paths and clients this instance counts: of each, the heaviest by
	// refusals, by use and by violations. 0: none.
	Offenders int64
	// RecentRequests is the most bytes of the last 5 minutes' requests that this instance keeps in memory, to
	// try other rules on them. 0: none.
	RecentRequests int64
	// UpstreamTimeout is how long an upstream may take until it begins to answer.
	UpstreamTimeout time.Duration
	// ResponseTimeout is how long a response may take, from passing on the request until the last byte. After
	// that, the response is broken off, or is a 504 if it has not begun. 0: any time.
	ResponseTimeout time.Duration
	// BodyTimeout bounds how long a client of the gateway may delay the body of a request,
	// or a response that it does not read: in one pause, or in all by falling behind 500
	// bytes a second. 0: no bound.
	BodyTimeout time.Duration
	// StopDelay is how long Run goes on serving after a stop, with /readyz failing, so that load balancers
	// can send requests elsewhere. 0: none.
	StopDelay time.Duration
	// StopTimeout is how long Run then waits for requests in flight before it cuts them
	// off. 0: it does not wait.
	StopTimeout time.Duration
	// Dialect selects the headers that tell clients about their limits.
	Dialect httplimit.Dialect
	// ClientHeader is the header in which trusted proxies write the client's address; see
	// httplimit.Clients.
	ClientHeader string
	// Routes are the routes of the gateway.
	Routes []Route
	// UpstreamProxy is the proxy for upstreams, JWT.KeysURL and URLs of Lists: "" for none,
	// "environment" for the one that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name, or the URL
	// of a proxy. Upstreams of h2c never use a proxy.
	UpstreamProxy string
	// Upgrades are the protocols to which a connection may switch, as in the header
	// Upgrade, in any case. The gateway removes other protocols from a request and serves
	// it in HTTP/1.1. None may carry HTTP requests, because rules would not see them. nil:
	// none.
	Upgrades []string
	// AllowAmbiguous are the permitted ambiguities in the path, query, method or headers of a request. Other
	// ambiguous requests are refused with 400 if a rule, a list or a route looks at that part: see
	// rules.ReadTarget, rules.ReadMethod and rules.AmbiguousError.
	AllowAmbiguous rules.Ambiguity
	// MaxDelayed and MaxDelay bound how many requests of rules that shape are delayed, and how
	// long; see httplimit.Middleware.
	MaxDelayed int64
	MaxDelay   time.Duration
	// Instance bounds what this instance accepts, regardless of rules and store.
	Instance Instance
	// MaxConnections is how many connections each listener keeps; it closes further ones. 0: no bound.
	// ByMemory: up to 50,000.
	MaxConnections int64
	// DegradedHeader adds the header Stint-Degraded to a response if the store did not
	// decide: it says who did.
	DegradedHeader bool
	// ViolationsHeader adds the header Stint-Violations to refusals: the number of violations that count.
	ViolationsHeader bool
	// CORS says which pages of other origins may read answers. nil: Stint does not handle CORS.
	CORS *CORS
	// HashKeys replaces keys, addresses of clients and names of users in log lines, pages and messages by
	// keyed hashes, the same at all instances. The store and memory have the keys themselves.
	HashKeys bool
	// Log says what is logged, and how.
	Log Log
	// Traces says where spans are sent. nil: none are made.
	Traces *Traces
	// StateDir is the absolute path of a directory of this instance alone. It keeps the last state of the
	// fleet's documents there, and changes that the store does not have yet, and starts from them if the
	// store is down. If Store is "memory", it keeps changes made at run time there. Empty: nothing is kept.
	StateDir string
	// ReadyWithoutControls makes /readyz answer 200 even before the fleet's documents were read once, from
	// the store or from StateDir.
	ReadyWithoutControls bool
	// RulesFrom says where this instance takes its rules from.
	RulesFrom RulesFrom
	// Secrets are the secrets for the function hmac in expressions.
	Secrets []Secret
	// Lists are the lists of networks for the function list in expressions.
	Lists []List
	// JWT says which tokens of clients are valid; expressions read their claims. nil:
	// tokens are not read.
	JWT *JWT
	// TLS is for the gateway, CheckTLS for the check API. nil: plain HTTP.
	TLS, CheckTLS *TLSFiles
	// Check says who may use the check API.
	Check CheckAPI
	// Admin is the settings of the admin API.
	Admin Admin
	// Envoy is Envoy's rate limit service. nil: there is none. Package server does not serve it;
	// see package envoy.
	Envoy *Envoy
	// Webhooks are where messages about the alerts of the rules are sent. Empty: alerts are
	// shown by the admin API only.
	Webhooks []Webhook

	origins origins // of the settings read
}

// Equal reports whether s and other have the same values, wherever they were given.
func (s *Settings) Equal(other *Settings) bool {
	a, b := *s, *other
	a.origins, b.origins = nil, nil
	return reflect.DeepEqual(&a, &b)
}

// RulesFrom is where an instance takes its rules from.
type RulesFrom uint8

const (
	// FromFile takes them from the configuration file.
	FromFile RulesFrom = iota
	// FromFleet takes those that the fleet shares.
	FromFleet
)

// String returns the name in the configuration file.
func (f RulesFrom) String() string {
	if f == FromFleet {
		return "fleet"
	}
	return "file"
}

// ParseRulesFrom reads the name of a source of rules, as in the configuration file.
func ParseRulesFrom(text string) (RulesFrom, error) {
	switch text {
	case "file":
		return FromFile, nil
	case "fleet":
		return FromFleet, nil
	}
	return 0, fmt.Errorf("unknown source of rules %.60q: one of file, fleet", text)
}

// Default returns the Settings of a file that sets nothing.
func Default() Settings {
	s := byDefault()
	s.Upgrades = slices.Clone(s.Upgrades)
	return s
}

var byDefault = sync.OnceValue(func() (s Settings) {
	s.rows(yamlnode.Values("the settings by default"), new(func(*yamlnode.Node))).SetDefaults()
	return s
})

// Table are the rows of all settings, for programs that describe them: their paths begin below "server".
func Table() schema.Rows {
	return new(Settings).rows(yamlnode.Values("the settings"), new(func(*yamlnode.Node)))
}
