package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// firstAttempt bounds how long a start waits for the store, so that no request is decided by the file's
// rules, or without counts, while the store is up.
const firstAttempt = time.Second

// OpenStore opens the store that c.Settings name, and sets c's Limiter, Documents, Findings and namespace
// from it. A store that does not answer yet is not an error: it connects later, and until then the rules'
// on_store_error decides. keys are for a Redis in which other programs count, too; nil: only Stint does. Call
// done when the Server is closed.
func (c *Config) OpenStore(keys *redislimit.EnvoyKeys) (done func(), err error) {
	s := &c.Settings
	s.FitMemory()
	if s.Store == "memory" {
		if s.RulesFrom == config.FromFleet {
			return nil, errors.New("rules: fleet needs a store that the fleet shares: set store, or --store, to the address of a Redis")
		}
		c.Limiter = stint.NewLimiter(&stint.Memory{MaxKeys: int(s.MaxKeys)})
		return func() {}, nil
	}
	log := c.Log
	if log == nil {
		log = slog.Default()
	}
	first, err := connect(s, s.Store, keys, log)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s.Namespace = first.Namespace()
	log.Info("all instances of this namespace share the data in the store", "namespace", s.Namespace)
	c.Documents = first.Documents()
	if s.PerSecondStore == "" {
		c.Limiter = stint.NewLimiter(first)
		c.Findings = func() []rules.Finding { return storeFindings(first) }
		return first.Close, nil
	}
	second, err := connect(s, s.PerSecondStore, keys, log.With("store", "of limits per second"))
	if err != nil {
		first.Close()
		return nil, fmt.Errorf("store of limits per second: %w", err)
	}
	both := redislimit.NewDivided(first, second)
	c.Limiter = stint.NewLimiter(both)
	c.Findings = func() []rules.Finding { return slices.Concat(storeFindings(first), storeFindings(second)) }
	return both.Close, nil
}

// connect opens one store.
func connect(s *config.Settings, address string, keys *redislimit.EnvoyKeys, log *slog.Logger) (*redislimit.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), firstAttempt)
	defer cancel()
	said := ""
	return redislimit.Connect(ctx, address, redislimit.Options{
		Namespace:  s.Namespace,
		Background: true,
		Log:        log,
		Envoy:      keys,
		Attempted: func(server redislimit.Server, err error) {
			if err != nil {
				if text := err.Error(); text != said { // each attempt fails for the same reason
					said = text
					log.Error("the store cannot be used yet; on_store_error decides until it can", "error", err)
				}
				return
			}
			log.Info("store", "product", server.Product, "version", server.Version, "cluster", server.Cluster)
		},
	})
}

func storeFindings(s *redislimit.Store) []rules.Finding {
	all := EvictionFindings(s.Server())
	if err := s.Refused(); err != nil {
		all = append(all, rules.Finding{Code: rules.CodeStoreSecrets, Text: "the new passwords or certificates in the files of the store's address are refused; the previous ones stay in use until the Redis server ends them: " +
			strings.TrimPrefix(err.Error(), "redislimit: ")})
	}
	return all
}

// EvictionFindings returns a finding if a Redis server drops counts when it is full.
func EvictionFindings(s redislimit.Server) []rules.Finding {
	if !s.DropsCounts() {
		return nil
	}
	return []rules.Finding{{Code: rules.CodeEviction, Text: "the Redis server has maxmemory-policy " + s.Eviction +
		": when it runs out of memory, it drops counts and bans, and refused clients are allowed again; use noeviction"}}
}
