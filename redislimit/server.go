package redislimit

import (
	"context"
	"fmt"
	"time"

	"github.com/stintdev/stint/redislimit/internal/conn"
)

// Client is a connection to Redis, for New. Connect makes its own; examples/goredis in the
// repository has one over go-redis.
//
// Do sends one command and returns its reply: a string, an int64, nil or an []any of these.
// If the server replied with an error, the returned error must have an error in its chain
// whose text starts with the server's code, such as "NOSCRIPT". Do must not retry a command
// that may have been executed, because that could charge twice. It must return when ctx is
// done, and is called from many goroutines at once. One call may decide for several
// callers, so its context is not that of a caller, and ends after two seconds. In a
// Cluster, Do must send EVAL, EVALSHA, DEL, HGET and HMGET to the node of their keys and
// follow redirections.
type Client interface {
	Do(ctx context.Context, args ...string) (any, error)
}

// Server describes a server, from its own answers.
type Server struct {
	Product string // "redis" or "valkey"
	Version string // such as "7.0.15"
	Cluster bool   // it is a node of a Cluster
	// Eviction is the server's maxmemory-policy. With any but "noeviction", a server
	// that runs out of memory drops counts and bans: see DropsCounts.
	Eviction string
}

// DropsCounts reports whether the server drops counts and bans when it runs out of memory.
// It is false if the eviction policy is not known. All keys except documents expire, so
// volatile- policies drop them as allkeys- policies do.
func (s Server) DropsCounts() bool { return conn.Server(s).Evicts() }

// Server returns the Server as it was when the Store connected. It is zero before that; see
// Options.Background.
func (s *Store) Server() Server { return Server(s.conn.Server()) }

// RefreshServer asks the server, and in a Cluster each node, for its eviction policy again,
// because it can change while the server runs and after a failover. If policies differ, it
// takes one that drops counts. Server then returns the same.
func (s *Store) RefreshServer(ctx context.Context) (Server, error) {
	if err := s.conn.RefreshEviction(ctx); err != nil {
		return Server{}, fmt.Errorf("redislimit: eviction policy: %w", err)
	}
	return s.Server(), nil
}

// Refused returns why the passwords and certificates that are now in the files are not
// used: they cannot be read, or the server refused them. Then the former ones stay in use.
// nil: they are used.
func (s *Store) Refused() error {
	if err := s.conn.FilesRefused(); err != nil {
		return fmt.Errorf("redislimit: %w", err)
	}
	return nil
}

// Certificates returns when the certificates of the connections expire, the earliest of
// each kind: "client", which the Store shows to the server; "ca", which verifies the
// server's; and "server", which servers have shown on open connections. Kinds that are not
// in use are left out.
func (s *Store) Certificates() map[string]time.Time { return s.conn.Certificates() }
