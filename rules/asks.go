package rules

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"cel.dev/cel-go/common/types"

	"github.com/stintdev/stint"
)

// List says on which list a request is.
type List uint8

const (
	Unlisted List = iota // the limits decide
	Safe                 // on the safelist: never limited
	Blocked              // on the blocklist: always refused
)

// String is "unlisted", "safe" or "blocked".
func (l List) String() string { return nameOf(listNames[:], uint8(l)) }

var listNames = [...]string{"unlisted", "safe", "blocked"}

// Matches is what Set.Asks finds. The zero Matches is ready for use, and using one
// again and again saves memory. It must not be used from several goroutines at
// once.
type Matches struct {
	// List, unless it is Unlisted, has decided, by Entry: Asks is empty.
	List  List
	Entry ListEntry
	// Asks has an ask for each limit of each rule that applies, in the file's
	// order, and one without a limit for a rule that has none; empty where none
	// applies. No two share both Key and Limit.ID.
	Asks []stint.Ask
	// Rules[i] is the rule of Asks[i].
	Rules []*Rule
	// Ban, if it is not nil, is the ban by hand that has decided, and BanRule its
	// rule; nil: it bans a network. Networks go before keys, and of several
	// networks, or keys, that hit it is the longest ban. Asks is empty.
	// BanLeft is how long it still runs; stint.Never: for good.
	Ban     *Ban
	BanRule *Rule
	BanLeft time.Duration
	// Unread are rules in shadow mode that ask nothing, because the request is malformed
	// for them, or because those before them ask stint.MaxAsks limits already. They
	// refuse nothing, so that is no error.
	Unread []*Rule

	scope scope
}

func (m *Matches) reset() {
	m.clearAsks()
	clear(m.Unread)
	m.Unread = m.Unread[:0]
	m.List, m.Entry = Unlisted, ListEntry{}
	m.Ban, m.BanRule, m.BanLeft = nil, nil, 0
}

func (m *Matches) clearAsks() {
	clear(m.Asks)
	clear(m.Rules)
	m.Asks, m.Rules = m.Asks[:0], m.Rules[:0]
}

// Asks finds what applies to in and puts it into out, in place of what was there.
// It keeps nothing of in but what the keys share with it. An error wraps
// stint.ErrRequest and names the rule and field that in is malformed for; out is
// empty then. Rules in shadow mode are the cause of no error. Several goroutines may call it at once, each with its own out.
func (s *Set) Asks(in *Input, out *Matches) error {
	out.reset()
	if !s.Enabled {
		return nil
	}
	if err := s.check(in); err != nil {
		return err
	}
	out.scope.open(s, in)
	defer out.scope.close()
	list, entry, err := s.listed(&out.scope)
	if err != nil {
		return err
	}
	if list != Unlisted {
		out.List, out.Entry = list, entry
		return nil
	}
	if s.bans.entries != nil {
		if ban, left := s.bans.longest(out.scope.client, s.instance); ban != nil {
			out.banned(nil, ban, left)
			return nil
		}
	}
	applied, err := s.askRules(out, false)
	if err == nil && !applied && s.hasDefault {
		_, err = s.askRules(out, true)
	}
	if err != nil {
		out.reset()
		return err
	}
	if out.Ban != nil {
		out.clearAsks()
	}
	return nil
}

// askRules adds to out what the rules ask, the default ones or all others, and tells
// whether one of them applies that is enforced.
func (s *Set) askRules(out *Matches, byDefault bool) (applied bool, err error) {
	inShadow := 0 // limits asked by rules in shadow mode
	for _, r := range s.Rules {
		if r.Mode == Off || r.Default != byDefault {
			continue
		}
		before := len(out.Asks)
		ok, err := r.asks(out)
		switch {
		case r.Mode == Enforce:
			if err != nil {
				return applied, err
			}
			applied = applied || ok
		case err != nil || inShadow+len(out.Asks)-before > stint.MaxAsks:
			out.Asks, out.Rules = out.Asks[:before], out.Rules[:before]
			out.Unread = append(out.Unread, r)
		default:
			inShadow += len(out.Asks) - before
		}
	}
	return applied, nil
}

