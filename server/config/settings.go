package server

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/rules"
)

// Settings is the section "server" of a configuration file: what stays as it is
// while the program runs. The rest of the file is the rules'.
type Settings struct {
	// Listen is the address of the gateway, which listens only where there are Routes.
	// CheckListen is that of the check API, or Off. ProbeListen is that of Probes, or
	// Off: the check API answers probes, too.
	Listen, CheckListen, ProbeListen string
	// Store is "memory", or the address of a Redis as redislimit.Open takes it, with
	// how to authenticate and encrypt, and how long to wait.
	Store string
	// Namespace parts what this service keeps in Store from what others keep there:
	// services in one namespace share the counts of rules with equal names, bans,
	// switches and pushed rules. 1 to 64 of A–Z a–z 0–9 _ . : -. Empty: as the
	// address of the store says, else "stint".
	Namespace string
	// Memory is how many bytes the bounds that are ByMemory are made for. 0: what the
	// cgroup of this process, or else the machine, has.
	Memory int64
	// MaxKeys bounds a store in memory, and what decides while another is away.
	// ByMemory: up to 1,000,000.
	MaxKeys int64
	// DecisionTimeout is how long a request waits for the store before the
	// rules' on_store_error decides.
	DecisionTimeout time.Duration
	// Breaker says when the store is not asked any more; see stint.Fallback.
	Breaker stint.Breaker
	// Instances is how many instances share the limits while the store is away.
	// 0: as many as were counted last.
	Instances int64
	// RememberedDenials is how many refusals this instance remembers, so that the
	// store is not asked again in vain; see stint.Denials. 0: none. ByMemory: up to
	// 100,000.
	RememberedDenials int64
	// UpstreamTimeout is how long an upstream may take until it begins to answer.
	UpstreamTimeout time.Duration
	// BodyTimeout is how long a client of the gateway may keep it waiting for the body of
	// a request, or for room to send a response: at once, and by falling behind 500 bytes
	// a second. 0: for any time.
	BodyTimeout time.Duration
	// StopDelay is how long Run still serves when it is told to stop, while /readyz
	// says so, so that load balancers have time to send requests elsewhere. 0: none.
	StopDelay time.Duration
	// StopTimeout is how long Run then waits for requests under way; those that have
	// not ended are cut off. 0: they are at once.
	StopTimeout time.Duration
	// Dialect is the headers that tell clients how they stand.
	Dialect httplimit.Dialect
	// ClientHeader is where trusted proxies write the client's address; see
	// httplimit.Clients.
	ClientHeader string
	// Routes are the gateway's.
	Routes []Route
	// UpstreamProxy is how upstreams are reached: "" is directly, "environment" by
	// HTTP_PROXY, HTTPS_PROXY and NO_PROXY of the program's environment, and else
	// the URL of a proxy. Upstreams of h2c are always reached directly. JWT.KeysURL is
	// reached in the same way.
	UpstreamProxy string
	// Upgrades are the protocols that a connection may switch to, as in the header
	// Upgrade; the case of letters does not count. What a client offers beside them
	// is not passed on, and its request is served in HTTP/1.1. None may carry requests
	// of HTTP, which no rule would see. nil: none.
	Upgrades []string
	// AllowAmbiguous is what is ambiguous in a request's path, query, method or headers
	// and passes nevertheless. All else is refused with 400 where a rule, a list or a
	// route looks at it: see rules.ReadTarget, rules.ReadMethod and rules.AmbiguousError.
	AllowAmbiguous rules.Ambiguity
	// MaxHeld and MaxHold bound the requests of rules that shape; see
	// httplimit.Middleware.
	MaxHeld int64
	MaxHold time.Duration
	// Instance bounds what this instance takes, whatever the rules and the store
	// say.
	Instance Instance
	// MaxConnections is how many connections each listener keeps; one more is
	// closed as it comes. 0: any number. ByMemory: up to 50,000.
	MaxConnections int64
	// DegradedHeader tells clients in Stint-Degraded who decided where the store
	// did not.
	DegradedHeader bool
	// ViolationsHeader tells clients that are refused in Stint-Violations how many
	// violations count.
	ViolationsHeader bool
	// StateDir is a directory in which this instance, and no other, keeps what it has
	// seen last of what the fleet shares, and the changes that the store has not got. What
	// is there stands in when the instance starts while the store is away, and where Store
	// is "memory" it is what was changed before. Empty: nothing is kept.
	StateDir string
	// ReadyWithoutControls is whether /readyz answers 200 before what the fleet shares was
	// read once, from the store or, where that is away, from StateDir.
	ReadyWithoutControls bool
	// RulesFrom is where this instance takes its rules from.
	RulesFrom RulesFrom
	// Secrets are for the function hmac in expressions.
	Secrets []Secret
	// JWT says which tokens of clients are valid, whose claims expressions find. nil:
	// nobody looks at tokens.
	JWT *JWT
	// TLS is the gateway's, CheckTLS that of the check API. nil: plain HTTP.
	TLS, CheckTLS *TLSFiles
	// Check is who may use the check API.
	Check CheckAPI
	// Admin is the admin API's.
	Admin Admin
}

