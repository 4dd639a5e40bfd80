// Package envoy answers Envoy's rate limit service, so that Stint can replace a fleet of
// envoyproxy/ratelimit: gRPC, JSON over HTTP, its environment variables, YAML and statistics. A server.Server
// decides every call, like requests of the gateway.
package envoy

import (
	"context"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// Decider is the part of a *server.Server that package envoy uses. It is called from many goroutines at once.
type Decider interface {
	// Decide decides a call; see server.Server.Decide.
	Decide(ctx context.Context, in *rules.Input, at time.Time) (server.Verdict, error)
	// Rules are the rules in force.
	Rules() *rules.Set
}

// Observer gets the service's events, for statistics. Its methods may be called from many goroutines at once,
// must not block, and must not keep their arguments.
type Observer interface {
	// Called is called at the end of each call of a gRPC method or of /json, which is
	// "ShouldRateLimit", too.
	Called(method string, took time.Duration)
	// Decided is called for each call that was decided. shadow: the global shadow
	// mode turned a refusal into OK.
	Decided(calls *rules.Descriptors, v *server.Verdict, shadow bool)
	// Failed is called for each call that could not be decided: because of the store (store), or because it
	// was malformed.
	Failed(store bool)
	// Loaded is called after each attempt to load the configuration.
	Loaded(err error)
}
