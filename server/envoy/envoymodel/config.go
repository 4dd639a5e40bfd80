// Package envoymodel is a model of Envoy's rate limit service, which tests compare with servers of it.
// It follows the service's documentation in the most obvious way, and shares no code with Stint's. It also
// makes random configurations and calls. It is for the tests of this repository only: it promises nothing.
package envoymodel

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Config is a file of descriptors.
type Config struct {
	Domain string
	Nodes  []*Node
}

// Node is a descriptor of a file.
type Node struct {
	Key, Value                                    string
	Limit                                         *Limit
	Shadow, Quota, Detailed, ValueToMetric, Share bool
	Metadata                                      map[string]any
	Children                                      []*Node
}

// Limit is the rate_limit of a Node.
type Limit struct {
	Amount    uint32
	Unit      string
	Unlimited bool
	Name      string
	Replaces  []string
}

func (n *Node) composite() string {
	if n.Value == "" {
		return n.Key
	}
	return n.Key + "_" + n.Value
}

// YAML is the file.
func (c *Config) YAML() string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\n", c.Domain)
	writeNodes(&b, "", c.Nodes)
	return b.String()
}

func writeNodes(b *strings.Builder, indent string, nodes []*Node) {
	fmt.Fprintf(b, "%sdescriptors:\n", indent)
	for _, n := range nodes {
		fmt.Fprintf(b, "%s- key: %q\n", indent, n.Key)
		field := func(name string, value any) { fmt.Fprintf(b, "%s  %s: %v\n", indent, name, value) }
		if n.Value != "" {
			field("value", fmt.Sprintf("%q", n.Value))
		}
		for _, flag := range []struct {
			name string
			on   bool
		}{
			{"shadow_mode", n.Shadow}, {"quota_mode", n.Quota}, {"detailed_metric", n.Detailed}, {"value_to_metric", n.ValueToMetric}, {"share_threshold", n.Share},
		} {
			if flag.on {
				field(flag.name, true)
			}
		}
		if n.Metadata != nil {
			text, err := json.Marshal(n.Metadata)
			if err != nil {
				panic(err)
			}
			field("metadata", string(text))
		}
		if n.Limit != nil {
			field("rate_limit", n.Limit.yaml())
		}
		if len(n.Children) > 0 {
			writeNodes(b, indent+"  ", n.Children)
		}
	}
}

func (l *Limit) yaml() string {
	fields := []string{fmt.Sprintf("unit: %s, requests_per_unit: %d", l.Unit, l.Amount)}
	if l.Unlimited {
		fields[0] = "unlimited: true"
	}
	if l.Name != "" {
		fields = append(fields, "name: "+l.Name)
	}
	if len(l.Replaces) > 0 {
		fields = append(fields, "replaces: [{name: "+strings.Join(l.Replaces, "}, {name: ")+"}]")
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// Options are what random configurations and calls may have.
type Options struct {
	// Patterns are values of descriptors with an asterisk.
	Patterns []string
	// Metadata of descriptors.
	Metadata bool
	// GiveBack allows descriptors with is_negative_hits, and Multiplier callers' limits with a
	// unit_multiplier.
	GiveBack, Multiplier bool
	// OwnLimits means that descriptors with a caller's limit have entries that no others have.
	OwnLimits bool
}

// Patterns with an asterisk anywhere, and those with one at the end.
var (
	AnyPatterns      = []string{"x*", "*y", "x*y", "*", "x*x", "*y*", "/*"}
	TrailingPatterns = []string{"x*", "xy*", "*", "/*"}
)

var (
	keys   = []string{"a", "b", "c"}
	values = []string{"x", "y", "xy", "yx", "xyx", "/x", ""}
	names  = []string{"one", "two", "three", ""}
	// No window of these units ends while a test runs, if await.Hour was called before.
	units   = []string{"hour", "day", "Week", "MONTH", "year"}
	amounts = []uint32{0, 1, 2, 3, 5, 8, 20, 1_000_000, 1<<32 - 1}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// Random returns a random configuration.
func Random(r *rand.Rand, domain string, o *Options) *Config {
	return &Config{Domain: domain, Nodes: randomNodes(r, 1, o)}
}

func randomNodes(r *rand.Rand, depth int, o *Options) (nodes []*Node) {
	seen := map[string]bool{}
	one := func(of int) bool { return r.IntN(of) == 0 }
	for range 2 + r.IntN(6) {
		n := &Node{Key: pick(r, keys)}
		switch r.IntN(3) {
		case 0:
			n.Value = pick(r, values)
		case 1:
			n.Value, n.Share = pick(r, o.Patterns), one(2)
		}
		if seen[n.composite()] {
			continue
		}
		seen[n.composite()] = true
		n.Shadow, n.Quota, n.Detailed, n.ValueToMetric = one(6), one(6), one(5), one(5)
		if !one(3) || depth == 3 {
			n.Limit = &Limit{Amount: pick(r, amounts), Unit: pick(r, units), Unlimited: one(8), Name: pick(r, names)}
			for _, name := range names[:3] {
				if one(8) && name != n.Limit.Name {
					n.Limit.Replaces = append(n.Limit.Replaces, name)
				}
			}
			if o.Metadata && one(2) {
				n.Metadata = map[string]any{pick(r, keys): pick(r, values), "in": map[string]any{pick(r, keys): true, pick(r, keys): float64(r.IntN(3))}}
			}
		}
		if depth < 3 && one(3) {
			n.Children = randomNodes(r, depth+1, o)
		}
		nodes = append(nodes, n)
	}
	return nodes
}
