package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules/internal/descriptors"
)

const (
	// maxDescriptorRules bounds the rules of all files of Envoy's form together.
	maxDescriptorRules = 200_000
	// MaxEnvoyFile is the size of the longest file of Envoy's form, in bytes.
	MaxEnvoyFile = 32 << 20
)

// envoyFiles reads the files of Envoy's form into trees, and makes rules of their limits, which come
// after all others in the Set.
type envoyFiles struct {
	set     *Set
	loader  descriptors.Loader
	parsers map[*yamlnode.Reader]*parser
	full    bool // reported that there are too many
}

func (e *envoyFiles) load(p *parser, root *yamlnode.Node, merge bool) {
	if e.parsers == nil {
		e.parsers = map[*yamlnode.Reader]*parser{}
		e.loader.Each = e.rule
		e.loader.Useless = e.useless
	}
	e.parsers[p.Reader], e.loader.Merge = p, merge
	e.loader.Load(p.Reader, root)
}

func (e *envoyFiles) useless(r *yamlnode.Reader, name *yamlnode.Node) {
	e.parsers[r].found(codeMisplaced, r.Place(name), "%s has no effect here, nor in envoyproxy/ratelimit; move it to where it belongs, or remove it", name.Value)
}

// done adds the rules for overrides, one for each domain, and returns the trees.
func (e *envoyFiles) done() *descriptors.Forest {
	for _, tree := range e.loader.Domains() {
		d := &DescriptorRule{Domain: tree.Key, Stat: tree.Key, ChargeRefused: true, overrides: &overrideLimits{}}
		r := &Rule{Name: overridesName(tree.Key), Key: "limit of the request", keyGiven: true, Descriptor: d}
		e.add(tree, r)
	}
	return e.loader.Done()
}

// add gives n the rule r, whose name must be free. The rule of a node that is not sure has no name.
func (e *envoyFiles) add(n *descriptors.Node, r *Rule) {
	if n.Unsure {
		return
	}
	p := e.parsers[n.Reader]
	if first, ok := p.seen.names[r.Name]; ok {
		p.Report(n.At, "name %q: the rule %s has it already (%s)", r.Name, first.from(p.path), codeNameTwice)
		return
	}
	p.seen.names[r.Name] = place{p.path, n.At.Line}
	n.Rule = len(e.set.Rules)
	e.set.Rules = append(e.set.Rules, r)
	e.set.described++
}

// rule makes a rule of a descriptor with a limit.
func (e *envoyFiles) rule(n *descriptors.Node) {
	p := e.parsers[n.Reader]
	if e.set.described == maxDescriptorRules {
		if !e.full {
			p.Report(n.At, "more than %d descriptors with a rate_limit", maxDescriptorRules)
		}
		e.full = true
		return
	}
	d := descriptorRuleOf(n)
	r := &Rule{Name: descriptorName(d.Domain, d.Path), Key: d.keyText(), keyGiven: true, Descriptor: d}
	if n.Shadow {
		r.Mode = Shadow
	}
	if at := n.Fields["on_store_error"]; at != nil {
		yamlnode.Parsed(p.Reader, &r.OnStoreError, onErrors)(at)
	}
	if at := n.Fields["penalty"]; at != nil && p.penalty(at, r) {
		p.Report(fieldOf(at, "on_status"), "on_status: calls of Envoy's rate limit service have no status")
	}
	if d.Unlimited {
		for name, at := range n.Limit.Fields {
			p.Report(at, "%s has no effect where the limit is unlimited: remove it", name)
		}
	} else if l := p.descriptorLimit(n.Limit, r); l != nil {
		r.Limits = []*stint.Limit{l}
		r.hasBudget = IsBudget(l)
	}
	e.add(n, r)
}

func descriptorRuleOf(n *descriptors.Node) *DescriptorRule {
	d := &DescriptorRule{
		DescriptorLimit: DescriptorLimit{Name: n.Limit.Name, Amount: n.Limit.Amount, Unit: unitsByName[n.Limit.Unit], Times: 1},
		Unlimited:       n.Limit.Unlimited,
		Quota:           n.Quota,
		ChargeRefused:   n.Limit.Amount > 0 && !n.Limit.Unlimited,
		Replaces:        n.Limit.Replaces,
		Metadata:        n.Metadata,
		Detailed:        n.DetailedMetric,
	}
	path := n.Path()
	stat := make([]string, 0, len(path)+1)
	for at := n; ; at = at.Parent {
		if at.Parent == nil {
			d.Domain = at.Key
			break
		}
	}
	stat = append(stat, d.Domain)
	for _, at := range path {
		d.Path = append(d.Path, Entry{at.Key, at.Value})
		stat = append(stat, at.Composite())
		level := descriptorLevel{key: at.KeyVaries(), value: at.ValueVaries() && !at.ShareThreshold}
		level.detailed = at.ValueToMetric && level.value
		d.detailedPath = d.detailedPath || level.detailed
		level.shared = at.ShareThreshold
		d.levels = append(d.levels, level)
		for _, varies := range []bool{level.key, level.value} {
			if varies {
				d.parts++
			}
		}
	}
	d.Stat = strings.Join(stat, ".")
	return d
}

