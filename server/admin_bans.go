package server

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/rules"
)

// banJSON is a ban by hand, and why it is without effect, if it is.
type banJSON struct {
	rules.Ban
	Problem string `json:"problem,omitempty"`
}

// penaltyBanJSON is a ban that a rule's penalty imposed.
type penaltyBanJSON struct {
	Rule   string    `json:"rule"`
	Key    rules.Key `json:"key"`
	Hashed bool      `json:"hashed"`
	Left   int64     `json:"left_us"`
	Bans   int64     `json:"bans"`
}

func (s *Server) listBans(c *call) (int, any, error) {
	limit, err := c.number("limit", 1000, 10_000)
	if err != nil {
		return 0, nil, err
	}
	rule := c.URL.Query().Get("rule")
	all := struct {
		ByHand    []banJSON        `json:"by_hand"`
		ByPenalty []penaltyBanJSON `json:"by_penalty"`
		Truncated bool             `json:"truncated"`
	}{[]banJSON{}, []penaltyBanJSON{}, false}
	now := s.state()
	for _, b := range now.controls.Bans {
		switch {
		case rule != "" && b.Rule != rule:
		case len(all.ByHand) == limit:
			all.Truncated = true
		default:
			all.ByHand = append(all.ByHand, banJSON{b, cmp.Or(now.problem(b.ID), now.set.BanOverruled(&b))})
		}
	}
	for r, err := range s.limiter.Banned(c.Context()) {
		if err != nil {
			return 0, nil, err
		}
		if rule != "" && r.Penalty != rule {
			continue
		}
		if len(all.ByPenalty) == limit {
			all.Truncated = true
			break
		}
		all.ByPenalty = append(all.ByPenalty, penaltyBanJSON{r.Penalty, shownKey(r.Key), r.Hashed, r.BanLeft.Microseconds(), r.Bans})
	}
	return http.StatusOK, all, nil
}

// shownKey is a key that the store holds. Others than rules may have put there what
// is no key in JSON; that is shown as text in quotation marks, perhaps cut off.
func shownKey(key string) rules.Key {
	k := rules.Key(key)
	if _, err := k.MarshalJSON(); err == nil {
		return k
	}
	const long = 1000
	text := strconv.Quote(key[:min(len(key), long)])
	return rules.Key(text)
}

// target is whom a ban is of: a key under a rule, or a network.
type target struct {
	rule, network string
	key           rules.Key
}

func (t *target) fields() []field {
	return []field{textField("rule", &t.rule), keyField(&t.key), textField("network", &t.network)}
}

// check completes t.
func (t *target) check(s *Server) error {
	if (t.network != "") == (t.rule != "" || t.key != "") || (t.rule != "") != (t.key != "") {
		return impossible("", "give a rule and a key, or a network")
	}
	if t.network != "" {
		p, err := rules.ParseNetwork(t.network)
		if err != nil {
			return impossible("network", "%s", err)
		}
		t.network = strings.TrimSuffix(p.String(), singleHost(p.Addr().Is4()))
	}
	var err error
	t.key, err = s.counted(t.rule, t.key)
	return err
}

// singleHost is the end of the text of a network that is one address.
func singleHost(is4 bool) string {
	if is4 {
		return "/32"
	}
	return "/128"
}

func (t *target) is(b *rules.Ban) bool {
	return b.Rule == t.rule && b.Key == t.key && b.Network == t.network
}

func (s *Server) addBan(c *call) (int, any, error) {
	var t target
	var in noteInput
	err := c.fields(append(t.fields(), in.fields()...)...)
	if err == nil {
		err = t.check(s)
	}
	b := rules.Ban{Rule: t.rule, Key: t.key, Network: t.network}
	if err == nil {
		b.Note, err = in.note(c)
	}
	if err != nil {
		return 0, nil, err
	}
	var replaced []rules.Ban
	err = s.change(c, "ban", func(now *rules.Controls) ([]string, error) {
		replaced = t.liftByHand(now)
		now.Bans = append(now.Bans, b)
		return []string{b.ID}, nil
	})
	if err != nil {
		return 0, nil, err
	}
	s.audit(c, "ban", b.Reason, replaced, b)
	return http.StatusCreated, banJSON{b, s.Rules().BanOverruled(&b)}, nil
}

