package redislimit

import (
	"context"
	"fmt"
	"time"

	"github.com/stintdev/stint/redislimit/internal/conn"
)

// Client is what a Store needs of a Redis client. Open brings one; the example of New
// shows another.
//
// Do sends one command and returns its reply: a string, an int64, nil or an []any of
// these. An error that the server replied must have in its chain an error whose text
// starts with the server's code, such as "NOSCRIPT". Do must not send a command again once
// it may have been executed, since that could charge twice: turn retries off. It must
// return when ctx is done, and is called from many goroutines at once. A call may decide
// for several callers: its context is none of theirs, and ends after two seconds. In a
// Cluster, Do must send EVAL, EVALSHA, DEL, HGET and HMGET to the node of their keys and
// follow redirections.
type Client interface {
	Do(ctx context.Context, args ...string) (any, error)
}

// Server is what a server says of itself.
type Server struct {
	Product string // "redis" or "valkey"
	Version string // such as "7.0.15"
	Cluster bool
	// Eviction is the server's maxmemory-policy. With any but "noeviction", a server
	// that runs out of memory drops counts and bans: see DropsCounts.
	Eviction string
}

// DropsCounts tells whether the server drops counts and bans when it runs out of memory;
// false where its eviction policy is not known. All keys but documents expire, so the
// volatile- policies drop them as the allkeys- ones do.
func (s Server) DropsCounts() bool { return conn.Server(s).Evicts() }

// Server is what the Store learned of its server when it connected; zero where it
// has not yet, see Options.Background.
func (s *Store) Server() Server { return Server(s.conn.Server()) }

// RefreshServer asks the server for its eviction policy again, and in a Cluster each of
// its nodes, since it can be changed while the server runs, and another server can take
// its place. Of several policies, it takes one that drops counts, if there is any. Server
// then returns the same.
func (s *Store) RefreshServer(ctx context.Context) (Server, error) {
	if err := s.conn.RefreshEviction(ctx); err != nil {
		return Server{}, fmt.Errorf("redislimit: eviction policy: %w", err)
	}
	return s.Server(), nil
}

// Refused is why the passwords and certificates that files hold now are not used: they
// cannot be read, or the server did not accept them. Those of before stay in use. nil:
// they are used.
func (s *Store) Refused() error {
	if err := s.conn.FilesRefused(); err != nil {
		return fmt.Errorf("redislimit: %w", err)
	}
	return nil
}

// Certificates is when the certificates of the connections expire, the earliest of each
// kind: "client", which is shown to the server, "ca", by which the server's is verified,
// and "server", which servers have shown on the connections that are open. A kind of
// which there is none is left out.
func (s *Store) Certificates() map[string]time.Time { return s.conn.Certificates() }
