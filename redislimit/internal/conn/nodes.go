package redislimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// errOneNode means that only some node of a Cluster can be asked.
var errOneNode = errors.New("this client cannot speak to each node of a Cluster; the one that Open brings can")

// scan hands the keys of a node that match a pattern to do, a page at a time. The
// server looks at about 1,000 keys for a page and serves others in between. A key
// may come twice.
func scan(ctx context.Context, node Client, pattern string, do func(keys []string) error) error {
	for cursor := "0"; ; {
		reply, err := node.Do(ctx, "SCAN", cursor, "MATCH", pattern, "COUNT", "1000")
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

// masters are the nodes that hold the keys, each one some of them.
func (s *Store) masters(ctx context.Context) ([]Client, error) {
	n, ok := s.client.(noder)
	if !ok && s.cluster() {
		return nil, errOneNode
	}
	if !ok {
		return []Client{s.client}, nil
	}
	nodes := n.nodes()
	if !s.cluster() {
		return nodes, nil
	}
	var masters []Client
	for _, node := range nodes {
		text, err := do(ctx, node, "INFO", "replication")
		if err != nil {
			return nil, fmt.Errorf("INFO replication: %w", err)
		}
		if strings.Contains(text, "role:master") {
			masters = append(masters, node)
		}
	}
	return masters, nil
}

// pipeliner is a Client that sends several commands in one go. nil stands where
// there is nothing, or a value of another type, or the key has moved away.
type pipeliner interface {
	pipeline(ctx context.Context, commands [][]string) ([]any, error)
}

// values are what lies under keys of one node; nil where that is no string.
func (s *Store) values(ctx context.Context, node Client, keys []string) ([]any, error) {
	if p, ok := node.(pipeliner); ok && s.cluster() {
		gets := make([][]string, len(keys))
		for i, k := range keys {
			gets[i] = []string{"GET", k}
		}
		return p.pipeline(ctx, gets)
	}
	reply, err := node.Do(ctx, append([]string{"MGET"}, keys...)...)
	if err != nil {
		return nil, err
	}
	values, ok := reply.([]any)
	if !ok || len(values) != len(keys) {
		return nil, fmt.Errorf("MGET of %d keys replied %T", len(keys), reply)
	}
	return values, nil
}