// asks adds to out what r asks, if it matches, and tells whether it applies.
func (r *Rule) asks(out *Matches) (applies bool, err error) {
	if ok, err := r.matches(&out.scope); err != nil {
		return false, r.unmatched(err)
	} else if !ok {
		return false, nil
	}
	var f found
	if err := r.find(&out.scope, &f); err != nil || !f.applies {
		return false, err
	}
	if f.ban != nil {
		out.banned(r, f.ban, f.banLeft)
		return true, nil
	}
	if len(f.limits) == 0 {
		out.Asks = append(out.Asks, stint.Ask{Key: f.key, Penalty: r.Penalty, OnError: r.OnStoreError})
		out.Rules = append(out.Rules, r)
	}
	for _, l := range f.limits {
		out.Asks = append(out.Asks, stint.Ask{Key: f.key, Limit: l, Cost: f.cost, Peek: f.cost == 0, Penalty: r.Penalty, OnError: r.OnStoreError})
		out.Rules = append(out.Rules, r)
	}
	return true, nil
}

func (r *Rule) matches(sc *scope) (bool, error) {
	if r.match == nil {
		return true, nil
	}
	return r.match.isTrue(sc)
}

// unmatched is the error for a request that match could not work with.
func (r *Rule) unmatched(err error) error { return malformed(err, "rule %q: match", r.Name) }

// found is what a rule makes of a request that it matches.
type found struct {
	applies bool // there is a key
	key     string
	// ban, if it is not nil, decides, and nothing below it was looked at.
	ban     *Ban
	banLeft time.Duration
	cost    int64
	grant
}

// find fills f, which is zero.
func (r *Rule) find(sc *scope, f *found) (err error) {
	f.key, f.applies, err = r.keyIn(sc)
	if err != nil {
		return malformed(err, "rule %q: key", r.Name)
	}
	if !f.applies {
		return nil
	}
	if r.overlay != nil && r.Mode == Enforce {
		if f.ban, f.banLeft = r.overlay.banOf(f.key); f.ban != nil {
			return nil
		}
	}
	if f.cost, err = r.costIn(sc); err != nil {
		return malformed(err, "rule %q: cost", r.Name)
	}
	if r.overlay == nil && len(r.Tiers) == 0 {
		f.limits = r.Limits
		return nil
	}
	f.grant, err = r.grantIn(sc, f.key)
	return err
}

func (r *Rule) keyIn(sc *scope) (key string, ok bool, err error) {
	if !r.keyGiven {
		return sc.defaultKey()
	}
	sc.inKey = true
	v, err := r.key.eval(sc)
	sc.inKey = false
	if v == nil || err != nil {
		return "", false, err
	}
	return keyOf(v)
}

func (r *Rule) costIn(sc *scope) (int64, error) {
	if r.watches {
		return 0, nil
	}
	if r.cost == nil {
		return sc.in.Cost, nil
	}
	v, err := r.cost.eval(sc)
	if err != nil {
		return 0, err
	}
	cost, ok := v.(types.Int)
	switch {
	case !ok:
		return 0, errors.New("what it needs is missing")
	case cost < 0:
		return 0, fmt.Errorf("%d: must not be negative", cost)
	}
	return int64(cost), nil
}

// malformed is the error for a request that where could not work with.
func malformed(err error, where string, args ...any) error {
	var ambiguous *AmbiguousError
	if errors.As(err, &ambiguous) {
		return fmt.Errorf("rules: %s: %w", fmt.Sprintf(where, args...), ambiguous)
	}
	return fmt.Errorf("rules: %w: %s: %s", stint.ErrRequest, fmt.Sprintf(where, args...), clip(err.Error()))
}

// clip keeps what a request or a file says from filling a log, or from breaking
// its lines.
func clip(text string) string {
	const longest = 300
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return unicode.ReplacementChar
		}
		return c
	}, text)
}
