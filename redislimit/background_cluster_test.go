package redislimit

import (
	"errors"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// A request that was made up before the server was known to belong to a Cluster, as
// happens when the server comes late, is refused by the server, and ends nothing.
func TestBatchBuiltBeforeTheCluster(t *testing.T) {
	t.Parallel()
	var hosts []string
	for _, s := range redistest.StartCluster(t, 3) {
		hosts = append(hosts, s.Addr)
	}
	s, err := Connect(t.Context(), "redis+cluster://"+strings.Join(hosts, ","), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	early, err := newStore(conn.Over(s.conn), Options{}) // which does not know its server
	if err != nil {
		t.Fatal(err)
	}
	limit := stint.MustLimit("3 per 1h")
	r := stint.Request{Asks: []stint.Ask{{Key: "a", Limit: limit, Cost: 1}, {Key: "b", Limit: limit, Cost: 1}}}
	if _, err := early.Take(t.Context(), &r, nil); !errors.Is(err, fleet.ErrNotCharged) {
		t.Errorf("%v", err)
	}
	if d, err := s.Take(t.Context(), &r, nil); err != nil || d.Remaining != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}
