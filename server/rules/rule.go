package rules

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/errorformat"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// Rule is one rule of a file. It never changes.
type Rule struct {
	// Name is unique in its Set: 1 to 64 letters, digits and any of _ . : / -.
	Name string
	// Match, Key and Cost are the expressions as written, to be shown. If not given, Match and Cost are
	// empty, and Key is defaultKey.
	Match, Key, Cost string
	// After is the expression of cost_after as written, or empty: the final cost of a request, known at its
	// end. See CostAfter.
	After string
	// Tokens is the preset for an API of language models. It replaces Cost and After where those are empty.
	Tokens Tokens
	// Unsettled is what to charge a request if CostAfter does not know its cost.
	Unsettled Unsettled
	// Unreadable says how to treat a body that the rule reads and that is not JSON.
	Unreadable UnreadableBody
	// Unit is the unit of the rule's cost, such as "tokens"; empty: not given. See UnitOf.
	Unit string
	// MaxHold is how much of a budget one request may hold, in percent of its capacity; 0: all of it. Of a
	// higher estimate, only that much is held; see IsBudget.
	MaxHold int
	Mode    Mode
	// Default means that the rule is for requests that no other enforced rule
	// applies to.
	Default bool
	// Limits has at least one, unless there is OnStatus, or Descriptor is unlimited or for limits that
	// callers send. Each has the rule's name; no two have the same ID. Limits of Tiers and overrides have
	// that name, or RULE@TIER.
	Limits []*stint.Limit
	// Tiers are the limits for tiers, in the order written: the first tier of a request counts, in place of
	// Limits. Empty: Limits is for all requests.
	Tiers []Tier
	// Penalty has the rule's name; nil: none.
	Penalty *stint.Penalty
	// OnStatus are the statuses of responses that count as violations of Penalty. Asks
	// cannot count them; the program that sees the response does. Without Limits, a rule
	// asks for a running ban alone.
	OnStatus []int
	// OnStoreError decides requests that the store cannot decide.
	OnStoreError stint.OnError
	// DecisionTimeout is how long a request that faces the rule waits for the store; 0: the
	// server's default. Of several rules the shortest counts.
	DecisionTimeout time.Duration
	// Messages are the texts for refused clients; nil: the server's own.
	Messages *Messages
	// Refusal is the format of the rule's refusals (limited, warned or banned), also if it comes from
	// Set.Refusal; nil: the usual one. It is a *httplimit.ErrorFormat.
	Refusal *errorformat.Format
	// Shape means that an allowed request is held for its Decision.Delay. At least one of
	// Limits is a stint.LeakyBucket then.
	Shape bool
	// Preflights means that the rule applies to preflights, too; see Request.Preflight.
	Preflights bool
	// Settings are the file's fields that a list of rules does not show: all but name, match, key, cost,
	// cost_after, unit, limits and mode.
	Settings []Setting
	// Descriptor has the additional fields of a rule from a file of Envoy's form; nil: the rule is not from
	// such a file.
	Descriptor *DescriptorRule

	match, key, cost, after *expr.Expression
	keyGiven, sharesKey     bool
	watches                 bool // it has OnStatus, and no limits were written
	costIsAsked             bool // by the client; see asksFor
	// hasBudget means that a limit of the rule or of its tiers is a budget, so that the cost is for budgets,
	// and a request takes one unit under other limits.
	hasBudget bool
	costs     map[string]*expr.Expression // of single limits, by ID; see ownCost
	debt      debt
	controls  *ruleControls // nil: nothing was changed at run time
}

// Mode says what a rule does. The zero Mode is Enforce.
type Mode uint8

const (
	Enforce Mode = iota // it decides
	Shadow              // it is asked and reported, but refuses nothing
	Off                 // it is not even evaluated
)

var modeNames = [...]string{"enforce", "shadow", "off"}

// String is the mode's name in files: "enforce", "shadow" or "off".
func (m Mode) String() string { return nameOf(modeNames[:], uint8(m)) }

// ParseMode is the inverse of String. Any other text is an error.
func ParseMode(text string) (Mode, error) {
	return limittext.OneOf("mode", Enforce, Shadow, Off)(text)
}

// MarshalText is String; an error if m is not a mode.
func (m Mode) MarshalText() ([]byte, error) {
	if int(m) >= len(modeNames) {
		return nil, fmt.Errorf("mode %s: must be one of %s", m, strings.Join(modeNames[:], ", "))
	}
	return []byte(m.String()), nil
}

// UnmarshalText is ParseMode.
func (m *Mode) UnmarshalText(text []byte) error {
	mode, err := ParseMode(string(text))
	if err != nil {
		return err
	}
	*m = mode
	return nil
}

func nameOf(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "unknown(" + strconv.Itoa(int(i)) + ")"
}

// fixedKey is r's key if it is the same for every request; not ok: it depends on the request, or is null.
func (r *Rule) fixedKey() (key string, ok bool, err error) {
	key, ok, err = r.key.FixedKey(stint.MaxKey)
	if ok && err == nil {
		err = checkKey(key)
	}
	return key, ok, err
}
