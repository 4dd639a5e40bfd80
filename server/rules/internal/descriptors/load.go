package descriptors

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/internal/yamlnode"
)

// theirs are the field names of envoyproxy/ratelimit, which it accepts in any mapping, and ours are Stint's,
// of a descriptor and of a rate_limit.
var (
	theirs = []string{"domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited",
		"shadow_mode", "quota_mode", "name", "replaces", "detailed_metric", "value_to_metric", "share_threshold", "metadata"}
	oursOfDescriptor = []string{"penalty", "on_store_error"}
	oursOfLimit      = []string{"algorithm", "burst", "debt", "hold", "time_zone", "charge_refused"}
	known            = slices.Concat(theirs, oursOfDescriptor, oursOfLimit)
)

// Units are the units of time of a rate_limit.
var Units = []string{"second", "minute", "hour", "day", "week", "month", "year"}

// Loader reads files into a Forest.
type Loader struct {
	Forest
	// Merge lets several files have one domain.
	Merge bool
	// Each is called for each descriptor with a limit, in the order of the files, and Useless for the name of
	// each field without effect in its place.
	Each    func(*Node)
	Useless func(r *yamlnode.Reader, name *yamlnode.Node)

	seen map[place]bool
}

// place is a composite key under a node.
type place struct {
	parent    *Node
	composite string
}

// Load adds a file. It reports problems to r: in the words of envoyproxy/ratelimit, except for Stint's own
// fields.
func (l *Loader) Load(r *yamlnode.Reader, root *yamlnode.Node) {
	if root == nil {
		return
	}
	if root.Tag == "!!null" {
		r.Report(root, "config file cannot have empty domain")
		return
	}
	f := &file{Reader: r, loader: l, wrong: map[*yamlnode.Node]bool{}}
	if !f.checkNames(root) {
		return
	}
	if l.domains == nil {
		l.domains, l.seen = map[string]*Node{}, map[place]bool{}
	}
	fields, sure := f.fields(root, "domain", "descriptors")
	tree := f.tree(root, fields["domain"], sure)
	f.descriptors(fields["descriptors"], tree, clip(tree.Key)+".")
}

// tree is the domain of a file. If the domain has an error, the tree is not added to the forest: its
// descriptors are read for their errors only.
func (f *file) tree(root, at *yamlnode.Node, sure bool) *Node {
	l := f.loader
	tree := &Node{At: root, Reader: f.Reader, Rule: -1}
	f.text(at, &tree.Key)
	first := l.domains[tree.Key]
	switch {
	case tree.Key == "":
		f.missing(root, at, sure, "config file cannot have empty domain")
		tree.Unsure = true
	case first == nil:
		l.domains[tree.Key] = tree
		l.order = append(l.order, tree)
	case l.Merge:
		return first
	default:
		f.Report(at, "duplicate domain '%s' in config file", clip(tree.Key))
		tree.Unsure = true
	}
	return tree
}

// missing reports that the field at of the mapping n is missing or empty, unless an earlier error may be the
// cause: of the field itself or, if not sure, of a name in n.
func (f *file) missing(n, at *yamlnode.Node, sure bool, text string) {
	switch {
	case at == nil && sure:
		f.Report(n, "%s", text)
	case at != nil && !f.wrong[at]:
		f.Report(at, "%s", text)
	}
}

// Done drops data for loading only.
func (l *Loader) Done() *Forest {
	for _, tree := range l.order {
		tree.done()
	}
	return &Forest{l.domains, l.order}
}

func (n *Node) done() {
	n.Fields, n.At, n.Reader = nil, nil, nil
	if n.Limit != nil {
		n.Limit.Fields, n.Limit.At = nil, nil
	}
	for _, child := range n.exact {
		child.done()
	}
	for _, child := range n.bare {
		child.done()
	}
}

type file struct {
	*yamlnode.Reader
	loader *Loader
	wrong  map[*yamlnode.Node]bool // an error was reported there
}

// Report records a problem at n.
func (f *file) Report(n *yamlnode.Node, format string, args ...any) {
	f.wrong[n] = true
	f.Reader.Report(n, format, args...)
}

// checkNames checks names and types in all mappings under n, as envoyproxy/ratelimit does before it
// interprets them. It returns false if n is not a mapping.
func (f *file) checkNames(n *yamlnode.Node) bool {
	if n.Kind != yaml.MappingNode {
		f.Report(n, "error loading config file: want a mapping with a domain and descriptors")
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		switch {
		case name.Kind != yaml.ScalarNode || name.Tag != "!!str":
			f.Report(name, "config error, key is not of type string: %s", clip(name.Value))
		case !slices.Contains(known, name.Value):
			f.Report(name, "config error, unknown key '%s'%s", clip(name.Value), spelling.Hint(name.Value, known))
		case name.Value == "metadata" || name.Value == "penalty": // read in other ways
		case value.Kind == yaml.SequenceNode:
			for _, item := range value.Content {
				if item.Kind != yaml.MappingNode {
					f.wrong[value] = true // even if it must not be a list
					f.Report(item, "config error, yaml file contains list of type other than map: %s", clip(cmp.Or(item.Value, "a list or nothing")))
					continue
				}
				f.checkNames(item)
			}
		case value.Kind == yaml.MappingNode:
			f.checkNames(value)
		case value.Tag == "!!float" || value.Tag == "!!int" && !isInt(value.Value):
			f.Report(value, "error checking config: %s: %s is no whole number of 64 bits; quote it if it is text", name.Value, clip(value.Value))
		}
	}
	return true
}