var unitsByName = map[string]Unit{"second": Second, "minute": Minute, "hour": Hour, "day": Day, "week": Week, "month": Month, "year": Year}

// descriptorLimit is the limit of r; nil, having reported why: there is none.
func (p *parser) descriptorLimit(l *descriptors.Limit, r *Rule) *stint.Limit {
	d := r.Descriptor
	s := stint.Spec{Name: r.Name, Algorithm: stint.FixedWindow, Amount: max(1, d.Amount), Period: time.Duration(d.Unit) * time.Second}
	var owed debt
	var zone string
	before := p.Problems()
	readers := map[string]func(*yamlnode.Node){
		"algorithm":      yamlnode.Parsed(p.Reader, (*algo.Kind)(&s.Algorithm), algo.ParseKind),
		"burst":          p.Int64(&s.Burst, 1, math.MaxInt64),
		"debt":           yamlnode.Parsed(p.Reader, &owed, parseDebt),
		"hold":           p.hold(&s.Hold),
		"time_zone":      p.Text(&zone),
		"charge_refused": p.Bool(&d.ChargeRefused),
	}
	for name, at := range l.Fields {
		readers[name](at)
	}
	if l.Wrong || p.Problems() > before {
		return nil
	}
	if d.Amount == 0 && l.Fields["burst"] != nil {
		p.Report(l.Fields["burst"], "burst: requests_per_unit is 0, so that nothing is allowed")
	}
	if s.Algorithm == stint.InFlight {
		p.Report(l.Fields["algorithm"], "algorithm in_flight: it limits requests at once and has no unit, and Envoy does not say when a request ends")
	}
	switch at := l.Fields["time_zone"]; {
	case at == nil:
	case s.Algorithm != stint.FixedWindow:
		p.Report(at, "time_zone: only a fixed_window can be one of the calendar, and the algorithm is %s", s.Algorithm)
	case d.Unit < Day:
		p.Report(at, "time_zone: windows of a %s are the same in all time zones; it is for day, week, month and year", l.Unit)
	default:
		s.Period = 0
		s.Calendar = stint.Calendar{Unit: calendarUnits[d.Unit], Zone: zone}
	}
	if p.Problems() > before {
		return nil
	}
	limit, err := stint.NewLimit(s)
	if err == nil {
		limit, err = owed.of(limit)
	}
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "limit: ")
		if zone, ok := strings.CutPrefix(text, "in "); ok {
			text = "time_zone " + zone
		}
		p.blame(l.At, l.Fields, text)
		return nil
	}
	return limit
}

var calendarUnits = map[Unit]stint.CalendarUnit{Day: stint.Day, Week: stint.Week, Month: stint.Month, Year: stint.Year}

// descriptorName is the name of a descriptor's rule: the domain and the path, as in
// shop/path:login/remote_address. Text that does not fit into a name is changed and cut, and a hash tells
// such names apart: only those have a double colon. Counts depend on it.
func descriptorName(domain string, path []Entry) string {
	var b strings.Builder
	plain := writePart(&b, domain)
	for _, e := range path {
		b.WriteByte('/')
		plain = writePart(&b, e.Key) && plain
		if e.Value != "" {
			b.WriteByte(':')
			plain = writePart(&b, e.Value) && plain
		}
	}
	if plain && b.Len() <= longestName {
		return b.String()
	}
	return hashedName(b.String(), domain, path)
}

// overridesName is the name of the rule for the overrides of a domain.
func overridesName(domain string) string {
	const suffix = "::overrides"
	var b strings.Builder
	if writePart(&b, domain) && b.Len()+len(suffix) <= longestName {
		return domain + suffix
	}
	return hashedName(b.String(), domain, nil)
}

const longestName = 64

// writePart writes a part of a name, and reports whether it is as it was.
func writePart(b *strings.Builder, part string) bool {
	plain := part != ""
	for _, c := range part {
		switch {
		case notInName(c):
			c, plain = '-', false
		case c == ':' || c == '/':
			plain = false
		}
		b.WriteRune(c)
	}
	return plain
}

func hashedName(readable, domain string, path []Entry) string {
	var all []byte
	add := func(text string) { all = append(binary.AppendUvarint(all, uint64(len(text))), text...) }
	add(domain)
	for _, e := range path {
		add(e.Key)
		add(e.Value)
	}
	sum := sha256.Sum256(all)
	suffix := "::" + hex.EncodeToString(sum[:6])
	return readable[:min(len(readable), longestName-len(suffix))] + suffix
}

// keyText is the rule's key, to be shown: the names of the entries whose values make it.
func (d *DescriptorRule) keyText() string {
	var names []string
	for i, level := range d.levels {
		if level.key {
			names = append(names, "key of "+d.Path[i].Key)
		}
		if level.value {
			names = append(names, d.Path[i].Key)
		}
	}
	switch len(names) {
	case 0:
		return fmt.Sprintf("%q", allCalls)
	case 1:
		return names[0]
	}
	return "[" + strings.Join(names, ", ") + "]"
}
