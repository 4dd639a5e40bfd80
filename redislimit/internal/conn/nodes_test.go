package conn

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

// The masters are found among all nodes, without the replicas; a node that does not
// answer might be a master.
func TestMasters(t *testing.T) {
	a, b, replica := node{"master"}, node{"master"}, node{"slave"}
	c := Over(nodesOf{all: []Client{a, replica, b}})
	c.server.Store(&Server{Cluster: true})
	if got, err := c.Masters(t.Context()); err != nil || !slices.Equal(got, []Node{{a, true}, {b, true}}) {
		t.Errorf("%v, %v", got, err)
	}
	c.own = nodesOf{all: []Client{a, node{}}}
	if got, err := c.Masters(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("%v, %v", got, err)
	}
	c.server.Store(&Server{})
	if got, err := c.Masters(t.Context()); err != nil || len(got) != 2 {
		t.Errorf("no Cluster: %v, %v", got, err)
	}
	one := Over(a)
	one.server.Store(&Server{Cluster: true})
	if got, err := one.Masters(t.Context()); !errors.Is(err, ErrOneNode) {
		t.Errorf("one node of a Cluster: %v, %v", got, err)
	}
}
