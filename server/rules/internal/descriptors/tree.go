// Package descriptors reads the configuration of Envoy's rate limit service: files with a domain and
// a tree of descriptors. Package rules makes rules of the nodes that have a limit.
package descriptors

import (
	"slices"
	"strings"

	"github.com/stintdev/stint/internal/yamlnode"
)

// Forest has a tree for each domain. It does not change after loading.
type Forest struct {
	domains map[string]*Node
	order   []*Node // of domains, as in the files
}

// Node is a domain or a descriptor.
type Node struct {
	// Key and Value are as in the file. A domain has its name in Key.
	Key, Value string
	Parent     *Node // nil: this is a domain
	// Limit is nil if the file gives no rate_limit.
	Limit *Limit

	Shadow, Quota, DetailedMetric, ValueToMetric, ShareThreshold bool

	Metadata map[string]any
	// Fields are the values of Stint's own fields in a descriptor, by name. At is the descriptor. Both are
	// nil after loading.
	Fields map[string]*yamlnode.Node
	At     *yamlnode.Node
	Reader *yamlnode.Reader

	// Unsure means that, because of a reported error, the domain, keys or values up to here may not be as
	// meant: do not compare the node with others.
	Unsure bool

	// Rule is the caller's number for a node with a Limit.
	Rule int

	exact map[pair]*Node   // children with a value
	bare  map[string]*Node // children without one
	// wildValues are the children with an asterisk in their value, by key, and wildKeys those with
	// one in their key.
	wildValues map[string]*patterns
	wildKeys   *patterns
	// order is the node's place among the children of Parent, in the order of the files.
	order    int
	children int

	// keyParts and valueParts are the texts between the asterisks of Key and Value; nil: no asterisk.
	keyParts, valueParts []string
}

// Limit is a rate_limit.
type Limit struct {
	Amount    int64
	Unit      string // in lower case: second, minute, …; empty if Unlimited
	Unlimited bool
	Name      string
	Replaces  []string
	// Wrong means that an error in the limit was reported.
	Wrong bool
	// Fields are the values of Stint's own fields, by name, and At is the rate_limit. Both are nil after
	// loading.
	Fields map[string]*yamlnode.Node
	At     *yamlnode.Node
}

type pair struct{ key, value string }

// Domain is the tree of a domain; nil: no file has the domain.
func (f *Forest) Domain(name string) *Node {
	if f == nil {
		return nil
	}
	return f.domains[name]
}

// Domains are the trees in the order of the files.
func (f *Forest) Domains() []*Node { return f.order }

// Next is the child of n for an entry of a descriptor: the one with its key and value, else the first
// in the file whose pattern it matches, else the one with the key and no value; nil: none.
//
// Patterns are matched against key and value one by one. envoyproxy/ratelimit joins key and value by an
// underscore first, so that the entry (user, agent) finds the descriptor user_agent.
func (n *Node) Next(key, value string) *Node {
	if value != "" {
		if child := n.exact[pair{key, value}]; child != nil {
			return child
		}
	}
	child := n.wildValues[key].find(value, key, value)
	if byKey := n.wildKeys.find(key, key, value); byKey != nil && (child == nil || byKey.order < child.order) {
		child = byKey
	}
	if child == nil {
		child = n.bare[key]
	}
	return child
}

// IsLeaf reports whether n has no children.
func (n *Node) IsLeaf() bool { return len(n.exact) == 0 && len(n.bare) == 0 }

// IsPattern reports whether n has an asterisk.
func (n *Node) IsPattern() bool { return n.keyParts != nil || n.valueParts != nil }

// KeyVaries and ValueVaries report whether entries with several keys or values find n.
func (n *Node) KeyVaries() bool   { return n.keyParts != nil }
func (n *Node) ValueVaries() bool { return n.valueParts != nil || n.Value == "" }

// Composite is the key, or key_value, with which envoyproxy/ratelimit names the node.
func (n *Node) Composite() string {
	if n.Value == "" {
		return n.Key
	}
	return n.Key + "_" + n.Value
}

func (n *Node) matches(key, value string) bool {
	if n.keyParts == nil && n.Key != key || n.keyParts != nil && !isLike(n.keyParts, key) {
		return false
	}
	return n.Value == "" || n.valueParts == nil && n.Value == value || n.valueParts != nil && isLike(n.valueParts, value)
}

// isLike reports whether text consists of parts with any text between them.
func isLike(parts []string, text string) bool {
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

func partsOf(text string) []string {
	if !strings.Contains(text, "*") {
		return nil
	}
	return strings.Split(text, "*")
}

// add makes child one of n's.
func (n *Node) add(child *Node) {
	child.Parent = n
	child.keyParts, child.valueParts = partsOf(child.Key), partsOf(child.Value)
	if child.Value == "" {
		if n.bare == nil {
			n.bare = map[string]*Node{}
		}
		n.bare[child.Key] = child
	} else {
		if n.exact == nil {
			n.exact = map[pair]*Node{}
		}
		n.exact[pair{child.Key, child.Value}] = child
	}
	child.order = n.children
	n.children++
	switch {
	case child.keyParts != nil:
		if n.wildKeys == nil {
			n.wildKeys = &patterns{}
		}
		n.wildKeys.add(child, child.keyParts)
	case child.valueParts != nil:
		if n.wildValues == nil {
			n.wildValues = map[string]*patterns{}
		}
		if n.wildValues[child.Key] == nil {
			n.wildValues[child.Key] = &patterns{}
		}
		n.wildValues[child.Key].add(child, child.valueParts)
	}
}

// Path has the nodes from the domain, which is not included, to n.
func (n *Node) Path() []*Node {
	var path []*Node
	for ; n.Parent != nil; n = n.Parent {
		path = append(path, n)
	}
	slices.Reverse(path)
	return path
}
