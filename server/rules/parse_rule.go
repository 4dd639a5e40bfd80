package rules

import (
	"slices"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

func (p *parser) rule(n *yamlnode.Node) {
	r, before := &Rule{}, p.Problems()
	found := p.Mapping(n, p.costFields(r, yamlnode.Fields{
		"name":             p.name(&r.Name),
		"match":            p.match(r),
		"key":              p.key(r),
		"limits":           p.Skip, // read below, when the name is known
		"tiers":            p.Skip,
		"penalty":          p.Skip,
		"on_store_error":   yamlnode.Parsed(p.Reader, &r.OnStoreError, onErrors),
		"decision_timeout": p.Period(&r.DecisionTimeout),
		"mode":             yamlnode.Parsed(p.Reader, &r.Mode, ParseMode),
		"message":          p.Skip,
		"messages":         p.Skip,
		"refusal":          p.refusal(&r.Refusal),
		"shape":            p.Bool(&r.Shape),
		"default":          p.Bool(&r.Default),
		"preflights":       p.Bool(&r.Preflights),
	}))
	if found == nil {
		return
	}
	if found["decision_timeout"] != nil && r.DecisionTimeout <= 0 {
		p.Report(found["decision_timeout"], "decision_timeout must be more than 0")
	}
	mayWatch := p.penalty(found["penalty"], r)
	for _, field := range []struct{ name, hint string }{
		{"name", "name: each needs its own"},
		{"limits", `limits: such as limits: ["100 per 1m"]`},
	} {
		if found[field.name] == nil && !(field.name == "limits" && mayWatch) {
			p.Report(n, "the rule has no %s", field.hint)
		}
	}
	if r.keyGiven = found["key"] != nil; !r.keyGiven {
		r.Key = defaultKey
		r.key, _ = p.compiler.Compile(defaultKey, expr.Key)
	}
	p.limits(found["limits"], r)
	r.watches = found["limits"] == nil && mayWatch
	p.ruleTiers(found["tiers"], r)
	p.finishCosts(r, found, p.Problems() == before)
	p.messages(found["message"], found["messages"], r)
	if r.Shape && (r.watches || len(r.Limits) > 0) && !hasLeakyBucket(r.Limits) {
		p.Report(found["shape"], `shape delays requests under a leaky_bucket, but the rule has none, such as limits: ["10 per 1s leaky_bucket burst 50"], where up to 49 wait`)
	}
	p.findIn(r, found)
	r.Settings = settings(found)
	p.set.Rules = append(p.set.Rules, r)
	if r.Default {
		p.set.hasDefault = true
		p.seen.defaults = append(p.seen.defaults, defaultAt{r, p.Place(found["default"])})
	}
}

var onErrors = limittext.OneOf("on_store_error", stint.OnErrorLocal, stint.OnErrorAllow, stint.OnErrorDeny)

func hasLeakyBucket(limits []*stint.Limit) bool {
	return slices.ContainsFunc(limits, func(l *stint.Limit) bool { return l.Spec().Algorithm == stint.LeakyBucket })
}

func (p *parser) name(to *string) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		p.Text(to)(n)
		if *to == "" && n.Tag != "!!str" {
			return // reported
		}
		if !IsName(*to) {
			p.Report(n, "name %q: must be 1 to 64 of A-Z a-z 0-9 _ . : / -", expr.Clip(*to))
			*to = ""
			return
		}
		if first, ok := p.seen.names[*to]; ok {
			p.Report(n, "name %q: the rule %s has it already (%s)", *to, first.from(p.path), codeNameTwice)
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
		r.Match, r.match = strings.TrimSpace(n.Value), p.condition(n)
	}
}

func (p *parser) key(r *Rule) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		r.Key, r.key = strings.TrimSpace(n.Value), p.expression(n, expr.Key)
		if r.key == nil {
			return
		}
		if _, _, err := r.fixedKey(); err != nil {
			p.Report(n, "key: %s", err)
		}
	}
}