// RulesFrom is where an instance takes its rules from.
type RulesFrom uint8

const (
	// FromFile takes them from the configuration file.
	FromFile RulesFrom = iota
	// FromFleet takes those that the fleet shares.
	FromFleet
)

// String is the name in the configuration file.
func (f RulesFrom) String() string {
	if f == FromFleet {
		return "fleet"
	}
	return "file"
}

// ParseRulesFrom reads the name of a source of rules.
func ParseRulesFrom(text string) (RulesFrom, error) {
	switch text {
	case "file":
		return FromFile, nil
	case "fleet":
		return FromFleet, nil
	}
	return 0, fmt.Errorf("unknown source of rules %.60q: one of file, fleet", text)
}

// DefaultSettings are those of a file that says nothing.
func DefaultSettings() Settings {
	return Settings{
		Listen:          ":8080",
		CheckListen:     "127.0.0.1:8082",
		ProbeListen:     Off,
		Store:           "memory",
		MaxKeys:         ByMemory,
		DecisionTimeout: 25 * time.Millisecond,
		UpstreamTimeout: time.Minute,
		BodyTimeout:     30 * time.Second,
		// Less than the 30 seconds after which Kubernetes kills what has not stopped.
		StopTimeout: 25 * time.Second,

		RememberedDenials: ByMemory,

		Upgrades:             []string{"websocket"},
		ReadyWithoutControls: true,
		MaxHeld:              1000,
		MaxHold:              10 * time.Second,
		Instance:             Instance{InFlight: ByMemory, Bytes: ByMemory},
		MaxConnections:       ByMemory,
		Admin:                Admin{Listen: "127.0.0.1:8090"},
	}
}

// ReadSettings reads the section "server" of a configuration file. What it does
// not say is as in DefaultSettings. An error has a line for each problem.
func ReadSettings(file string, data []byte) (Settings, error) {
	return ReadSettingsFiles([]rules.File{{Name: file, Data: data}}, nil)
}

