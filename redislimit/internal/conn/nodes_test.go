package redislimit

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// node is a Client of one node, which plays a part.
type node struct{ part string }

var errDown = errors.New("down")

func (n node) Do(context.Context, ...string) (any, error) {
	if n.part == "" {
		return nil, errDown
	}
	return "# Replication\r\nrole:" + n.part + "\r\nmaster_replid:x\r\n", nil
}

// nodesOf is a Client over several nodes.
type nodesOf struct {
	node
	all []Client
}

func (c nodesOf) nodes() []Client { return c.all }

// Bans are asked of each master and of no replica; a node that does not answer
// might be a master.
func TestMasters(t *testing.T) {
	a, b, replica := node{"master"}, node{"master"}, node{"slave"}
	s := &Store{client: nodesOf{all: []Client{a, replica, b}}}
	s.server.Store(&Server{Cluster: true})
	if got, err := s.masters(t.Context()); err != nil || !slices.Equal(got, []Client{a, b}) {
		t.Errorf("%v, %v", got, err)
	}
	s.client = nodesOf{all: []Client{a, node{}}}
	if got, err := s.masters(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("%v, %v", got, err)
	}
	s.server.Store(&Server{})
	if got, err := s.masters(t.Context()); err != nil || len(got) != 2 {
		t.Errorf("no Cluster: %v, %v", got, err)
	}
}
