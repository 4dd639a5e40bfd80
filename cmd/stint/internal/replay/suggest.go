package replay

import (
	"context"
	"fmt"
	"slices"

	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/cmd/stint/internal/suggest"
	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/rules"
)

// AllRules are the rules to suggest limits for.
const AllRules = "all"

// Suggestion is the limits that a rule's requests suggest, whatever its limits are.
type Suggestion struct {
	Rule string `json:"rule"`
	// Limits are as a rules file has them. Empty: Why says why there are none.
	Limits []string `json:"limits"`
	// Untouched is the share of keys that they would not have refused, and Share the wished one, or the one
	// that the log can tell. Keys and hours that are set apart do not count.
	Untouched float64 `json:"untouched"`
	Share     float64 `json:"share"`
	// Why is one sentence.
	Why     phrase.Phrase   `json:"why"`
	Notes   []phrase.Phrase `json:"notes"`
	Apart   []Apart         `json:"apart"`
	Windows []Window        `json:"windows"`
}

// Apart is a key that is set apart: it would be refused.
type Apart struct {
	Key string        `json:"key"`
	Why phrase.Phrase `json:"why"`
}

// Window is what the keys used in any window of Period seconds. Needed is the least limit that leaves the share
// untouched, and Knee the one beyond which a higher one helps few more keys. Curve has pairs: how many keys had at
// most such a peak.
type Window struct {
	Seconds float64    `json:"seconds"`
	Needed  int64      `json:"needed"`
	Knee    int64      `json:"knee"`
	Curve   [][2]int64 `json:"curve"`
}

// study measures the requests of a rule.
type study struct {
	rule   *rules.Rule
	wished bool
	*suggest.Study
}

// Suggest makes the Replay measure the requests of rules with these names, or AllRules. Call it before Add. An error
// says which is not replayed.
func (r *Replay) Suggest(names []string, o suggest.Options) error {
	side := r.sides[0]
	var known []string
	for _, t := range side.rules {
		known = append(known, t.rule.Name)
	}
	for _, name := range names {
		found := name == AllRules
		for _, t := range side.rules {
			if name != AllRules && t.rule.Name != name {
				continue
			}
			found = true
			if !slices.ContainsFunc(r.studies, func(s study) bool { return s.rule == t.rule }) {
				r.studies = append(r.studies, study{t.rule, true, suggest.New(o)})
			}
		}
		if !found {
			for _, l := range side.Lacks {
				if l.Rule != nil && l.Rule.Name == name {
					return fmt.Errorf("rule %s is not replayed: it reads %s, which the log lacks", name, l.Reads[0])
				}
			}
			return fmt.Errorf("no rule %q is in force%s", name, spelling.Hint(name, known))
		}
	}
	return nil
}

// keysOfOthers is how many keys of all rules that nobody named are remembered.
const keysOfOthers = 400_000

// StudyOthers makes the Replay measure the rules that Suggest did not name, too. What it finds is in Report.Studied
// only. Call it after Suggest and before Add.
func (r *Replay) StudyOthers(o suggest.Options) {
	side := r.sides[0]
	others := slices.DeleteFunc(slices.Clone(side.rules), func(t *ruleTally) bool {
		return slices.ContainsFunc(r.studies, func(s study) bool { return s.rule == t.rule })
	})
	for _, t := range others {
		o.Keys = max(1, min(keysOfOthers/len(others), 200_000))
		r.studies = append(r.studies, study{t.rule, false, suggest.New(o)})
	}
}

// study measures the request that is replayed now. Its key and cost do not depend on what is refused.
func (r *Replay) study(ctx context.Context) {
	if r.sides[0].Trial.Asks(ctx, &r.in, &r.plan) != nil {
		return
	}
	for i, rule := range r.plan.Rules {
		if i > 0 && rule == r.plan.Rules[i-1] { // another limit of it
			continue
		}
		for _, s := range r.studies {
			if s.rule == rule {
				s.Observe(r.plan.Asks[i].Key, r.now.at, r.plan.Asks[i].Units())
			}
		}
	}
}

func (s *study) suggestion() Suggestion {
	j := Suggestion{Rule: s.rule.Name, Limits: []string{}, Notes: []phrase.Phrase{}, Apart: []Apart{}, Windows: []Window{}}
	found, err := s.Study.Suggest()
	if err != nil {
		j.Why = phrase.Of("No limit can be suggested: %s.", suggest.Reason(err))
		return j
	}
	j.Limits, j.Untouched, j.Share, j.Why = found.Texts(), found.Untouched, found.Share, found.Why
	j.Notes = append(j.Notes, found.Notes...)
	for _, a := range found.Apart {
		j.Apart = append(j.Apart, Apart{rules.Key(a.Key).String(), a.Why()})
	}
	for _, w := range found.Windows {
		window := Window{Seconds: w.Period.Seconds(), Needed: w.Needed, Knee: w.Knee, Curve: [][2]int64{}}
		for _, p := range w.Curve {
			window.Curve = append(window.Curve, [2]int64{p.Peak, int64(p.Keys)})
		}
		j.Windows = append(j.Windows, window)
	}
	return j
}
