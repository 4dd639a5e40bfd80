package rules

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

func (p *parser) limits(n *yamlnode.Node, r *Rule) {
	if n == nil || !p.few(n, 0, maxLimits, "limits") {
		return
	}
	lines := map[string]int{}
	isList := p.Each(n, func(n *yamlnode.Node) {
		l := p.limit(n, r)
		if l == nil {
			return
		}
		if line, ok := lines[l.ID()]; ok {
			p.Report(n, "limit %q: counts the same as the one on line %d: limits of a rule must differ in algorithm, period, calendar or buckets", l.Terms(), line)
			return
		}
		lines[l.ID()] = n.Line
		r.Limits = append(r.Limits, l)
	})
	if isList && len(n.Content) == 0 {
		p.Report(n, "the rule has no limits: to switch it off, use mode: off")
	}
}

// limit reads a limit of r in either form. nil: it is not a limit, which was reported.
func (p *parser) limit(n *yamlnode.Node, r *Rule) *stint.Limit {
	if len(n.Content) > 0 {
		return p.limitFields(n, r)
	}
	text, ok := p.Scalar(n, `a limit, such as "100 per 1m" or {amount: 100, period: 1m}`)
	if !ok {
		return nil
	}
	l, err := limitNamed(text, r.Name)
	if err == nil {
		l, err = r.indebted(l)
	}
	if err != nil {
		p.Report(n, "%s", err)
		return nil
	}
	return l
}

func limitNamed(text, name string) (*stint.Limit, error) {
	l, err := stint.ParseLimit(text)
	if err != nil {
		return nil, err
	}
	if l.Spec().Name != "" {
		return nil, fmt.Errorf("limit %q: a rule's limits have the rule's name: write %q", expr.Clip(text), l.Terms())
	}
	return rename(l, name)
}

func (p *parser) limitFields(n *yamlnode.Node, r *Rule) *stint.Limit {
	s := stint.Spec{Name: r.Name}
	var buckets int64
	var owed debt
	var own *expr.Expression
	before := p.Problems()
	found := p.Mapping(n, yamlnode.Fields{
		"algorithm": yamlnode.Parsed(p.Reader, (*algo.Kind)(&s.Algorithm), algo.ParseKind),
		"amount":    p.Int64(&s.Amount, 0, stint.Unlimited-1),
		"period":    p.Period(&s.Period),
		"per":       yamlnode.Parsed(p.Reader, &s.Calendar.Unit, parsePer),
		"in":        yamlnode.Parsed(p.Reader, &s.Calendar.Zone, asWritten),
		"starts":    yamlnode.Parsed(p.Reader, &s.Calendar.Starts, asWritten),
		"burst":     p.Int64(&s.Burst, 1, math.MaxInt64),
		"buckets":   p.Int64(&buckets, 1, algo.MaxBuckets),
		"lease":     yamlnode.Parsed(p.Reader, &s.Lease, limittext.Lease),
		"hold":      p.hold(&s.Hold),
		"retry":     p.Period(&s.Retry),
		"debt":      yamlnode.Parsed(p.Reader, &owed, parseDebt),
		"cost":      func(n *yamlnode.Node) { own = p.cost(n, expr.Number, "cost") },
	})
	for _, field := range []string{"amount", "period"} {
		if found != nil && found[field] == nil && !(field == "period" && (s.Algorithm == stint.InFlight || found["per"] != nil)) {
			p.Report(n, "the limit has no %s", field)
		}
	}
	if found["per"] != nil && found["period"] != nil && s.Period == 0 && p.Problems() == before {
		p.Report(found["period"], "period 0: a limit per %s has no period", s.Calendar.Unit)
	}
	if found["per"] != nil && found["algorithm"] != nil && s.Algorithm != stint.FixedWindow {
		p.Report(found["algorithm"], "%s per %s: only fixed_window can follow the calendar", s.Algorithm, s.Calendar.Unit)
	}
	if p.Problems() > before {
		return nil
	}
	s.Buckets = int(buckets)
	l, err := stint.NewLimit(s)
	if err == nil {
		l, err = owed.of(l)
	}
	if err == nil {
		l, err = r.indebted(l)
	}
	if err != nil {
		p.blame(n, found, strings.TrimPrefix(err.Error(), "limit: "))
		return nil
	}
	if own == nil {
		return l
	}
	if IsBudget(l) {
		p.Report(found["cost"], "cost: a held limit takes the rule's cost; write it there, or move the limit to its own rule")
		return nil
	}
	if r.costs == nil {
		r.costs = map[string]*expr.Expression{}
	}
	r.costs[l.ID()] = own
	return l
}

