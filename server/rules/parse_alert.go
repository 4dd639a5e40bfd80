package rules

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// These bound the alerts of a file.
const (
	maxAlerts     = 200
	maxMeasures   = 200 // of all alerts together, each with its windows
	maxLabelBytes = 500 // names and values of an alert's labels together
	maxAlertText  = 500 // bytes
	maxFor        = 24 * time.Hour
	leastWindow   = 10 * time.Second
	mostWindow    = time.Hour
	defaultWindow = time.Minute
)

const defaultSeverity = "warning"

// measure is a function of conditions. If you add one, measure it in server/internal/alerts, and describe it
// in measuresSay, from which docs/rules-reference.md is made.
type measure struct {
	args  []argument
	least int     // of args must be given
	most  float64 // that it can be
}

type argument uint8

const (
	ruleArgument argument = iota
	outcomeArgument
	quantileArgument
)

var measures = map[string]measure{
	"rate":              {[]argument{ruleArgument, outcomeArgument}, 0, math.Inf(1)},
	"block_rate":        {[]argument{ruleArgument}, 0, 1},
	"undecided_rate":    {nil, 0, 1},
	"fallback_rate":     {[]argument{ruleArgument}, 0, 1},
	"holds":             {[]argument{ruleArgument}, 0, math.Inf(1)},
	"hold_lost_rate":    {[]argument{ruleArgument}, 0, 1},
	"cost_unknown_rate": {[]argument{ruleArgument}, 0, 1},
	"store_down":        {nil, 0, math.Inf(1)},
	"store_calls":       {nil, 0, math.Inf(1)},
	"store_error_rate":  {nil, 0, 1},
	"bans":              {nil, 0, math.Inf(1)},
	"latency":           {[]argument{quantileArgument}, 1, math.Inf(1)},
	"store_latency":     {[]argument{quantileArgument}, 1, math.Inf(1)},
	"instances":         {nil, 0, math.Inf(1)},
}

// measuresOfHolds need a rule with held limits.
var measuresOfHolds = []string{"holds", "hold_lost_rate", "cost_unknown_rate"}

// alertLanguage is the language of conditions.
var alertLanguage = expr.NewFormulas(measureFunctions())

func measureFunctions() []expr.Function {
	var all []expr.Function
	for name, m := range measures {
		f := expr.Function{Name: name, Least: m.least}
		for _, a := range m.args {
			arg := expr.TextArg
			if a == quantileArgument {
				arg = expr.NumberArg
			}
			f.Args = append(f.Args, arg)
		}
		all = append(all, f)
	}
	return all
}

// alertOutcomes are the outcomes that rate knows. Those after shadow_refused do not belong to rules.
var alertOutcomes = slices.Concat(slices.Insert(kind.Words(kind.OfRules), 1, "refused"), []string{"shadow_refused"}, kind.Words(kind.OfNone))

// ofRules reports whether requests with this outcome count under a rule.
func ofRules(outcome string) bool {
	return slices.Index(alertOutcomes, outcome) <= slices.Index(alertOutcomes, "shadow_refused")
}

// alertUse is where an alert names a rule. The rules may come later, so it is checked at the
// end.
type alertUse struct {
	node   *yamlnode.Node
	offset int
	rule   string
	usage  *Usage // nil: rule is in a condition
	holds  bool   // the condition measures holds
}

func (p *parser) alerts(n *yamlnode.Node) {
	if p.few(n, len(p.set.Alerts), maxAlerts, "alerts") {
		p.Each(n, p.alert)
	}
}

func (p *parser) alert(n *yamlnode.Node) {
	a := Alert{Severity: defaultSeverity, Window: defaultWindow}
	found := p.Mapping(n, yamlnode.Fields{
		"name":     p.Text(&a.Name),
		"when":     p.when(&a),
		"for":      p.Period(&a.For),
		"window":   p.Period(&a.Window),
		"severity": p.Text(&a.Severity),
		"labels":   p.alertLabels(&a),
		"message":  p.alertText("message", &a.Message),
	})
	if found == nil {
		return
	}
	p.alertName(n, found["name"], a.Name)
	if found["when"] == nil {
		p.Report(n, `the alert has no when: such as when: block_rate("login") > 0.1`)
	}
	if !IsName(a.Severity) {
		p.Report(found["severity"], "severity %q: must be 1 to 64 of A-Z a-z 0-9 _ . : / -, such as warning or critical", expr.Clip(a.Severity))
	}
	if a.For < 0 || a.For > maxFor {
		p.Report(found["for"], "for must be 0 to %s", maxFor)
	}
	if a.Window < leastWindow || a.Window > mostWindow {
		p.Report(found["window"], "window must be from %s to %s", leastWindow, mostWindow)
	}
	for _, field := range [...]string{"for", "window"} {
		if a.Usage != nil && found[field] != nil {
			p.Report(found[field], "%s is for alerts about rates; an alert about usage reports a key once per period of the limit", field)
		}
	}
	p.findAlert(&a, found["when"])
	p.set.Alerts = append(p.set.Alerts, a)
}

