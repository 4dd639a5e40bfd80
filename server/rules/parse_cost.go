package rules

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// costFields are a rule's fields about costs.
func (p *parser) costFields(r *Rule, fields yamlnode.Fields) yamlnode.Fields {
	fields["cost"] = func(n *yamlnode.Node) {
		if r.cost = p.cost(n, expr.Number, "cost"); r.cost != nil {
			r.Cost, r.costIsAsked = strings.TrimSpace(n.Value), asksFor(r.cost)
		}
	}
	fields["cost_after"] = func(n *yamlnode.Node) {
		if r.after = p.cost(n, expr.NumberAfter, "cost_after"); r.after != nil {
			r.After = strings.TrimSpace(n.Value)
		}
	}
	fields["unsettled"] = yamlnode.Parsed(p.Reader, &r.Unsettled, ParseUnsettled)
	fields["unreadable_body"] = yamlnode.Parsed(p.Reader, &r.Unreadable, parseUnreadable)
	fields["unit"] = yamlnode.Parsed(p.Reader, &r.Unit, parseUnit)
	fields["tokens"] = p.tokens(&r.Tokens)
	fields["debt"] = yamlnode.Parsed(p.Reader, &r.debt, parseDebt)
	fields["max_hold"] = yamlnode.Parsed(p.Reader, &r.MaxHold, parseMaxHold)
	return fields
}

// cost reads an expression of a number that must not be negative.
func (p *parser) cost(n *yamlnode.Node, of *expr.Type, field string) *expr.Expression {
	if n.Tag == "!!int" {
		var fixed int64
		p.Int64(&fixed, 0, math.MaxInt64)(n)
		e, _ := p.compiler.Compile(strconv.FormatInt(fixed, 10), of)
		return e
	}
	if n.Tag == "!!float" {
		p.Report(n, "%s %s: must be a whole number", field, expr.Clip(n.Value))
		return nil
	}
	e := p.expression(n, of)
	if e == nil {
		return nil
	}
	if fixed, ok := e.FixedInt(); ok && fixed < 0 {
		p.Report(n, "%s %d: must not be negative", field, fixed)
	}
	return e
}

func parseUnit(text string) (string, error) {
	const longest = 32
	if text == "" || len(text) > longest || strings.ContainsFunc(text, func(c rune) bool {
		return c > unicode.MaxASCII || c != '_' && c != '-' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		return "", fmt.Errorf("unit %q: must be 1 to %d of A-Z a-z 0-9 _ -, such as tokens", expr.Clip(text), longest)
	}
	return text, nil
}

func parseMaxHold(text string) (int, error) {
	digits, ok := strings.CutSuffix(text, "%")
	if n, err := strconv.ParseUint(digits, 10, 8); ok && err == nil && n >= 1 && n <= 100 {
		return int(n), nil
	}
	return 0, fmt.Errorf("max_hold %q: must be a share from 1%% to 100%%, such as 50%%", expr.Clip(text))
}

// tokensAPI makes a reader of the API in a field.
func (p *parser) tokensAPI(field string, to *TokensAPI) func(*yamlnode.Node) {
	return yamlnode.Parsed(p.Reader, to, limittext.OneOf(field, OpenAI, Anthropic, Gemini))
}

// The bounds of the settings of tokens.
const (
	maxDefaultOutput = 1 << 40
	maxOutputWeight  = 1000
	maxBytesPerToken = 100
)

func (p *parser) tokens(to *Tokens) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		var api TokensAPI
		if len(n.Content) == 0 {
			p.tokensAPI("tokens", &api)(n)
			*to = NewTokens(api)
			return
		}
		t := NewTokens(OpenAI)
		found := p.Mapping(n, yamlnode.Fields{
			"api":             p.tokensAPI("api", &api),
			"default_output":  p.Int64(&t.DefaultOutput, 1, maxDefaultOutput),
			"output_weight":   p.Int64(&t.OutputWeight, 1, maxOutputWeight),
			"bytes_per_token": p.Int64(&t.BytesPerToken, 1, maxBytesPerToken),
			"include_usage":   p.Bool(&t.IncludeUsage),
		})
		if found == nil {
			return
		}
		if found["api"] == nil {
			p.Report(n, "tokens has no api: openai, anthropic or gemini")
		}
		t.API = api
		*to = t
	}
}

// finishCosts checks the rule's cost fields against its limits. Call it when all limits are known.
func (p *parser) finishCosts(r *Rule, found map[string]*yamlnode.Node, complete bool) {
	r.hasBudget = slices.ContainsFunc(r.Limits, IsBudget)
	for _, t := range r.Tiers {
		r.hasBudget = r.hasBudget || slices.ContainsFunc(t.Limits, IsBudget)
	}
	if r.Tokens.API != NoTokens && r.Unit == "" {
		r.Unit = "tokens"
	}
	if n := found["unreadable_body"]; n != nil && complete && !r.readsBody() {
		p.Report(n, "unreadable_body is for bodies that the rule cannot read, but the rule reads none")
	}
	if !r.hasBudget && complete {
		for _, field := range []string{"cost_after", "tokens", "unsettled", "debt", "max_hold"} {
			if n := found[field]; n != nil {
				p.Report(n, "%s is about budgets, but the rule has none: a budget is a held limit, as in 200000 per 1m fixed_window hold", field)
			}
		}
		return
	}
	if n := found["unsettled"]; n != nil && found["cost_after"] == nil && found["tokens"] == nil {
		p.Report(n, "unsettled is for a cost_after that finds nothing, but the rule has no cost_after")
	}
	p.checkFree(r, found)
}

// checkFree refuses budgets that never take anything: nothing is held, and no debt is allowed.
func (p *parser) checkFree(r *Rule, found map[string]*yamlnode.Node) {
	if r.cost == nil {
		return
	}
	if fixed, ok := r.cost.FixedInt(); !ok || fixed > 0 {
		return
	}
	for _, l := range r.Limits {
		if IsBudget(l) && l.Spec().Debt == stint.NoDebt {
			p.Report(found["cost"], "cost 0 and debt 0: requests would hold nothing of %s, and a cost that does not fit could not be charged; give one of them", l.Terms())
			return
		}
	}
}