func parseHold(text string) (time.Duration, error) {
	d, err := limittext.Period(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("hold %q: must be true, or a time such as 500ms, 30s or 5m", expr.Clip(text))
	}
	return d, nil
}

// parsePer reads the field per of a limit.
func parsePer(text string) (stint.CalendarUnit, error) {
	unit, err := stint.Internal(friend.Of{}).ParseCalendarUnit(text)
	if err != nil {
		if _, notTime := limittext.Period(text); notTime == nil {
			return 0, fmt.Errorf("per %q: must be day, week, month or year; for other times write period: %s", text, text)
		}
		return 0, fmt.Errorf("per %w", err)
	}
	return unit, nil
}

// hold reads the field hold of a limit: true, or a time.
func (p *parser) hold(to *time.Duration) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if n.Tag != "!!bool" {
			yamlnode.Parsed(p.Reader, to, parseHold)(n)
			return
		}
		var held bool
		if p.Bool(&held)(n); held {
			*to = stint.DefaultHold
		}
	}
}

// penalty reads the penalty of r and reports whether it has on_status, valid or not.
func (p *parser) penalty(n *yamlnode.Node, r *Rule) (onStatus bool) {
	if n == nil {
		return false
	}
	s := stint.PenaltySpec{Name: r.Name}
	before := p.Problems()
	found := p.Mapping(n, yamlnode.Fields{
		"warn_after":   p.Int64(&s.WarnAfter, 0, math.MaxInt64),
		"ban_after":    p.Int64(&s.BanAfter, 0, math.MaxInt64),
		"ban_for":      p.Period(&s.BanFor),
		"forget_after": p.Period(&s.ForgetAfter),
		"growth":       p.Int64(&s.Growth, 1, math.MaxInt64),
		"max_ban":      p.Period(&s.MaxBan),
		"on_status":    p.statuses(&r.OnStatus),
	})
	onStatus = found["on_status"] != nil
	if p.Problems() > before {
		return onStatus
	}
	penalty, err := stint.NewPenalty(s)
	if err != nil {
		p.blame(n, found, penaltyFields.Replace(strings.TrimPrefix(err.Error(), "penalty: ")))
		return onStatus
	}
	r.Penalty = penalty
	return onStatus
}

var penaltyFields = strings.NewReplacer("warn after", "warn_after", "ban after", "ban_after",
	"ban for", "ban_for", "forget after", "forget_after", "max ban", "max_ban")

// blame reports an error at the field whose name it begins with, if any.
func (p *parser) blame(n *yamlnode.Node, found map[string]*yamlnode.Node, text string) {
	name, _, _ := strings.Cut(text, " ")
	if field := found[name]; field != nil {
		n = field
	}
	p.Report(n, "%s", text)
}

const (
	maxStatuses             = 50
	leastStatus, mostStatus = 100, 599
)

func (p *parser) statuses(to *[]int) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		if !p.few(n, 0, maxStatuses, "statuses") {
			return
		}
		isList := p.Each(n, func(n *yamlnode.Node) {
			var status int64
			p.Int64(&status, leastStatus, mostStatus)(n)
			if status > 0 && slices.Contains(*to, int(status)) {
				p.Report(n, "status %d is given twice", status)
			}
			*to = append(*to, int(status))
		})
		if isList && len(n.Content) == 0 {
			p.Report(n, "on_status has no statuses: such as on_status: [401, 404]")
		}
	}
}