// ReadSettingsFiles is ReadSettings of several files, of which one may have the
// section. That not two of them have it is for rules.ParseFiles to say. checkStore
// returns what is wrong with the address of a store other than "memory"; nil: any
// address is taken.
func ReadSettingsFiles(files []rules.File, checkStore func(address string) error) (Settings, error) {
	s := DefaultSettings()
	for _, f := range files {
		r, root := yamlnode.Open(f.Name, f.Data)
		r.Mapping(root, yamlnode.Fields{"": r.Skip, "server": func(n *yamlnode.Node) { s.read(r, n, checkStore) }})
		if err := r.Err(); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *Settings) read(r *yamlnode.Reader, n *yamlnode.Node, checkStore func(address string) error) {
	before := r.Problems()
	fields := r.Mapping(n, yamlnode.Fields{
		"listen":                 yamlnode.Parsed(r, &s.Listen, parseListen),
		"check_listen":           yamlnode.Parsed(r, &s.CheckListen, parseListenOrOff),
		"probe_listen":           yamlnode.Parsed(r, &s.ProbeListen, parseListenOrOff),
		"store":                  r.Text(&s.Store),
		"namespace":              yamlnode.Parsed(r, &s.Namespace, ParseNamespace),
		"memory":                 yamlnode.Parsed(r, &s.Memory, parseByteSize),
		"max_keys":               r.Int64(&s.MaxKeys, 1, 1<<31),
		"decision_timeout":       r.Period(&s.DecisionTimeout),
		"breaker":                readBreaker(r, &s.Breaker),
		"instances":              r.Int64(&s.Instances, 1, 100_000),
		"remembered_denials":     r.Int64(&s.RememberedDenials, 0, 1<<24),
		"upstream_timeout":       r.Period(&s.UpstreamTimeout),
		"stop_delay":             r.Period(&s.StopDelay),
		"stop_timeout":           r.Period(&s.StopTimeout),
		"client_header":          yamlnode.Parsed(r, &s.ClientHeader, parseHeader),
		"max_held":               r.Int64(&s.MaxHeld, 1, 1<<20),
		"max_hold":               r.Period(&s.MaxHold),
		"instance":               func(n *yamlnode.Node) { s.Instance.read(r, n) },
		"max_connections":        r.Int64(&s.MaxConnections, 1, 1<<31),
		"degraded_header":        r.Bool(&s.DegradedHeader),
		"violations_header":      r.Bool(&s.ViolationsHeader),
		"rules":                  yamlnode.Parsed(r, &s.RulesFrom, ParseRulesFrom),
		"secrets":                readSecrets(r, &s.Secrets),
		"jwt":                    readJWT(r, &s.JWT),
		"tls":                    readTLS(r, &s.TLS),
		"check_tls":              readTLS(r, &s.CheckTLS),
		"check":                  r.Skip,
		"admin":                  func(n *yamlnode.Node) { s.Admin.read(r, n) },
		"headers":                func(n *yamlnode.Node) { s.readDialect(r, n) },
		"upstream_proxy":         yamlnode.Parsed(r, &s.UpstreamProxy, parseProxy),
		"upgrades":               readUpgrades(r, &s.Upgrades),
		"ambiguous":              readAmbiguous(r, &s.AllowAmbiguous),
		"state_dir":              yamlnode.Parsed(r, &s.StateDir, parseStateDir),
		"ready_without_controls": r.Bool(&s.ReadyWithoutControls),
		"body_timeout":           r.Period(&s.BodyTimeout),
		"routes": func(n *yamlnode.Node) {
			r.Each(n, func(n *yamlnode.Node) { s.readRoute(r, n) })
		},
	})
	s.readCheck(r, fields["check"])
	if err := s.CheckGuarded(); err != nil && r.Problems() == before {
		r.Report(fields["check_listen"], "%v", err)
	}
	if n := fields["store"]; n != nil && s.Store != "memory" && checkStore != nil {
		if err := checkStore(s.Store); err != nil {
			r.Report(n, "store: %v", err)
		}
	}
	for name, d := range map[string]time.Duration{"body_timeout": s.BodyTimeout, "stop_delay": s.StopDelay, "stop_timeout": s.StopTimeout} {
		if d < 0 || d > time.Hour {
			r.Report(fields[name], "%s must be from 0 to 1h", name)
		}
	}
	for name, d := range map[string]time.Duration{"decision_timeout": s.DecisionTimeout, "upstream_timeout": s.UpstreamTimeout, "max_hold": s.MaxHold} {
		if d <= 0 {
			r.Report(fields[name], "%s must be more than 0", name)
		}
	}
}

func parseListen(text string) (string, error) {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("address %.60q: want host:port, or :port for every interface", text)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return "", fmt.Errorf("address %.60q: the port must be 0 to 65535, or the name of a service", text)
	}
	return text, nil
}

func parseStateDir(text string) (string, error) {
	if text == "" || strings.ContainsRune(text, 0) {
		return "", errors.New("state_dir: want a directory such as /var/lib/stint")
	}
	return text, nil
}

// ParseNamespace reads the name of a namespace; it refuses what the store would refuse later, without a line.
func ParseNamespace(text string) (string, error) {
	const letters = "_.:-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if text == "" || len(text) > 64 || strings.Trim(text, letters) != "" {
		return "", fmt.Errorf("namespace %.70q: must be 1 to 64 of A–Z a–z 0–9 _ . : -", text)
	}
	return text, nil
}

// parseHeader refuses names that no header has: one that is never found would make
// one client of all that come through a proxy.
func parseHeader(text string) (string, error) {
	const letters = "-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if text == "" || strings.Trim(text, letters) != "" {
		return "", fmt.Errorf("header %.60q: want a name such as X-Real-Ip", text)
	}
	return text, nil
}

func (s *Settings) readDialect(r *yamlnode.Reader, n *yamlnode.Node) {
	var names []string
	before := r.Problems()
	r.Each(n, func(n *yamlnode.Node) {
		yamlnode.Parsed(r, new(httplimit.Dialect), func(name string) (httplimit.Dialect, error) {
			names = append(names, name)
			return httplimit.ParseDialect(name)
		})(n)
	})
	if r.Problems() > before {
		return
	}
	var err error
	if s.Dialect, err = httplimit.ParseDialect(names...); err != nil {
		r.Report(n, "%v", err)
	}
}
