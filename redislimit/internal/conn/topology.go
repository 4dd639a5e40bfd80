package redislimit

import (
	"context"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/stintdev/stint"
)

var _ stint.Parted = (*Store)(nil)

const (
	slots = 16384
	// partsEvery is how often a Cluster is asked which node has which slots.
	partsEvery = 5 * time.Second
)

// topology is which node of a Cluster has which slots.
type topology struct {
	names []string      // of the nodes: host:port; the first is of slots that nobody has: ""
	of    [slots]uint16 // the place in names
}

// Part implements stint.Parted: the address of the node of a Cluster on which a key lies,
// as the Cluster said within the last seconds.
func (s *Store) Part(key string) string {
	t := s.topology.Load()
	if t == nil {
		return ""
	}
	return t.names[t.of[slot(key)]]
}

// Parts implements stint.Parted.
func (s *Store) Parts() []string {
	t := s.topology.Load()
	if t == nil {
		return nil
	}
	return t.names[1:]
}

// lookAtSlots asks a Cluster which node has which slots. Where it does not say, what it
// said before stays: a key whose node is not known fails with those of another one.
func (l *late) lookAtSlots(ctx context.Context) {
	e := l.engine.Load()
	if !l.store.cluster() {
		l.store.topology.Store(nil)
		return
	}
	bounded, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	reply, err := e.Do(bounded, "CLUSTER", "SLOTS")
	if err != nil {
		return
	}
	if t := readSlots(reply); t != nil {
		l.store.topology.Store(t)
	}
}

// readSlots reads the reply to CLUSTER SLOTS: ranges, each with its first and last slot and
// the address of its master. nil: it is none, or nobody has any slot.
func readSlots(reply any) *topology {
	t := &topology{names: []string{""}}
	ranges, _ := reply.([]any)
	for _, r := range ranges {
		fields, _ := r.([]any)
		if len(fields) < 3 {
			return nil
		}
		first, ok1 := fields[0].(int64)
		last, ok2 := fields[1].(int64)
		node, _ := fields[2].([]any)
		if !ok1 || !ok2 || len(node) < 2 || first < 0 || first > last || last >= slots {
			return nil
		}
		host, _ := node[0].(string)
		port, ok := node[1].(int64)
		if !ok {
			return nil
		}
		name := net.JoinHostPort(host, strconv.FormatInt(port, 10))
		place := slices.Index(t.names, name)
		if place < 0 {
			place = len(t.names)
			t.names = append(t.names, name)
		}
		for i := first; i <= last; i++ {
			t.of[i] = uint16(place)
		}
	}
	if len(t.names) == 1 {
		return nil
	}
	return t
}
