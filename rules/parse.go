package rules

import (
	"math"
	"net/netip"
	"runtime"
	"strings"

	"cel.dev/cel-go/common/types"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/yamlnode"
)

// parser fills a Set from a file, after those before it. What is wrong it reports
// to its Reader and goes on, so that one reading tells of everything.
type parser struct {
	*yamlnode.Reader
	compiler
	set  *Set
	path string // of the file
	seen *seen
	// tierUses are where rules name tiers.
	tierUses []tierUse
}

func (p *parser) file(root *yamlnode.Node) {
	prefix := int64(p.set.IPv6Prefix)
	p.Mapping(root, yamlnode.Fields{
		"enabled":         p.once("enabled", p.Bool(&p.set.Enabled)),
		"trusted_proxies": p.proxies,
		"ipv6_prefix":     p.once("ipv6_prefix", p.Int64(&prefix, 1, 128)),
		"safelist":        p.safelist,
		"blocklist":       p.conditions(&p.set.blocklist.conditions),
		"tiers":           p.tiers,
		"repeatable":      p.repeatable,
		"rules":           p.rules,
		"server":          p.once("server", p.Skip),
	})
	p.set.IPv6Prefix = int(prefix)
}

// few reports whether the list n, after as many items as there are already, is
// short enough to be read.
func (p *parser) few(n *yamlnode.Node, already, most int, what string) bool {
	if total := already + len(n.Content); total > most {
		p.Report(n, "%d %s: at most %d", total, what, most)
		return false
	}
	return true
}

func (p *parser) proxies(n *yamlnode.Node) {
	if !p.few(n, len(p.set.TrustedProxies), MaxListed, "networks") {
		return
	}
	p.Each(n, func(n *yamlnode.Node) {
		var network netip.Prefix
		yamlnode.Parsed(p.Reader, &network, ParseNetwork)(n)
		p.set.TrustedProxies = append(p.set.TrustedProxies, network)
		p.seen.proxies = append(p.seen.proxies, p.Place(n))
	})
}

func (p *parser) conditions(to *[]*expression) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if !p.few(n, len(*to), MaxListed, "expressions") {
			return
		}
		p.Each(n, func(n *yamlnode.Node) {
			*to = append(*to, p.compile(n, condition))
		})
	}
}

// safelist is conditions, of which one that is always true is hardly meant.
func (p *parser) safelist(n *yamlnode.Node) {
	all := &p.set.safelist.conditions
	before := len(*all)
	p.conditions(all)(n)
	for i, e := range (*all)[before:] {
		if e != nil && e.always {
			p.found(CodeNeverMatches, p.Place(n.Content[i]), "this is always true, so that no rule ever applies: to switch limits off, use enabled: false")
		}
	}
}

func (p *parser) rules(n *yamlnode.Node) {
	if p.few(n, len(p.set.Rules), MaxRules, "rules") {
		p.Each(n, func(n *yamlnode.Node) {
			p.rule(n)
			// A thousand of them take a processor for some 60 ms. Where requests wait
			// for that one, they need not for 10 ms, which is when Go takes turns.
			runtime.Gosched()
		})
	}
}

func (p *parser) rule(n *yamlnode.Node) {
	r := &Rule{}
	found := p.Mapping(n, yamlnode.Fields{
		"name":             p.name(&r.Name),
		"match":            p.match(r),
		"key":              p.key(r),
		"cost":             p.cost(r),
		"limits":           p.Skip, // below, when the name is known
		"tiers":            p.Skip,
		"penalty":          p.Skip,
		"on_store_error":   yamlnode.Parsed(p.Reader, &r.OnStoreError, stint.ParseOnError),
		"decision_timeout": p.Period(&r.DecisionTimeout),
		"mode":             yamlnode.Parsed(p.Reader, &r.Mode, ParseMode),
		"message":          p.Skip,
		"messages":         p.Skip,
		"shape":            p.Bool(&r.Shape),
		"default":          p.Bool(&r.Default),
	})
	if found == nil {
		return
	}
	if found["decision_timeout"] != nil && r.DecisionTimeout <= 0 {
		p.Report(found["decision_timeout"], "decision_timeout must be more than 0")
	}
	mayWatch := p.penalty(found["penalty"], r)
	for _, field := range []struct{ name, hint string }{
		{"name", "name: it tells rules apart"},
		{"limits", `limits: such as limits: ["100 per 1m"]`},
	} {
		if found[field.name] == nil && !(field.name == "limits" && mayWatch) {
			p.Report(n, "the rule has no %s", field.hint)
		}
	}
	if r.keyGiven = found["key"] != nil; !r.keyGiven {
		r.Key = DefaultKey
		r.key, _ = p.check(DefaultKey, subject)
	}
	p.limits(found["limits"], r)
	r.watches = found["limits"] == nil && mayWatch
	p.ruleTiers(found["tiers"], r)
	p.messages(found["message"], found["messages"], r)
	if r.Shape && (r.watches || len(r.Limits) > 0) && !hasLeakyBucket(r.Limits) {
		p.Report(found["shape"], "shape holds requests for a leaky_bucket, and the rule has no such limit")
	}
	p.findIn(r, found)
	p.set.Rules = append(p.set.Rules, r)
	p.set.hasDefault = p.set.hasDefault || r.Default
}

func hasLeakyBucket(limits []*stint.Limit) bool {
	for _, l := range limits {
		if l.Spec().Algorithm == stint.LeakyBucket {
			return true
		}
	}
	return false
}

func (p *parser) name(to *string) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		p.Text(to)(n)
		if *to == "" && n.Tag != "!!str" {
			return // reported
		}
		if !IsName(*to) {
			p.Report(n, "name %q: must be 1 to 64 of A-Z a-z 0-9 _ . : / -", clip(*to))
			*to = ""
			return
		}
		if first, ok := p.seen.names[*to]; ok {
			p.Report(n, "name %q: the rule %s has it already (%s)", *to, first.from(p.path), CodeNameTwice)
			return
		}
		p.seen.names[*to] = place{p.path, n.Line}
	}
}

// IsName reports whether text can name a rule, a tier or a route: 1 to 64 of A-Z a-z 0-9
// _ . : / -.
func IsName(text string) bool {
	return len(text) >= 1 && len(text) <= 64 && !strings.ContainsFunc(text, notInName)
}

func notInName(c rune) bool {
	return !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.ContainsRune("_.:/-", c))
}

func (p *parser) match(r *Rule) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		r.Match, r.match = strings.TrimSpace(n.Value), p.compile(n, condition)
	}
}

func (p *parser) key(r *Rule) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		r.Key, r.key = strings.TrimSpace(n.Value), p.compile(n, subject)
		if r.key != nil && r.key.constant != nil {
			if _, _, err := keyOf(r.key.constant); err != nil {
				p.Report(n, "key: %s", err)
			}
		}
	}
}

func (p *parser) cost(r *Rule) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		r.Cost = strings.TrimSpace(n.Value)
		if n.Tag == "!!int" {
			var fixed int64
			p.Int64(&fixed, 0, math.MaxInt64)(n)
			r.cost = &expression{constant: types.Int(fixed)}
			return
		}
		r.cost = p.compile(n, number)
		if r.cost == nil || r.cost.constant == nil {
			return
		}
		if fixed := r.cost.constant.(types.Int); fixed < 0 {
			p.Report(n, "cost %d: must not be negative", fixed)
		}
	}
}
