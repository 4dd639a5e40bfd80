package rules

import (
	"math"
	"strings"
	"time"

	"github.com/stintdev/stint"
)

// Alert is an alert of a rules file. It never changes. It is about numbers that a server
// measures (Condition), or about single keys (Usage).
type Alert struct {
	// Name is unique in its Set: 1 to 64 letters, digits and any of _ . : / -.
	Name string
	// When is the condition as written, to be shown.
	When string
	// Condition is when the alert fires; nil: Usage is given.
	Condition *Condition
	// Usage is which keys the alert is about; nil: Condition is given.
	Usage *Usage
	// For is how long Condition must hold before the alert fires; 0: it fires at once.
	For time.Duration
	// Window is the time over which Condition is measured: 10 s to 1 h, by default 1 m.
	Window time.Duration
	// Severity is "warning" unless the file says otherwise.
	Severity string
	// Labels are sent with the alert; nil: none.
	Labels map[string]string
	// Message is a text for people; empty: none.
	Message string
}

// Measured is the left side of the first comparison in When, as written; Condition.Left is its value. It is
// empty for an alert about keys.
func (a *Alert) Measured() string {
	if a.Condition == nil {
		return ""
	}
	quoted := false
	end := strings.IndexFunc(a.When, func(c rune) bool {
		if c == '"' || c == '\'' {
			quoted = !quoted
		}
		return !quoted && strings.ContainsRune("<>=!", c)
	})
	left := strings.TrimSpace(a.When[:max(0, end)])
	for strings.Count(left, "(") > strings.Count(left, ")") { // of the whole condition
		left = strings.TrimSpace(left[1:])
	}
	return left
}

// Usage is the condition of an alert about keys. A key that meets it is reported once in a
// period of the limit.
type Usage struct {
	// Limit is the name of a rule, for all its limits including those of tiers, or RULE@TIER for the limits
	// of one tier.
	Limit string
	// Rule is the rule of Limit.
	Rule string
	// Percent is how much of the limit a key has used, more than 0 and at most 100. OrMore
	// is true for >=.
	Percent float64
	OrMore  bool
}

// Of reports whether u is about a limit.
func (u *Usage) Of(l *stint.Limit) bool {
	name := l.Spec().Name
	return name == u.Limit || u.Limit == u.Rule && strings.HasPrefix(name, u.Rule+"@")
}

// UsedOf returns how many units of a limit a key uses by a decision. For an in-flight limit these are the
// held units. Under other limits, held units do not count: they are an estimate, and may be returned.
func UsedOf(l *stint.Limit, d *stint.Decision) int64 {
	if l.Spec().Algorithm == stint.InFlight {
		return d.Held
	}
	return max(0, l.Capacity()-d.Remaining-d.Held)
}

// Exceeded reports whether that many used units of a limit's capacity exceed u.
func (u *Usage) Exceeded(capacity, units int64) bool {
	if capacity <= 0 {
		return false
	}
	used, most := float64(units)*100, u.Percent*float64(capacity)
	return used > most || u.OrMore && used == most
}

// Condition is a condition of an alert, or a part of one: a tree. It has no negation, because
// Parse moves it into the comparisons.
type Condition struct {
	// Op is "&&" or "||", with two Args that are conditions; "<", "<=", ">", ">=", "==" or
	// "!=", with two that are numbers; "+", "-", "*" or "/", likewise; "number" or "measure".
	Op      string
	Args    []*Condition
	Number  float64 // of "number"
	Measure Measure // of "measure"
}

// Measure is a number that servers measure over the Window of an alert. docs/rules-reference.md
// describes each.
type Measure struct {
	// Name is the function's name, such as "block_rate".
	Name string
	// Rule is the name of the rule that is measured; empty: all requests.
	Rule string
	// Outcome is what "rate" counts; empty: all outcomes. "refused" are limited, warned,
	// banned and blocked together. "shadow_refused" are requests that rules in shadow mode
	// would have refused.
	Outcome string
	// Quantile is for "latency" and "store_latency": more than 0 and at most 1.
	Quantile float64
}

// Measures are the measures in c, each once.
func (c *Condition) Measures() []Measure {
	var all []Measure
	seen := map[Measure]bool{}
	c.visit(func(part *Condition) {
		if part.Op == "measure" && !seen[part.Measure] {
			seen[part.Measure] = true
			all = append(all, part.Measure)
		}
	})
	return all
}

func (c *Condition) visit(f func(*Condition)) {
	f(c)
	for _, arg := range c.Args {
		arg.visit(f)
	}
}

// Holds reports whether c holds, and whether that is known. of returns a measure's value and
// whether that is known. A false part makes && known, and a true part ||. A number divided
// by 0 is not known.
func (c *Condition) Holds(of func(Measure) (value float64, known bool)) (holds, known bool) {
	switch c.Op {
	case "&&", "||":
		decisive := c.Op == "||"
		a, aKnown := c.Args[0].Holds(of)
		b, bKnown := c.Args[1].Holds(of)
		if aKnown && a == decisive || bKnown && b == decisive {
			return decisive, true
		}
		return !decisive, aKnown && bKnown
	}
	a, aKnown := c.Args[0].value(of)
	b, bKnown := c.Args[1].value(of)
	if !aKnown || !bKnown {
		return false, false
	}
	return compare(c.Op, a, b), true
}

func compare(op string, a, b float64) bool {
	switch op {
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	case ">=":
		return a >= b
	case "==":
		return a == b
	}
	return a != b
}

// value is the value of a number, a measure or an arithmetic operator.
func (c *Condition) value(of func(Measure) (float64, bool)) (float64, bool) {
	switch c.Op {
	case "number":
		return c.Number, true
	case "measure":
		return of(c.Measure)
	}
	a, aKnown := c.Args[0].value(of)
	b, bKnown := c.Args[1].value(of)
	v := 0.0
	switch c.Op {
	case "+":
		v = a + b
	case "-":
		v = a - b
	case "*":
		v = a * b
	case "/":
		v = a / b
	}
	return v, aKnown && bKnown && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// Left is the value of the left side of the first comparison in c, and whether it is known.
func (c *Condition) Left(of func(Measure) (value float64, known bool)) (value float64, known bool) {
	for c.Op == "&&" || c.Op == "||" {
		c = c.Args[0]
	}
	return c.Args[0].value(of)
}

// span is an interval in which a number always is.
type span struct{ low, high float64 }

// fixed is the value of c where no measure can change it.
func (c *Condition) fixed() (value, ok bool) {
	if c.Op == "&&" || c.Op == "||" {
		decisive := c.Op == "||"
		a, aFixed := c.Args[0].fixed()
		b, bFixed := c.Args[1].fixed()
		if aFixed && a == decisive || bFixed && b == decisive {
			return decisive, true
		}
		return !decisive, aFixed && bFixed
	}
	a, b := c.Args[0].span(), c.Args[1].span()
	switch c.Op {
	case ">", "<=":
		a, b = b, a
		fallthrough
	case "<", ">=": // a < b, or its negation
		negated := c.Op == ">=" || c.Op == "<="
		if a.high < b.low {
			return !negated, true
		}
		return negated, a.low >= b.high
	}
	if a.high < b.low || b.high < a.low {
		return c.Op == "!=", true
	}
	return c.Op == "==", a == b && a.low == a.high
}

func (c *Condition) span() span {
	switch c.Op {
	case "number":
		return span{c.Number, c.Number}
	case "measure":
		return span{0, measures[c.Measure.Name].most}
	}
	return span{math.Inf(-1), math.Inf(1)}
}