// fields returns the values of a mapping by name. Names other than allowed have no effect there. It is not
// sure if a name has an error: that may be a missing field, misspelled.
func (f *file) fields(n *yamlnode.Node, allowed ...string) (found map[string]*yamlnode.Node, sure bool) {
	found, sure = make(map[string]*yamlnode.Node, len(n.Content)/2), true
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		if f.wrong[name] {
			sure = false
			continue
		}
		if found[name.Value] != nil {
			f.Report(name, "field %q is given twice: first on line %d", name.Value, found[name.Value].Line)
		}
		found[name.Value] = n.Content[i+1]
		switch {
		case slices.Contains(allowed, name.Value):
		case slices.Contains(oursOfLimit, name.Value):
			f.Report(name, "%s belongs in a rate_limit", name.Value)
		case slices.Contains(oursOfDescriptor, name.Value):
			f.Report(name, "%s belongs beside a rate_limit, not into it", name.Value)
		default:
			f.loader.Useless(f.Reader, name)
		}
	}
	return found, sure
}

var (
	ofDescriptor = append([]string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode",
		"detailed_metric", "value_to_metric", "share_threshold", "metadata"}, oursOfDescriptor...)
	ofLimit = append([]string{"unit", "requests_per_unit", "unlimited", "name", "replaces"}, oursOfLimit...)
)

func (f *file) descriptors(list *yamlnode.Node, parent *Node, path string) {
	f.each(list, "descriptors", func(n *yamlnode.Node) { f.descriptor(n, parent, path) })
}

// each calls read with each mapping of a list; not at all if n is missing or null.
func (f *file) each(n *yamlnode.Node, name string, read func(*yamlnode.Node)) {
	switch {
	case n == nil || n.Tag == "!!null":
	case n.Kind != yaml.SequenceNode:
		if !f.wrong[n] {
			f.Report(n, "error loading config file: %s must be a list", name)
		}
	default:
		for _, item := range n.Content {
			if item.Kind == yaml.MappingNode { // else checkNames reported it
				read(item)
			}
		}
	}
}

func (f *file) descriptor(n *yamlnode.Node, parent *Node, path string) {
	fields, sure := f.fields(n, ofDescriptor...)
	d := &Node{At: n, Reader: f.Reader, Rule: -1, Fields: only(fields, oursOfDescriptor)}
	f.text(fields["key"], &d.Key)
	f.text(fields["value"], &d.Value)
	f.flag(fields["shadow_mode"], &d.Shadow)
	f.flag(fields["quota_mode"], &d.Quota)
	f.flag(fields["detailed_metric"], &d.DetailedMetric)
	f.flag(fields["value_to_metric"], &d.ValueToMetric)
	f.flag(fields["share_threshold"], &d.ShareThreshold)
	path += clip(d.Composite())
	here := place{parent, d.Composite()}
	plain := sure && !f.wrong[fields["key"]] && !f.wrong[fields["value"]]
	d.Unsure = parent.Unsure || d.Key == "" || !plain
	switch {
	case d.Key == "":
		f.missing(n, fields["key"], sure, "descriptor has empty key")
	case !plain:
	case f.loader.seen[here]:
		f.Report(n, "duplicate descriptor composite key '%s'", clip(path))
		d.Unsure = true
	default:
		f.loader.seen[here] = true
	}
	parent.add(d)
	if d.ShareThreshold && !d.IsPattern() && plain {
		f.Report(fields["share_threshold"], "share_threshold can only be used with wildcard values (containing '*'), but found key '%s'", clip(d.Composite()))
	}
	f.metadata(fields["metadata"], d)
	if limit := fields["rate_limit"]; limit != nil && limit.Tag != "!!null" {
		d.Limit = f.limit(limit)
		f.loader.Each(d)
	} else if sure {
		f.unlimited(n)
	}
	f.descriptors(fields["descriptors"], d, path+".")
}

// unlimited looks for fields that need a rate_limit, which n does not have.
func (f *file) unlimited(n *yamlnode.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch name := n.Content[i]; name.Value {
		case "shadow_mode", "quota_mode", "detailed_metric", "metadata":
			f.loader.Useless(f.Reader, name)
		case "penalty", "on_store_error":
			f.Report(name, "%s belongs beside a rate_limit, and the descriptor has none", name.Value)
		}
	}
}

func only(fields map[string]*yamlnode.Node, names []string) map[string]*yamlnode.Node {
	var found map[string]*yamlnode.Node
	for _, name := range names {
		if n := fields[name]; n != nil {
			if found == nil {
				found = map[string]*yamlnode.Node{}
			}
			found[name] = n
		}
	}
	return found
}

