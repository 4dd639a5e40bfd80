// Package config is the section "server" of a configuration file: what it may say, how it
// is read and checked, and what holds where it says nothing. Read returns the Settings
// with the rules beside them; nothing here changes while a program runs.
//
// Files that settings name, such as certificates, tokens and secrets, are read by package
// server: Settings hold their names and never a secret.
package config

import (
	"fmt"
	"time"

	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/rules"
)

// Settings is the section "server" of a configuration file. The rest of the file is read
// by package rules. A Settings begins as Default; the zero Settings is none that works.
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
	// Breaker says when the store is not asked any more; see fleet.Fallback.
	Breaker fleet.Breaker
	// Instances is how many instances share the limits while the store is away.
	// 0: as many as were counted last.
	Instances int64
	// RememberedDenials is how many refusals this instance remembers, so that the
	// store is not asked again in vain; see fleet.Denials. 0: none. ByMemory: up to
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
	// StateDir is the absolute path of a directory in which this instance, and no other,
	// keeps what it has seen last of what the fleet shares, and the changes that the store
	// has not got. What is there stands in when the instance starts while the store is
	// away, and where Store is "memory" it is what was changed before. Empty: nothing is
	// kept.
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

// Default is the Settings of a file that says nothing.
func Default() Settings {
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
