package rules

import (
	"errors"
	"fmt"
	"strings"
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
	// List, unless it is Unlisted, has decided: Asks is empty.
	List List
	// Asks has an ask for each limit of each rule that applies, in the file's
	// order; empty where none does. No two share both Key and Limit.ID.
	Asks []stint.Ask
	// Rules[i] is the rule of Asks[i].
	Rules []*Rule

	scope scope
}

func (m *Matches) reset() {
	clear(m.Asks)
	clear(m.Rules)
	m.List, m.Asks, m.Rules = Unlisted, m.Asks[:0], m.Rules[:0]
}

// Asks finds what applies to in and puts it into out, in place of what was there.
// It keeps nothing of in but what the keys share with it. An error wraps
// stint.ErrRequest and names the rule and field that in is malformed for; out is
// empty then. Several goroutines may call it at once, each with its own out.
func (s *Set) Asks(in *Input, out *Matches) error {
	out.reset()
	if !s.Enabled {
		return nil
	}
	if in.Cost < 0 {
		return fmt.Errorf("rules: %w: cost %d: must not be negative", stint.ErrRequest, in.Cost)
	}
	out.scope.open(s, in)
	defer out.scope.close()
	list, err := s.listed(&out.scope)
	if err != nil || list != Unlisted {
		out.List = list
		return err
	}
	for _, r := range s.Rules {
		if r.Mode == Off {
			continue
		}
		if err := r.asks(out); err != nil {
			out.reset()
			return err
		}
	}
	return nil
}

func (s *Set) listed(sc *scope) (List, error) {
	for i, e := range s.safelist {
		if ok, err := e.isTrue(sc); err != nil {
			return Unlisted, malformed(err, "safelist entry %d", i+1)
		} else if ok {
			return Safe, nil
		}
	}
	for i, e := range s.blocklist {
		if ok, err := e.isTrue(sc); err != nil {
			return Unlisted, malformed(err, "blocklist entry %d", i+1)
		} else if ok {
			return Blocked, nil
		}
	}
	return Unlisted, nil
}

func (r *Rule) asks(out *Matches) error {
	sc := &out.scope
	if r.match != nil {
		if ok, err := r.match.isTrue(sc); err != nil {
			return malformed(err, "rule %q: match", r.Name)
		} else if !ok {
			return nil
		}
	}
	key, ok, err := r.keyIn(sc)
	if err != nil {
		return malformed(err, "rule %q: key", r.Name)
	}
	if !ok {
		return nil
	}
	cost, err := r.costIn(sc)
	if err != nil {
		return malformed(err, "rule %q: cost", r.Name)
	}
	for _, l := range r.Limits {
		out.Asks = append(out.Asks, stint.Ask{Key: key, Limit: l, Cost: cost, Penalty: r.Penalty})
		out.Rules = append(out.Rules, r)
	}
	return nil
}

func (r *Rule) keyIn(sc *scope) (key string, ok bool, err error) {
	sc.inKey = true
	v, err := r.key.eval(sc)
	sc.inKey = false
	if v == nil || err != nil {
		return "", false, err
	}
	return keyOf(v)
}

func (r *Rule) costIn(sc *scope) (int64, error) {
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