func (p *parser) alertName(alert, n *yamlnode.Node, name string) {
	switch {
	case n == nil:
		p.Report(alert, "the alert has no name: each needs its own")
		return
	case name == "" && n.Tag != "!!str": // reported
		return
	case !IsName(name):
		p.Report(n, "name %q: must be 1 to 64 of A-Z a-z 0-9 _ . : / -", expr.Clip(name))
		return
	}
	if first, ok := p.seen.alerts[name]; ok {
		p.Report(n, "name %q: the alert %s has it already", name, first.from(p.path))
		return
	}
	p.seen.alerts[name] = place{p.path, n.Line}
}

func (p *parser) alertText(what string, to *string) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		p.Text(to)(n)
		if len(*to) > maxAlertText || !utf8.ValidString(*to) || strings.ContainsFunc(*to, unicode.IsControl) {
			p.Report(n, "%s: must be a line of at most %d bytes", what, maxAlertText)
		}
	}
}

var labelName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]{0,63}$`)

func (p *parser) alertLabels(a *Alert) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		a.Labels = map[string]string{}
		bytes := 0
		p.Named(n, func(name, value *yamlnode.Node) {
			var text string
			p.alertText("label", &text)(value)
			switch {
			case !labelName.MatchString(name.Value):
				p.Report(name, "label %q: must be a letter, then at most 63 of A-Z a-z 0-9 _", expr.Clip(name.Value))
			case slices.Contains(ownLabels, name.Value):
				p.Report(name, "label %q: is one that Stint sets itself", name.Value)
			}
			a.Labels[name.Value] = text
			bytes += len(name.Value) + len(text)
		})
		if bytes > maxLabelBytes {
			p.Report(n, "labels of %d bytes: at most %d", bytes, maxLabelBytes)
		}
	}
}

// ownLabels are the names of labels that are sent with each alert.
var ownLabels = []string{"alertname", "severity", "service", "rule", "key", "limit"}

var usageForm = regexp.MustCompile(`^usage\s*(>=?)\s*([0-9]+(?:\.[0-9]+)?)\s*%\s+of\s+(\S+)$`)

func (p *parser) when(a *Alert) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		text, ok := p.Scalar(n, "a condition")
		if !ok || p.compiler.Err() != nil {
			return
		}
		a.When = strings.TrimSpace(text)
		if isUsage(a.When) {
			p.usage(a, n)
			return
		}
		formula, problems := p.compiler.Formula(text, alertLanguage)
		for _, found := range problems {
			p.ReportWithin(n, found.Offset, "%s", found.Text)
		}
		if formula == nil {
			return
		}
		before := p.Problems()
		condition := p.alertCondition(n, formula, false)
		if p.Problems() > before {
			return
		}
		a.Condition = condition
		if p.seen.measures += len(condition.Measures()); p.seen.measures > maxMeasures {
			p.Report(n, "all alerts together measure more than %d numbers", maxMeasures)
		}
	}
}

// isUsage reports whether a condition is about keys.
func isUsage(when string) bool {
	rest, ok := strings.CutPrefix(when, "usage")
	return ok && (rest == "" || !strings.ContainsAny(rest[:1], "_(") && !unicode.IsLetter(rune(rest[0])))
}

func (p *parser) usage(a *Alert, n *yamlnode.Node) {
	parts := usageForm.FindStringSubmatch(a.When)
	if parts == nil {
		p.Report(n, "an alert about keys is written usage > 80%% of RULE")
		return
	}
	u := &Usage{Limit: parts[3], OrMore: parts[1] == ">="}
	u.Percent, _ = strconv.ParseFloat(parts[2], 64)
	if u.Percent <= 0 || u.Percent > 100 || u.Percent == 100 && !u.OrMore {
		p.Report(n, "usage %s %s%%: a key uses more than 0 %% and at most 100 %% of a limit", parts[1], parts[2])
		return
	}
	u.Rule, _, _ = strings.Cut(u.Limit, "@")
	a.Usage = u
	p.alertUses = append(p.alertUses, alertUse{node: n, offset: strings.LastIndex(n.Value, u.Limit), rule: u.Rule, usage: u})
}

// opposite has the negation of each comparison.
var opposite = map[string]string{"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}

// alertCondition makes a Condition of a formula, or of its negation.
func (p *parser) alertCondition(n *yamlnode.Node, f *expr.Formula, negated bool) *Condition {
	switch {
	case f.Op == "!":
		return p.alertCondition(n, f.Args[0], !negated)
	case f.Op == expr.NumberOp:
		return &Condition{Op: "number", Number: f.Number}
	case f.Op == "-" && len(f.Args) == 1:
		return &Condition{Op: "-", Args: []*Condition{{Op: "number"}, p.alertCondition(n, f.Args[0], false)}}
	}
	if _, ok := measures[f.Op]; ok {
		return p.measure(n, f)
	}
	op := f.Op
	if negated && opposite[op] != "" {
		op = opposite[op]
	}
	c := &Condition{Op: op}
	for _, arg := range f.Args {
		c.Args = append(c.Args, p.alertCondition(n, arg, negated))
	}
	return c
}

func (p *parser) measure(n *yamlnode.Node, f *expr.Formula) *Condition {
	m := Measure{Name: f.Op}
	for i, arg := range f.Args {
		switch kind := measures[f.Op].args[i]; {
		case kind == quantileArgument:
			if m.Quantile = arg.Number; arg.Op != expr.NumberOp || arg.Number <= 0 || arg.Number > 1 {
				p.ReportWithin(n, arg.Offset, "%s takes a quantile, more than 0 and at most 1, as in %s(0.99)", f.Op, f.Op)
			}
		case arg.Op != expr.TextOp:
			p.ReportWithin(n, arg.Offset, "%s takes the name of a rule in quotes, as in %s(%q)", f.Op, f.Op, "login")
		case kind == ruleArgument && arg.Text != anyRule:
			m.Rule = arg.Text
			p.alertUses = append(p.alertUses, alertUse{node: n, offset: arg.Offset, rule: arg.Text, holds: slices.Contains(measuresOfHolds, f.Op)})
		case kind == outcomeArgument:
			m.Outcome = arg.Text
			if why := wrongOutcome(m); why != "" {
				p.ReportWithin(n, arg.Offset, "%s", why)
			}
		}
	}
	return &Condition{Op: "measure", Measure: m}
}

// anyRule stands for all requests where a rule is named.
const anyRule = "*"

func wrongOutcome(m Measure) string {
	switch {
	case !slices.Contains(alertOutcomes, m.Outcome):
		return fmt.Sprintf("unknown outcome %q%s (outcomes: %s)", expr.Clip(m.Outcome), spelling.Hint(m.Outcome, alertOutcomes), strings.Join(alertOutcomes, ", "))
	case m.Rule != "" && !ofRules(m.Outcome):
		return fmt.Sprintf("no rule decides that a request is %s: write rate(%q, %q)", m.Outcome, anyRule, m.Outcome)
	}
	return ""
}

// linkAlerts checks the names of rules in alerts, when all rules are known.
func (p *parser) linkAlerts() {
	if len(p.alertUses) == 0 {
		return
	}
	byName := make(map[string]*Rule, len(p.set.Rules))
	names := make([]string, len(p.set.Rules))
	for i, r := range p.set.Rules {
		byName[r.Name], names[i] = r, r.Name
	}
	for _, use := range p.alertUses {
		r := byName[use.rule]
		switch {
		case r == nil:
			p.ReportWithin(use.node, use.offset, "%s", unknown("rule", use.rule, names))
		case use.usage != nil && len(r.Limits) == 0:
			p.ReportWithin(use.node, use.offset, "rule %q has no limits", r.Name)
		case use.holds && !r.Holds():
			p.ReportWithin(use.node, use.offset, "rule %q holds nothing: none of its limits has hold or is in_flight", r.Name)
		case use.usage != nil && use.usage.Limit != use.rule:
			p.linkTierOf(use, r)
		}
		if r != nil && r.Mode == Off {
			p.found(CodeAlert, p.PlaceWithin(use.node, use.offset), "rule %q has mode: off, so it is not measured", r.Name)
		}
	}
}

func (p *parser) linkTierOf(use alertUse, r *Rule) {
	_, tier, _ := strings.Cut(use.usage.Limit, "@")
	if !slices.Contains(p.set.Tiers, tier) {
		p.ReportWithin(use.node, use.offset, "%s", unknown("tier", tier, p.set.Tiers))
	}
}

// findAlert finds conditions that always or never hold.
func (p *parser) findAlert(a *Alert, when *yamlnode.Node) {
	if a.Condition == nil {
		return
	}
	if value, ok := a.Condition.fixed(); ok {
		p.found(CodeAlert, p.PlaceWithin(when, 0), "alert %q: its condition is always %t, whatever is measured; rates named *_rate are shares between 0 and 1", a.Name, value)
	}
}
