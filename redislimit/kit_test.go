package redislimit_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/redislimit"
)

// The Store passes the kit over rueidis and over go-redis: vectors, random steps
// beside the reference model, properties, linearizability, a burst from a fleet.
func TestKit(t *testing.T) {
	server := redistest.Start(t)
	var n atomic.Int64
	namespace := func() string { return fmt.Sprint("kit", n.Add(1)) }
	steps := 200_000
	if testing.Short() {
		steps = 5_000
	}
	t.Run("rueidis", func(t *testing.T) {
		limittest.Kit{
			New: func(t *testing.T) stint.Store { return open(t, server.URL()+"?namespace="+namespace()) },
			Fleet: func(t *testing.T) []stint.Store {
				shared := "?namespace=" + namespace()
				return []stint.Store{open(t, server.URL()+shared), open(t, server.URL()+shared)}
			},
			Steps: steps,
		}.Run(t)
	})
	t.Run("go-redis", func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		limittest.Kit{
			New: func(t *testing.T) stint.Store {
				s, err := redislimit.New(t.Context(), goRedis{client}, redislimit.Options{Namespace: namespace()})
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Steps: steps / 10,
		}.Run(t)
	})
}

// Memory and Redis are equal to each other, step by step.
func TestTwins(t *testing.T) {
	server := redistest.Start(t)
	steps := 200_000
	if testing.Short() {
		steps = 5_000
	}
	limittest.Twins(t, new(stint.Memory), open(t, server.URL()), steps, 1)
}