func (f *file) limit(n *yamlnode.Node) *Limit {
	l := &Limit{At: n}
	if n.Kind != yaml.MappingNode {
		l.Wrong = true
		if !f.wrong[n] {
			f.Report(n, "error loading config file: rate_limit must be a mapping")
		}
		return l
	}
	before := f.Problems()
	fields, sure := f.fields(n, ofLimit...)
	l.Fields = only(fields, oursOfLimit)
	var unit string
	f.text(fields["unit"], &unit)
	f.amount(fields["requests_per_unit"], &l.Amount)
	f.flag(fields["unlimited"], &l.Unlimited)
	f.text(fields["name"], &l.Name)
	l.Unit = strings.ToLower(unit)
	switch valid := slices.Contains(Units, l.Unit); {
	case valid && l.Unlimited:
		f.Report(fields["unit"], "should not specify rate limit unit when unlimited")
	case !valid && !l.Unlimited && !f.wrong[fields["unlimited"]]:
		f.missing(n, fields["unit"], sure, fmt.Sprintf("invalid rate limit unit '%s'", clip(unit)))
	case !valid:
		l.Unit = ""
	}
	f.each(fields["replaces"], "replaces", func(n *yamlnode.Node) {
		var name string
		fields, sure := f.fields(n, "name")
		f.text(fields["name"], &name)
		switch {
		case name == "" && sure && !f.wrong[fields["name"]]:
			f.Report(n, "should not have an empty replaces entry")
		case name != "" && name == l.Name:
			f.Report(n, "replaces should not contain name of same descriptor")
		}
		l.Replaces = append(l.Replaces, name)
	})
	l.Wrong = !sure || f.Problems() > before
	return l
}

// text reads text. Numbers and bools are text, too.
func (f *file) text(n *yamlnode.Node, to *string) {
	switch {
	case n == nil || n.Tag == "!!null" || f.wrong[n]:
	case n.Kind != yaml.ScalarNode:
		f.Report(n, "error loading config file: want text")
	default:
		*to = n.Value
	}
}

// bools are the booleans of YAML 1.1.
var bools = map[string]bool{"true": true, "yes": true, "y": true, "on": true, "false": false, "no": false, "n": false, "off": false}

func (f *file) flag(n *yamlnode.Node, to *bool) {
	if n == nil || n.Tag == "!!null" || f.wrong[n] {
		return
	}
	value, ok := bools[strings.ToLower(n.Value)]
	if n.Kind != yaml.ScalarNode || !ok || n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		f.Report(n, "error loading config file: want true or false, have %q", clip(n.Value))
		return
	}
	*to = value
}

func isInt(text string) bool {
	_, err := parseInt(text)
	return err == nil
}

// parseInt reads a whole number as YAML 1.1 has it.
func parseInt(text string) (int64, error) {
	return strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 0, 64)
}

func (f *file) amount(n *yamlnode.Node, to *int64) {
	if n == nil || n.Tag == "!!null" || f.wrong[n] {
		return
	}
	i, err := parseInt(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil || i < 0 || i > math.MaxUint32 {
		f.Report(n, "error loading config file: requests_per_unit: want a whole number from 0 to %d, have %q", uint32(math.MaxUint32), clip(n.Value))
		return
	}
	*to = i
}

// metadata reads any mapping.
func (f *file) metadata(n *yamlnode.Node, d *Node) {
	if n == nil || n.Tag == "!!null" || f.wrong[n] {
		return
	}
	if n.Kind != yaml.MappingNode {
		f.Report(n, "error loading config file: metadata must be a mapping")
		return
	}
	value, ok := f.anything(n)
	if m, isMap := value.(map[string]any); ok && isMap && len(m) > 0 {
		d.Metadata = m
	}
}

// anything returns the value of n as encoding/json would decode it.
func (f *file) anything(n *yamlnode.Node) (any, bool) {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			value, ok := f.anything(n.Content[i+1])
			if !ok {
				return nil, false
			}
			if n.Content[i].Kind != yaml.ScalarNode {
				f.Report(n.Content[i], "error parsing metadata: a key must be text")
				return nil, false
			}
			m[n.Content[i].Value] = value
		}
		return m, true
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			var ok bool
			if list[i], ok = f.anything(item); !ok {
				return nil, false
			}
		}
		return list, true
	}
	switch n.Tag {
	case "!!null":
		return nil, true
	case "!!bool":
		return strings.EqualFold(n.Value, "true"), true
	case "!!int":
		if i, err := parseInt(n.Value); err == nil {
			return float64(i), true
		}
		fallthrough
	case "!!float":
		var x float64
		if err := n.Decode(&x); err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			f.Report(n, "error parsing metadata: %s is no number that JSON has", clip(n.Value))
			return nil, false
		}
		return x, true
	}
	return n.Value, true
}

// clip shortens a text of a file for a message.
func clip(text string) string {
	const longest = 200
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return strings.Trim(quoted, `"`)
	}
	return text
}
