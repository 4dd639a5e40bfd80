package server

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// banJSON is a ban by hand, and why it is without effect, if it is; in the answer to a
// change, also where that is in force, if not everywhere.
type banJSON struct {
	rules.Ban
	Problem string `json:"problem,omitempty"`
	Pending string `json:"pending,omitempty"`
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
	all := bansJSON{ByHand: []banJSON{}}
	now := s.state()
	for _, b := range now.controls.Bans {
		switch {
		case rule != "" && b.Rule != rule:
		case len(all.ByHand) == limit:
			all.Truncated = true
		default:
			all.ByHand = append(all.ByHand, banJSON{Ban: b, Problem: cmp.Or(now.problem(b.ID), now.set.BanOverruled(&b))})
		}
	}
	v := s.view(c.Context())
	defer v.close()
	more := false
	anew := func() { all.ByPenalty, more = []penaltyBanJSON{}, false }
	anew()
	err = v.banned(c.Context(), anew, func(r stint.Record) bool {
		if rule != "" && r.Penalty != rule {
			return true
		}
		if more = len(all.ByPenalty) == limit; more {
			return false
		}
		all.ByPenalty = append(all.ByPenalty, penaltyBanJSON{r.Penalty, shownKey(r.Key), r.Hashed, r.BanLeft.Microseconds(), r.Bans})
		return true
	})
	if err != nil {
		return 0, nil, err
	}
	all.Truncated = all.Truncated || more
	all.seenBy = v.seenBy()
	return http.StatusOK, all, nil
}

// bansJSON are the bans that run. Those by penalty are the store's, or where that does
// not answer those that this instance knows of.
type bansJSON struct {
	ByHand    []banJSON        `json:"by_hand"`
	ByPenalty []penaltyBanJSON `json:"by_penalty"`
	Truncated bool             `json:"truncated"`
	seenBy
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
		b.Note, err = in.note(c, s.clock.now())
	}
	if err != nil {
		return 0, nil, err
	}
	replaced, alone, err := commit(s, c, change[[]rules.Ban]{"ban", b.Reason, banEdit{Ban: b}})
	if err != nil {
		return 0, nil, err
	}
	s.audit(c, "ban", b.Reason, replaced, b, alone)
	return http.StatusCreated, banJSON{b, s.Rules().BanOverruled(&b), aloneText(alone)}, nil
}

func (s *Server) removeBan(c *call) (int, any, error) {
	reason, err := c.reason()
	if err != nil {
		return 0, nil, err
	}
	id := c.PathValue("id")
	gone, alone, err := commit(s, c, change[rules.Ban]{"lift ban", reason, unbanEdit{ID: id}})
	if err != nil {
		return 0, nil, err
	}
	s.audit(c, "lift ban", reason, gone, nil, alone)
	return http.StatusOK, banJSON{Ban: gone, Pending: aloneText(alone)}, nil
}

// liftedJSON is what was lifted.
type liftedJSON struct {
	ByHand    []banJSON        `json:"by_hand"`
	ByPenalty []penaltyBanJSON `json:"by_penalty"`
	Pending   string           `json:"pending,omitempty"`
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
	penalty, before, known, err := s.held(c, &t)
	if err != nil {
		return 0, nil, err
	}
	byHand, alone, err := commit(s, c, change[[]rules.Ban]{"lift bans", reason, liftEdit{t.rule, t.key, t.network, s.clock.now().UTC()}})
	if err != nil {
		if penalty != nil { // the store may have forgotten the violations by now
			s.auditUnknown(c, "lift bans", reason, err)
		}
		return 0, nil, err
	}
	if len(byHand) == 0 && known && before == (stint.Record{}) {
		// The fleet was told all the same: an instance may hold against the key what
		// it counted while the store was away.
		return 0, nil, notFound("There is neither a ban nor a violation of the key under the rule %s.", t.rule)
	}
	gone := liftedJSON{[]banJSON{}, []penaltyBanJSON{}, aloneText(alone)}
	for _, b := range byHand {
		gone.ByHand = append(gone.ByHand, banJSON{Ban: b})
	}
	if before.BanLeft > 0 {
		gone.ByPenalty = append(gone.ByPenalty, penaltyBanJSON{t.rule, t.key, false, before.BanLeft.Microseconds(), before.Bans})
	}
	s.audit(c, "lift bans", reason, gone, nil, alone)
	return http.StatusOK, gone, nil
}

// held is what the penalty of t's rule holds against its key: a ban, and violations
// and bans that were; zero if there is nothing. The penalty is nil where the rule has
// none, or t is a network. known is false where the store was not heard, which may
// hold more.
func (s *Server) held(c *call, t *target) (p *stint.Penalty, record stint.Record, known bool, err error) {
	if t.rule == "" {
		return nil, record, true, nil
	}
	r, err := s.rule(t.rule)
	if err != nil || r.Penalty == nil {
		return nil, record, true, err
	}
	v := s.view(c.Context())
	defer v.close()
	record, err = v.record(string(t.key), r.Penalty)
	if record.Violations == 0 && record.Bans == 0 && record.BanLeft == 0 {
		record = stint.Record{}
	}
	return r.Penalty, record, v.alone == nil, err
}
