package rules

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// tierUse is where a rule names a tier. The tiers may come later, so it is checked at the end.
type tierUse struct {
	name *yamlnode.Node
	rule *Rule
	i    int // in rule.Tiers
}

func (p *parser) tiers(n *yamlnode.Node) {
	if !p.fewTiers(n, len(p.set.Tiers)) {
		return
	}
	p.Named(n, func(name, value *yamlnode.Node) {
		text, ok := p.tierName(name)
		e := p.condition(value)
		if ok && slices.Contains(p.set.Tiers, text) {
			p.Report(name, "tier %q: another file has it already", text)
		} else if ok {
			p.set.Tiers = append(p.set.Tiers, text)
			p.set.tiers = append(p.set.tiers, e)
		}
	})
}

func (p *parser) fewTiers(n *yamlnode.Node, already int) bool {
	if have := already + len(n.Content)/2; have > maxTiers {
		p.Report(n, "%d tiers: at most %d", have, maxTiers)
		return false
	}
	return true
}

func (p *parser) tierName(n *yamlnode.Node) (string, bool) {
	var text string
	before := p.Problems()
	p.Text(&text)(n)
	if p.Problems() > before {
		return "", false
	}
	if !IsName(text) {
		p.Report(n, "tier %q: must be 1 to 64 of A-Z a-z 0-9 _ . : / -", expr.Clip(text))
		return "", false
	}
	return text, true
}

// ruleTiers reads a rule's mapping of tiers. The rule's own limits are known.
func (p *parser) ruleTiers(n *yamlnode.Node, r *Rule) {
	if n == nil || !p.fewTiers(n, 0) {
		return
	}
	if r.watches {
		p.Report(n, "tiers give other limits, and the rule has none")
		return
	}
	p.Named(n, func(name, value *yamlnode.Node) {
		text, ok := p.tierName(name)
		limits := p.tierLimits(value, r, text)
		if ok {
			p.tierUses = append(p.tierUses, tierUse{name, r, len(r.Tiers)})
			r.Tiers = append(r.Tiers, Tier{Name: text, Limits: limits})
		}
	})
}

func (p *parser) tierLimits(n *yamlnode.Node, r *Rule, tier string) []*stint.Limit {
	var times int64
	before := p.Problems()
	found := p.Mapping(n, yamlnode.Fields{
		"times":  p.Int64(&times, 1, maxTimes),
		"limits": p.Skip, // below
	})
	list := found["limits"]
	switch {
	case found == nil || p.Problems() > before:
		return nil
	case found["times"] == nil && list == nil:
		p.Report(n, `the tier has neither times nor limits: give one, such as {times: 10} or {limits: ["100 per 1m"]}`)
		return nil
	case found["times"] != nil && list != nil:
		p.Report(n, "the tier has both times and limits: give one of them")
		return nil
	case list == nil:
		return p.multiplied(found["times"], r, tier, times)
	case len(list.Content) == 0 && list.Tag == "!!seq":
		p.Report(list, "the tier has no limits: for clients that no rule should limit, use the safelist")
		return nil
	}
	t := &Rule{Name: countedAs(r.Name, tier), debt: r.debt, costs: r.costs}
	p.limits(list, t)
	r.costs = t.costs
	if r.Shape && len(t.Limits) > 0 && !hasLeakyBucket(t.Limits) {
		p.Report(list, "the rule has shape, which needs a leaky_bucket, but the tier has no such limit")
	}
	return t.Limits
}

func (p *parser) multiplied(n *yamlnode.Node, r *Rule, tier string, times int64) []*stint.Limit {
	limits, err := renamed(r.Limits, countedAs(r.Name, tier))
	if err == nil {
		limits, err = multiply(limits, times)
	}
	if err != nil {
		p.Report(n, "%s", err)
	}
	return limits
}

func (p *parser) linkTiers() {
	for _, use := range p.tierUses {
		t := &use.rule.Tiers[use.i]
		if t.index = slices.Index(p.set.Tiers, t.Name); t.index < 0 {
			p.Report(use.name, "%s", unknown("tier", t.Name, p.set.Tiers))
		}
	}
}

// unknown says that the file has no such name, and lists its names if they are few.
func unknown(what, name string, names []string) string {
	text := "unknown " + what + " " + strconv.Quote(expr.Clip(name)) + ": "
	const most = 10
	switch near := spelling.Nearest(name, names); {
	case near != "":
		return text + "did you mean " + near + "?"
	case len(names) == 0:
		return text + "the file has no " + what + "s"
	case len(names) > most:
		return fmt.Sprintf("%sthe file has %d %ss, but none of that name", text, len(names), what)
	}
	return text + "the file has " + strings.Join(names, ", ")
}

// unprefixed is an error of package stint without its first word.
func unprefixed(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
