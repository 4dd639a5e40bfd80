// Package rulestest draws rules files, and histories of requests and changes that fit them, for tests that
// hold for every rules file, such as that explanations equal decisions.
//
// The scenarios are made from grammar.go. For another kind of rule, limit or request, add a line there; the
// tests of this package report lines that make files invalid or are never drawn.
//
// It promises nothing: the same seed gives another scenario when the grammar changes.
package rulestest

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// Scenario is a set of rules, and steps under them.
type Scenario struct {
	Rules string // a rules file
	Envoy string // a file of Envoy's rate limit service, which is used together with Rules
	Steps []Step
}

// Step is a request, or a change by an operator.
type Step struct {
	After time.Duration // since the step before
	Do    Action
	Body  string // the request of Check, Charge, Ban, Lift and Override for their APIs, in JSON
	Hold  string // the name that Hold gives its hold, and that Settle refers to; unique in a Scenario
	Cost  int64  // of Settle
}

// Action is what a Step does.
type Action string

// Actions.
const (
	Check    Action = "check"
	Hold     Action = "hold" // a check that holds its units, until Settle or for 30 s
	Settle   Action = "settle"
	Charge   Action = "charge" // of units already spent, whether they fit or not
	Ban      Action = "ban"
	Lift     Action = "lift" // may find neither a ban nor a violation
	Override Action = "override"
)

// Draw returns the scenario of a seed: always the same.
func Draw(seed uint64) *Scenario {
	return newDrawer(seed).scenario()
}

// DrawSteps returns the scenario of a seed with these files instead of drawn ones. Names of rules must begin
// as those of the grammar do, and each rule must have a line of its own.
func DrawSteps(seed uint64, rules, envoy string) *Scenario {
	return newDrawer(seed).steps(&Scenario{Rules: rules, Envoy: envoy})
}

// Set compiles both files.
func (s *Scenario) Set() (*rules.Set, error) {
	return rules.ParseFiles([]rules.File{
		{Name: "rules.yaml", Data: []byte(s.Rules)},
		{Name: "envoy.yaml", Data: []byte(s.Envoy), Envoy: true},
	})
}

// Event returns the step at an instant as a line for server.Simulate, or "" for a change by an operator,
// which simulations do not have.
func (s *Step) Event(at time.Time) string {
	switch s.Do {
	case Check:
		return fmt.Sprintf(`{"t_us":%d,%s`, at.UnixMicro(), s.Body[1:])
	case Hold:
		return fmt.Sprintf(`{"t_us":%d,"hold":%q,%s`, at.UnixMicro(), s.Hold, s.Body[1:])
	case Charge:
		return fmt.Sprintf(`{"t_us":%d,"charge":true,%s`, at.UnixMicro(), s.Body[1:])
	case Settle:
		return fmt.Sprintf(`{"t_us":%d,"settle":%q,"cost":%d}`, at.UnixMicro(), s.Hold, s.Cost)
	}
	return ""
}

// String shows s as a person reads it: the files, then a step a line.
func (s *Scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s---\n%s---\n", s.Rules, s.Envoy)
	for i, step := range s.Steps {
		fmt.Fprintf(&b, "%d. after %s: %s", i, step.After, step.Do)
		if step.Hold != "" {
			fmt.Fprintf(&b, " %s", step.Hold)
		}
		if step.Do == Settle {
			fmt.Fprintf(&b, " with %d", step.Cost)
		}
		fmt.Fprintf(&b, " %s\n", step.Body)
	}
	return b.String()
}

// drawer draws one scenario.
type drawer struct {
	*rand.Rand
	numbers int             // how many <#> were drawn
	rule    [2]string       // for <rule> and <key>: a rule's name, and the kind of its key
	drawn   map[string]bool // the lines that were drawn, as word: line
}

func newDrawer(seed uint64) *drawer {
	return &drawer{Rand: rand.New(rand.NewPCG(seed, 0)), drawn: map[string]bool{}}
}

var aWord = regexp.MustCompile(`<[a-z #]+>`)

// text returns one of the lines of a word, and replaces the words in it in the same way.
func (d *drawer) text(word string) string {
	switch word {
	case "#":
		d.numbers++
		return fmt.Sprint(d.numbers)
	case "rule":
		return d.rule[0]
	case "key":
		word = d.rule[1] + " key"
	}
	lines := grammar[word]
	if lines == nil {
		panic("the grammar has no word " + word)
	}
	line := lines[d.IntN(len(lines))]
	d.drawn[word+": "+line] = true
	return aWord.ReplaceAllStringFunc(line, func(w string) string { return d.text(strings.Trim(w, "<>")) })
}

var (
	aName    = regexp.MustCompile(`name: (([a-z]+)\d+)`)
	aLimited = regexp.MustCompile(aName.String() + `.* limits: `) // an override is for a rule with limits
)

func (d *drawer) scenario() *Scenario {
	return d.steps(&Scenario{Rules: d.text("file"), Envoy: d.text("envoy")})
}

// steps draws steps that fit the files of s.
func (d *drawer) steps(s *Scenario) *Scenario {
	names, limited := aName.FindAllStringSubmatch(s.Rules, -1), aLimited.FindAllStringSubmatch(s.Rules, -1)
	var running []string // the holds that were not settled
	for range 30 + d.IntN(60) {
		step := Step{Do: Action(d.text("action"))}
		step.After, _ = time.ParseDuration(d.text("after"))
		if step.Do == Settle && len(running) == 0 || step.Do == Override && len(limited) == 0 {
			step.Do = Hold
		}
		about := names
		if step.Do == Override {
			about = limited
		}
		d.rule = [2]string(about[d.IntN(len(about))][1:])
		switch step.Do {
		case Settle:
			step.Hold, step.Cost = running[0], d.Int64N(12)
			running = running[1:]
		case Hold:
			step.Hold = fmt.Sprintf("h%d", len(s.Steps))
			running = append(running, step.Hold)
			fallthrough
		default:
			step.Body = d.text(string(step.Do))
		}
		s.Steps = append(s.Steps, step)
	}
	return s
}
