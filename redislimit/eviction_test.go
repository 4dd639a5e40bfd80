package redislimit_test

import (
	"context"
	"testing"

	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// The policy is that of now, and in a Cluster that of the worst node.
func TestRefreshServer(t *testing.T) {
	t.Parallel()
	alone := redistest.Start(t)
	s := open(t, alone.URL())
	nodes := redistest.StartCluster(t, 3)
	cluster := open(t, "redis+cluster://"+nodes[0].Addr)
	for _, policy := range []string{"noeviction", "volatile-lfu", "allkeys-random", "noeviction"} {
		alone.Do(t, "CONFIG", "SET", "maxmemory-policy", policy)
		nodes[2].Do(t, "CONFIG", "SET", "maxmemory-policy", policy)
		for name, s := range map[string]interface {
			RefreshServer(context.Context) (redislimit.Server, error)
			Server() redislimit.Server
		}{"alone": s, "cluster": cluster} {
			now, err := s.RefreshServer(t.Context())
			if err != nil || now.Eviction != policy || now != s.Server() || now.DropsCounts() != (policy != "noeviction") || now.Version == "" {
				t.Errorf("%s, %s: %+v, %v", name, policy, now, err)
			}
		}
	}
	if new(redislimit.Server).DropsCounts() {
		t.Error("a policy that is not known drops counts")
	}
}
