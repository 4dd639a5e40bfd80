package conn

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrOneNode means that the user's own client cannot reach each node of a Cluster.
var ErrOneNode = errors.New("this client cannot reach each node of a Cluster; a Store that redislimit opens can")

// Node is one server of a Conn: the only one, or one of a Cluster, for many goroutines.
type Node struct {
	client  Client
	cluster bool
}

func (c *Conn) clients() []Client {
	if c.own != nil {
		if l, ok := c.own.(nodeLister); ok {
			return l.nodes()
		}
		return []Client{c.own}
	}
	e, err := c.connected()
	if err != nil {
		return []Client{c} // whose calls return the error
	}
	return e.nodes()
}

// Nodes returns all nodes, including replicas; over the user's own client, the one that it picks.
func (c *Conn) Nodes() []Node {
	var all []Node
	for _, n := range c.clients() {
		all = append(all, Node{n, c.Cluster()})
	}
	return all
}

// Masters returns the nodes that hold the keys. The error wraps ErrOneNode if they cannot be
// reached.
func (c *Conn) Masters(ctx context.Context) ([]Node, error) {
	if !c.Cluster() {
		return c.Nodes(), nil
	}
	if _, ok := c.own.(nodeLister); c.own != nil && !ok {
		return nil, ErrOneNode
	}
	var masters []Node
	for _, n := range c.Nodes() {
		text, err := stringReply(n.Do(ctx, "INFO", "replication"))
		if err != nil {
			return nil, fmt.Errorf("INFO replication: %w", err)
		}
		if strings.Contains(text, "role:master") {
			masters = append(masters, n)
		}
	}
	return masters, nil
}

// Do implements Client.
func (n Node) Do(ctx context.Context, args ...string) (any, error) {
	reply, err := n.client.Do(ctx, args...)
	return reply, Explain(err)
}

// Scan calls do with the keys that match a pattern, a page of the server's 1,000 keys at a time,
// until do returns an error. A key may come twice.
func (n Node) Scan(ctx context.Context, pattern string, do func(keys []string) error) error {
	for cursor := "0"; ; {
		reply, err := n.Do(ctx, "SCAN", cursor, "MATCH", pattern, "COUNT", "1000")
		if err != nil {
			return err
		}
		page, ok := reply.([]any)
		if !ok || len(page) != 2 {
			return fmt.Errorf("SCAN replied %T", reply)
		}
		list, _ := page[1].([]any)
		keys := make([]string, 0, len(list))
		for _, k := range list {
			keys = append(keys, fmt.Sprint(k))
		}
		if len(keys) > 0 {
			if err := do(keys); err != nil {
				return err
			}
		}
		if cursor, _ = page[0].(string); cursor == "0" || cursor == "" {
			return nil
		}
	}
}

// Values returns the values of keys on the node; nil for one that is not a string.
func (n Node) Values(ctx context.Context, keys []string) ([]any, error) {
	if p, ok := n.client.(pipeliner); ok && n.cluster {
		gets := make([][]string, len(keys))
		for i, k := range keys {
			gets[i] = []string{"GET", k}
		}
		values, err := p.pipeline(ctx, gets)
		return values, Explain(err)
	}
	reply, err := n.Do(ctx, append([]string{"MGET"}, keys...)...)
	if err != nil {
		return nil, err
	}
	values, ok := reply.([]any)
	if !ok || len(values) != len(keys) {
		return nil, fmt.Errorf("MGET of %d keys replied %T", len(keys), reply)
	}
	return values, nil
}