// liftByHand removes the bans by hand of t, and returns them.
func (t *target) liftByHand(now *rules.Controls) (lifted []rules.Ban) {
	kept := now.Bans[:0]
	for _, b := range now.Bans {
		if t.is(&b) {
			lifted = append(lifted, b)
		} else {
			kept = append(kept, b)
		}
	}
	now.Bans = kept
	return lifted
}

func (s *Server) removeBan(c *call) (int, any, error) {
	reason, err := c.reason()
	if err != nil {
		return 0, nil, err
	}
	var gone rules.Ban
	id := c.PathValue("id")
	err = s.change(c, "lift ban", func(now *rules.Controls) ([]string, error) {
		var ok bool
		if gone, ok = take(&now.Bans, banNote, id); !ok {
			return nil, noEntry("ban by hand", id)
		}
		return nil, nil
	})
	if err != nil {
		return 0, nil, err
	}
	s.audit(c, "lift ban", reason, gone, nil)
	return http.StatusOK, banJSON{Ban: gone}, nil
}

// liftBans forgets the penalty's ban first and tells the fleet then: told before, an
// instance that remembers the ban could ask the store again, and remember it anew.
func (s *Server) liftBans(c *call) (int, any, error) {
	var t target
	var reason string
	err := c.fields(append(t.fields(), reasonField("reason", &reason))...)
	if err == nil {
		err = t.check(s)
	}
	if err != nil {
		return 0, nil, err
	}
	gone := struct {
		ByHand    []banJSON        `json:"by_hand"`
		ByPenalty []penaltyBanJSON `json:"by_penalty"`
	}{[]banJSON{}, []penaltyBanJSON{}}
	var forgotten bool
	if t.rule != "" {
		if gone.ByPenalty, forgotten, err = s.pardon(c, &t); err != nil {
			return 0, nil, err
		}
	}
	err = s.change(c, "lift bans", func(now *rules.Controls) ([]string, error) {
		gone.ByHand = []banJSON{}
		for _, b := range t.liftByHand(now) {
			gone.ByHand = append(gone.ByHand, banJSON{Ban: b})
		}
		if t.rule != "" {
			now.Lifts = append(now.Lifts, rules.Lift{Rule: t.rule, Key: t.key, At: time.Now().UTC()})
		} else if len(gone.ByHand) == 0 {
			return nil, notFound("There is no ban by hand of the network %s.", t.network)
		}
		return nil, nil
	})
	if err != nil {
		if t.rule != "" { // the store has forgotten the violations by now
			s.auditUnknown(c, "lift bans", reason, err)
		}
		return 0, nil, err
	}
	if len(gone.ByHand) == 0 && !forgotten {
		// The fleet was told all the same: an instance may hold against the key what
		// it counted while the store was away.
		return 0, nil, notFound("There is neither a ban nor a violation of the key under the rule %s.", t.rule)
	}
	s.audit(c, "lift bans", reason, gone, nil)
	return http.StatusOK, gone, nil
}

// pardon forgets what the penalty of a rule holds against a key: a ban, which is
// lifted, and violations and bans that were. forgotten is false if there was nothing.
func (s *Server) pardon(c *call, t *target) (lifted []penaltyBanJSON, forgotten bool, err error) {
	lifted = []penaltyBanJSON{}
	r, err := s.rule(t.rule)
	if err != nil || r.Penalty == nil {
		return lifted, false, err
	}
	before, err := s.limiter.Record(c.Context(), string(t.key), r.Penalty)
	if err == nil {
		err = s.limiter.Pardon(c.Context(), string(t.key), r.Penalty)
		s.undone(string(t.key))
	}
	if err == nil && before.BanLeft > 0 {
		lifted = append(lifted, penaltyBanJSON{r.Name, t.key, false, before.BanLeft.Microseconds(), before.Bans})
	}
	return lifted, before.Violations > 0 || before.Bans > 0 || before.BanLeft > 0, err
}
