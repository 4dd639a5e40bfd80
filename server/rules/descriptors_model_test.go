package rules_test

import (
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// modelNode is a descriptor of a configuration, as its author writes it.
type modelNode struct {
	key, value                                    string
	limit                                         *modelLimit
	shadow, quota, detailed, valueToMetric, share bool
	children                                      []*modelNode
}

type modelLimit struct {
	amount    int64
	unit      string
	unlimited bool
	name      string
	replaces  []string
}

func (n *modelNode) composite() string {
	if n.value == "" {
		return n.key
	}
	return n.key + "_" + n.value
}

// found is what the specification says of one descriptor of a call.
type found struct {
	path     string // composites of the rule, joined by dots
	limit    *modelLimit
	count    string // the cache key without the window
	stat     string
	replaced bool
	node     *modelNode
}

// modelCall answers a call by the words of the specification: GetLimit, and what is dropped by replaces.
func modelCall(root *modelNode, call *rules.Descriptors) []found {
	all := make([]found, len(call.List))
	replaced := map[string]bool{}
	for i, d := range call.List {
		all[i] = modelFind(root, d.Entries)
		if l := all[i].limit; l != nil {
			for _, name := range l.replaces {
				replaced[name] = true
			}
		}
	}
	for i := range all {
		if l := all[i].limit; l != nil && !l.unlimited && l.name != "" && replaced[l.name] {
			all[i].replaced = true
		}
	}
	return all
}

func modelFind(root *modelNode, entries []rules.Entry) (f found) {
	level, path, count := root.children, []string{}, "d"
	statWithValues, stat, shared := "d", "d", false
	for i, e := range entries {
		var next *modelNode
		byPattern := false
		for _, n := range level {
			if n.composite() == e.Key+"_"+e.Value {
				next = n
			}
		}
		for _, n := range level {
			if next == nil && strings.Contains(n.composite(), "*") && like(n.composite(), e.Key+"_"+e.Value) {
				next, byPattern = n, true
			}
		}
		for _, n := range level {
			if next == nil && n.composite() == e.Key {
				next = n
			}
		}
		if next == nil {
			return found{}
		}
		path = append(path, next.composite())
		value, statValue := e.Value, next.value
		if next.valueToMetric {
			statValue = e.Value
		}
		if byPattern && next.share {
			value, statValue, shared = next.value, next.value, true
		}
		count += "|" + e.Key + "|" + value
		if stat += "." + e.Key; statValue != "" {
			stat += "_" + statValue
		}
		statWithValues += "." + e.Key + "_" + value
		if last := i == len(entries)-1; last && next.limit != nil {
			f = found{path: strings.Join(path, "."), limit: next.limit, count: count, stat: stat, node: next}
			if next.detailed {
				f.stat = statWithValues
			}
			if next.detailed && shared { // then values that are empty have no underscore
				f.stat = strings.TrimSuffix(strings.ReplaceAll(statWithValues, "_.", "."), "_")
			}
			return f
		}
		if len(next.children) == 0 {
			return found{}
		}
		level = next.children
	}
	return found{}
}

// like matches by the standard library, which the texts of this test allow.
func like(pattern, text string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", ":"), strings.ReplaceAll(text, "/", ":"))
	return ok && err == nil
}

func yamlOf(b *strings.Builder, indent string, nodes []*modelNode) {
	fmt.Fprintf(b, "%sdescriptors:\n", indent)
	for _, n := range nodes {
		fmt.Fprintf(b, "%s- key: %q\n", indent, n.key)
		field := func(name string, value any) { fmt.Fprintf(b, "%s  %s: %v\n", indent, name, value) }
		if n.value != "" {
			field("value", fmt.Sprintf("%q", n.value))
		}
		for name, on := range map[string]bool{"shadow_mode": n.shadow, "quota_mode": n.quota, "detailed_metric": n.detailed, "value_to_metric": n.valueToMetric, "share_threshold": n.share} {
			if on {
				field(name, "true")
			}
		}
		if l := n.limit; l != nil {
			var text []string
			if l.unlimited {
				text = append(text, "unlimited: true")
			} else {
				text = append(text, fmt.Sprintf("unit: %s, requests_per_unit: %d", l.unit, l.amount))
			}
			if l.name != "" {
				text = append(text, "name: "+l.name)
			}
			if len(l.replaces) > 0 {
				text = append(text, "replaces: [{name: "+strings.Join(l.replaces, "}, {name: ")+"}]")
			}
			field("rate_limit", "{"+strings.Join(text, ", ")+"}")
		}
		if len(n.children) > 0 {
			yamlOf(b, indent+"  ", n.children)
		}
	}
}

var (
	modelKeys   = []string{"a", "b", "c"}
	modelValues = []string{"x", "y", "xy", "yx", "xyx", "/x", ""}
	patterns    = []string{"x*", "*y", "x*y", "*", "x*x", "*y*", "/*"}
	modelUnits  = map[string]rules.Unit{"second": rules.Second, "minute": rules.Minute, "hour": rules.Hour, "day": rules.Day, "week": rules.Week, "month": rules.Month, "year": rules.Year}
)

func randomNodes(r *rand.Rand, depth int) (nodes []*modelNode) {
	seen := map[string]bool{}
	one := func(of int) bool { return r.IntN(of) == 0 }
	for range 1 + r.IntN(6) {
		n := &modelNode{key: modelKeys[r.IntN(len(modelKeys))]}
		switch r.IntN(3) {
		case 0:
			n.value = modelValues[r.IntN(len(modelValues))]
		case 1:
			n.value, n.share = patterns[r.IntN(len(patterns))], one(2)
		}
		if seen[n.composite()] {
			continue
		}
		seen[n.composite()] = true
		n.shadow, n.quota, n.detailed, n.valueToMetric = one(5), one(5), one(4), one(4)
		if one(2) || depth == 3 {
			names := []string{"one", "two", "three", ""}
			n.limit = &modelLimit{amount: int64(r.IntN(4)), unit: []string{"second", "minute", "hour", "day", "week", "month", "year"}[r.IntN(7)], unlimited: one(6), name: names[r.IntN(4)]}
			for _, name := range names[:3] {
				if one(6) && name != n.limit.name {
					n.limit.replaces = append(n.limit.replaces, name)
				}
			}
		}
		if depth < 3 && !one(3) {
			n.children = randomNodes(r, depth+1)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func randomCall(r *rand.Rand) *rules.Input {
	d := &rules.Descriptors{Domain: "d"}
	most := 4
	if r.IntN(10) == 0 {
		most = 30
	}
	for range 1 + r.IntN(most) {
		one := rules.Descriptor{Cost: int64(r.IntN(3)), GiveBack: r.IntN(6) == 0}
		for range 1 + r.IntN(3) {
			one.Entries = append(one.Entries, rules.Entry{Key: modelKeys[r.IntN(len(modelKeys))], Value: modelValues[r.IntN(len(modelValues))]})
		}
		d.List = append(d.List, one)
	}
	return &rules.Input{Descriptors: d}
}

// Random configurations and calls: each descriptor finds the rule, the limit, the name in the
// statistics and the count that the model finds. Two descriptors have one count here if they have one
// in the model. No key or value has an underscore; see TestUnderscores.
func TestDescriptorsAgreeWithModel(t *testing.T) {
	configs, withRule := 600, 0
	if testing.Short() {
		configs = 150
	}
	for seed := range uint64(configs) {
		r := rand.New(rand.NewPCG(seed, 1))
		root := &modelNode{children: randomNodes(r, 1)}
		var b strings.Builder
		b.WriteString("domain: d\n")
		yamlOf(&b, "", root.children)
		s := envoy(t, b.String())
		ours, theirs := map[string]string{}, map[string]string{} // counts by each other
		for range 60 {
			in := randomCall(r)
			var m rules.Plan
			if err := s.Asks(in, &m); err != nil {
				t.Fatal(err)
			}
			want := modelCall(root, in.Descriptors)
			for i, f := range want {
				if problem := compare(&m, i, &f, &in.Descriptors.List[i]); problem != "" {
					t.Fatalf("seed %d: %s\n%+v\n%s", seed, problem, in.Descriptors.List[i], b.String())
				}
				if f.limit == nil {
					continue
				}
				withRule++
				count := m.Descriptors[i].Rule.Name + " " + m.Descriptors[i].Key
				f.count = f.path + " " + f.count // theirs share counts between rules, ours do not
				if old, ok := ours[f.count]; ok && old != count {
					t.Fatalf("seed %d: %s is counted as %q and as %q", seed, f.count, old, count)
				}
				if old, ok := theirs[count]; ok && old != f.count {
					t.Fatalf("seed %d: %q and %q are both counted as %q", seed, old, f.count, count)
				}
				ours[f.count], theirs[count] = count, f.count
			}
			checkCallAsks(t, &m, in)
		}
	}
	if withRule < configs*10 {
		t.Errorf("only %d descriptors found a rule", withRule)
	}
}

func compare(m *rules.Plan, i int, want *found, one *rules.Descriptor) string {
	got := &m.Descriptors[i]
	if want.limit == nil {
		if got.Rule != nil || got.Ask >= 0 || got.Limit != nil {
			return fmt.Sprintf("finds %s, want nothing", got.Rule.Name)
		}
		return ""
	}
	if got.Rule == nil {
		return "finds nothing, want " + want.path
	}
	d := got.Rule.Descriptor
	var path []string
	for _, e := range d.Path {
		path = append(path, strings.TrimSuffix(e.Key+"_"+e.Value, "_"))
	}
	limited := !want.limit.unlimited && !want.replaced
	asks := limited && !(one.GiveBack && (one.Cost == 0 || want.limit.amount == 0))
	mode := rules.Enforce
	if want.node.shadow {
		mode = rules.Shadow
	}
	switch {
	case strings.Join(path, ".") != want.path:
		return fmt.Sprintf("finds %s, want %s", path, want.path)
	case d.Unlimited != want.limit.unlimited || d.Quota != want.node.quota || got.Rule.Mode != mode || got.Replaced != want.replaced:
		return fmt.Sprintf("rule %+v in mode %s, replaced %t; want %+v, replaced %t", d, got.Rule.Mode, got.Replaced, want.node, want.replaced)
	case (got.Limit != nil) != limited || (got.Ask >= 0) != asks || got.GiveBack != one.GiveBack:
		return fmt.Sprintf("limit %v, ask %d; want limited %t, asks %t", got.Limit, got.Ask, limited, asks)
	case limited && (got.Limit.Amount != want.limit.amount || got.Limit.Unit != modelUnits[want.limit.unit] || got.Limit.Name != want.limit.name):
		return fmt.Sprintf("limit %+v, want %+v", got.Limit, want.limit)
	case got.Stat != want.stat:
		return fmt.Sprintf("stat %s, want %s", got.Stat, want.stat)
	}
	return ""
}

// checkCallAsks holds that the asks of a call are those of its matches, each count once, with the sum of
// their costs, and that a Limiter accepts them.
func checkCallAsks(t *testing.T, m *rules.Plan, in *rules.Input) {
	t.Helper()
	costs := map[string]int64{}
	for i, match := range m.Descriptors {
		if match.Ask < 0 {
			continue
		}
		asks := m.Asks
		if match.GiveBack {
			asks = m.GiveBack
		} else if m.Rules[match.Ask] != match.Rule {
			t.Fatalf("descriptor %d has the ask of another rule", i)
		}
		a := &asks[match.Ask]
		if a.Key != match.Key || a.Limit.Spec().Name != match.Rule.Name {
			t.Fatalf("descriptor %d: ask %+v, match %+v", i, a, match)
		}
		cost := in.Descriptors.List[i].Cost
		if match.Limit.Amount == 0 && cost > 0 {
			cost += a.Limit.Capacity()
		}
		costs[fmt.Sprint(match.GiveBack, match.Ask)] += cost
	}
	for giveBack, asks := range map[bool][]stint.Ask{false: m.Asks, true: m.GiveBack} {
		seen := map[string]bool{}
		for i, a := range asks {
			if count := a.Limit.ID() + " " + a.Key; seen[count] {
				t.Fatalf("%s is asked twice", count)
			} else {
				seen[count] = true
			}
			if want := costs[fmt.Sprint(giveBack, i)]; a.Cost != want || a.Peek != (want == 0) {
				t.Fatalf("ask %+v: want cost %d", a, want)
			}
		}
	}
	if len(m.Asks) > 0 {
		if _, err := new(stint.Limiter).Take(t.Context(), &stint.Request{Asks: m.Asks}, nil); err != nil {
			t.Fatal(err)
		}
	}
}
