package redislimit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/redislimit"
)

// The Store passes the kit over its own Client and another: vectors, random steps
// beside the reference model, properties, linearizability, a burst from a fleet.
func TestKit(t *testing.T) {
	t.Parallel()
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
			Frozen: func(t *testing.T) stint.Store {
				return freeze(t, func(server *redistest.Server) stint.Store { return open(t, server.URL()) })
			},
			Steps: steps,
		}.Run(t)
	})
	t.Run("another client", func(t *testing.T) {
		over := func(t *testing.T, server *redistest.Server) stint.Store { return overPlain(t, server, namespace()) }
		if testing.Short() { // what differs is how a client sends and reads
			limittest.Twins(t, new(stint.Memory), over(t, server), steps/5, 1)
			return
		}
		limittest.Kit{
			New: func(t *testing.T) stint.Store { return over(t, server) },
			Frozen: func(t *testing.T) stint.Store {
				return freeze(t, func(server *redistest.Server) stint.Store { return over(t, server) })
			},
			Steps: steps / 10,
		}.Run(t)
	})
}

// overPlain is a Store over a Client with no more than Do, as one over another library.
func overPlain(t testing.TB, server *redistest.Server, namespace string) *redislimit.Store {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableRetry: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s, err := redislimit.New(t.Context(), plain{client}, redislimit.Options{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type plain struct{ client rueidis.Client }

func (p plain) Do(ctx context.Context, args ...string) (any, error) {
	reply, err := p.client.Do(ctx, p.client.B().Arbitrary(args...).Build()).ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return reply, err
}

// freeze is a store over a server that answered once and then never more.
func freeze(t *testing.T, over func(*redistest.Server) stint.Store) stint.Store {
	server := redistest.Start(t)
	s := over(server)
	if _, err := stint.NewLimiter(s).Allow(t.Context(), "k", stint.MustLimit("10 per 1h")); err != nil {
		t.Fatal(err)
	}
	server.Freeze(t)
	return s
}

// Memory and Redis are equal to each other, step by step.
func TestTwins(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	steps := 200_000
	if testing.Short() {
		steps = 5_000
	}
	limittest.Twins(t, new(stint.Memory), open(t, server.URL()), steps, 1)
}

// A Fallback changes nothing while the server answers.
func TestFallbackKit(t *testing.T) {
	if testing.Short() {
		t.Skip("the kit over Memory is enough, of a layer and of a Store")
	}
	server := redistest.Start(t)
	var n atomic.Int64
	within := func(t *testing.T, namespace string) stint.Store {
		f := &fleet.Fallback{Store: open(t, server.URL()+"?namespace="+namespace), Deadline: 10 * time.Second}
		t.Cleanup(f.Close)
		return f
	}
	limittest.Kit{
		New: func(t *testing.T) stint.Store { return within(t, fmt.Sprint("a", n.Add(1))) },
		Fleet: func(t *testing.T) []stint.Store {
			shared := fmt.Sprint("b", n.Add(1))
			return []stint.Store{within(t, shared), within(t, shared)}
		},
		Steps: 5_000,
	}.Run(t)
}

// A key that something else has taken is no reason to stop asking about others.
func TestFallbackOfBrokenKey(t *testing.T) {
	server := redistest.Start(t)
	f := &fleet.Fallback{Store: open(t, server.URL()), Deadline: 10 * time.Second}
	defer f.Close()
	limiter, limit := stint.NewLimiter(f), stint.MustLimit("5 per 1h")
	server.Do(t, "LPUSH", "stint:{1:k}"+limit.ID(), "x")
	for range 20 {
		if d, err := limiter.Allow(t.Context(), "k", limit); err != nil || d.By != stint.ByLocal {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if d, err := limiter.Allow(t.Context(), "other", limit); err != nil || d.By != stint.ByStore || f.State() != fleet.Closed {
		t.Errorf("%+v, %v, %s", d, err, f.State())
	}
}
