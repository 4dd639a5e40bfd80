package conn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Server describes a server, from its own answers.
type Server struct {
	Product string // "redis" or "valkey"
	Version string // such as "7.0.15"
	Cluster bool
	// Eviction is the server's maxmemory-policy; empty: not known.
	Eviction string
}

// Evicts reports whether the server drops expiring keys when it runs out of memory; false if its
// policy is not known. Under "noeviction", it refuses new keys instead.
func (s Server) Evicts() bool { return s.Eviction != "" && s.Eviction != "noeviction" }

type serverState struct {
	Server
	replica, loading bool
}

// Server returns the Server as it was when the Conn connected to it; zero until then.
func (c *Conn) Server() Server { return *c.server.Load() }

// Cluster reports whether the server is part of a Cluster.
func (c *Conn) Cluster() bool { return c.server.Load().Cluster }

func info(ctx context.Context, c Client, section string, fields map[string]string) error {
	text, err := stringReply(c.Do(ctx, "INFO", section))
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return nil
}

// ask reads INFO, section by section for servers before 7.0, and refuses those without the scripts'
// commands.
func ask(ctx context.Context, c Client) (serverState, error) {
	fields := map[string]string{}
	for _, section := range []string{"server", "cluster", "memory", "replication", "persistence"} {
		if err := info(ctx, c, section, fields); err != nil {
			return serverState{}, Explain(fmt.Errorf("INFO %s: %w", section, err))
		}
	}
	s := serverState{
		Server: Server{
			Product:  "redis",
			Version:  fields["redis_version"],
			Cluster:  fields["cluster_enabled"] == "1",
			Eviction: fields["maxmemory_policy"],
		},
		replica: fields["role"] == "slave",
		loading: fields["loading"] == "1",
	}
	if v := fields["valkey_version"]; v != "" {
		s.Product, s.Version = "valkey", v
	}
	if err := s.check(); err != nil {
		return serverState{}, err
	}
	return s, nil
}

// identify asks the server for its serverState; in a Cluster it asks all nodes, because some may be
// dead, and takes the first answer.
func (c *Conn) identify(ctx context.Context, e engine) (serverState, error) {
	nodes := e.nodes()
	if len(nodes) < 2 || c.target.option.Sentinel.MasterSet != "" {
		return ask(ctx, e)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		serverState
		err error
	}
	answers := make(chan answer, len(nodes))
	for _, n := range nodes {
		go func() {
			s, err := ask(ctx, n)
			answers <- answer{s, err}
		}()
	}
	var errs []error
	for range nodes {
		a := <-answers
		if a.err == nil {
			return a.serverState, nil
		}
		errs = append(errs, a.err)
	}
	return serverState{}, errors.Join(errs...)
}

// check refuses servers without SET … PXAT (Redis 6.2), which the scripts use.
func (s *serverState) check() error {
	parts := strings.SplitN(s.Version, ".", 3)
	if len(parts) < 2 {
		return fmt.Errorf("the server gives no version (%q): is it a Redis or a Valkey?", s.Version)
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return fmt.Errorf("the server's version %q cannot be read", s.Version)
	}
	if s.Product == "redis" && (major < 6 || major == 6 && minor < 2) {
		return fmt.Errorf("the server is Redis %s: Stint needs 6.2 or later, or Valkey; upgrade the server", s.Version)
	}
	return nil
}

// RefreshEviction asks each node for its eviction policy again, and keeps one that evicts, if any.
func (c *Conn) RefreshEviction(ctx context.Context) error {
	nodes := []Client{c}
	if c.Cluster() {
		nodes = c.clients()
	}
	found := ""
	var errs []error
	for _, n := range nodes {
		policy, err := evictionOf(ctx, n)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if found == "" || (Server{Eviction: policy}).Evicts() {
			found = policy
		}
	}
	if found == "" {
		return errors.Join(errs...)
	}
	for {
		before := c.server.Load()
		now := *before
		now.Eviction = found
		if c.server.CompareAndSwap(before, &now) {
			return nil
		}
	}
}

func evictionOf(ctx context.Context, c Client) (string, error) {
	fields := map[string]string{}
	if err := info(ctx, c, "memory", fields); err != nil {
		return "", Explain(err)
	}
	policy, ok := fields["maxmemory_policy"]
	if !ok {
		return "", errors.New("INFO has no maxmemory_policy")
	}
	return policy, nil
}
