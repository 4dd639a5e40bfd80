package redislimit_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
)

// Of a Cluster that is full, requests are refused that one slot refuses, whatever there is
// no room for in another; what no slot refuses fails for want of room, and charges nothing.
func TestClusterFull(t *testing.T) {
	t.Parallel()
	var urls string
	nodes := redistest.StartCluster(t, 3)
	for i, n := range nodes {
		if i > 0 {
			urls += ","
		}
		urls += n.Addr
	}
	s := open(t, "redis+cluster://"+urls)
	spent := []*stint.Limit{stint.MustLimit("1 per 1h sliding_log"), stint.MustLimit("1 per 1h leaky_bucket")}
	fresh := []*stint.Limit{stint.MustLimit("5 per 1h"), stint.MustLimit("5 per 1h sliding_log"), stint.MustLimit("5 per 1h leaky_bucket"), stint.MustLimit("5 per 1h sliding_window")}
	take := func(asks ...stint.Ask) (stint.Decision, error) {
		return s.Take(t.Context(), &stint.Request{Asks: asks}, make([]stint.Decision, len(asks)))
	}
	const n = 10
	for i := range n {
		for _, limit := range spent {
			if d, err := take(stint.Ask{Key: fmt.Sprint("spent", i), Limit: limit, Cost: 1}); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
	}
	for _, node := range nodes {
		node.Do(t, "CONFIG", "SET", "maxmemory", "1")
	}
	for i := range n {
		for j, limit := range fresh {
			one := stint.Ask{Key: fmt.Sprint("new", i, j), Limit: limit, Cost: 1}
			two := stint.Ask{Key: fmt.Sprint("other", i, j), Limit: fresh[0], Cost: 1}
			for _, limit := range spent {
				old := stint.Ask{Key: fmt.Sprint("spent", i), Limit: limit, Cost: 1}
				if d, err := take(one, old, two); err != nil || d.Allowed {
					t.Errorf("%s, %s: %+v, %v", one.Limit.Spec().Algorithm, limit.Spec().Algorithm, d, err)
				}
			}
			if d, err := take(one, two); !errors.Is(err, stint.ErrFull) || !errors.Is(err, fleet.ErrNotCharged) {
				t.Errorf("%s: %+v, %v", limit.Spec().Algorithm, d, err)
			}
		}
	}
	for _, node := range nodes {
		node.Do(t, "CONFIG", "SET", "maxmemory", "0")
	}
	for i := range n {
		for j, limit := range fresh {
			if d, err := take(stint.Ask{Key: fmt.Sprint("new", i, j), Limit: limit, Cost: 5}); err != nil || !d.Allowed {
				t.Errorf("%s was charged: %+v, %v", limit.Spec().Algorithm, d, err)
			}
		}
	}
}
