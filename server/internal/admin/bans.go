package admin

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/rules"
)

func (a *API) listBans(c *call) (int, any, error) {
	limit, err := c.number("limit", 1000, 10_000)
	if err != nil {
		return 0, nil, err
	}
	rule := c.URL.Query().Get("rule")
	all := adminapi.Bans{ByHand: []adminapi.Ban{}}
	now := a.Control.Status()
	for _, b := range now.Controls.Bans {
		switch {
		case rule != "" && b.Rule != rule:
		case len(all.ByHand) == limit:
			all.Truncated = true
		default:
			all.ByHand = append(all.ByHand, adminapi.Ban{Ban: b, Effect: effect(cmp.Or(now.Problem(b.ID), now.Set.BanOverruled(&b)), nil)})
		}
	}
	v := a.Lookup.View(c.Context())
	defer v.Close()
	more := false
	anew := func() { all.ByPenalty, more = []adminapi.PenaltyBan{}, false }
	anew()
	err = v.Banned(c.Context(), anew, func(r stint.Record) bool {
		if rule != "" && r.Penalty != rule {
			return true
		}
		if more = len(all.ByPenalty) == limit; more {
			return false
		}
		all.ByPenalty = append(all.ByPenalty, adminapi.PenaltyBan{Rule: r.Penalty, Key: shownKey(r.Key), Hashed: r.Hashed, Left: r.BanLeft.Microseconds(), Bans: r.Bans, For: a.banLength(&r).Microseconds()})
		return true
	})
	if err != nil {
		return 0, nil, err
	}
	all.Truncated = all.Truncated || more
	all.CountedBy = v.CountedBy()
	return http.StatusOK, all, nil
}

// shownKey returns a key of the store for an answer. A key that rules did not write may not be
// a key in JSON. It is shown as text in quotation marks, perhaps cut off.
func shownKey(key string) rules.Key {
	k := rules.Key(key)
	if _, err := k.MarshalJSON(); err == nil {
		return k
	}
	const long = 1000
	text := strconv.Quote(key[:min(len(key), long)])
	return rules.Key(text)
}

// checkTarget checks t, and normalizes its key and network as in bans.
func (a *API) checkTarget(t *adminapi.BanTarget) error {
	if (t.Network != "") == (t.Rule != "" || t.Key != "") || (t.Rule != "") != (t.Key != "") {
		return impossible("", "give a rule and a key, or a network")
	}
	if t.Network != "" {
		var err error
		if t.Network, err = a.network(t.Network); err != nil {
			return err
		}
	}
	var err error
	t.Key, err = a.counted(t.Rule, t.Key)
	return err
}

// network is a network, or one address, in the form of entries.
func (a *API) network(text string) (string, error) {
	p, err := a.Control.Current().ParseNetwork(text)
	switch {
	case err != nil:
		return "", impossible("network", "%s", err)
	case p.IsSingleIP():
		return p.Addr().String(), nil
	}
	return p.String(), nil
}

func (a *API) addBan(c *call) (int, any, error) {
	var in adminapi.BanRequest
	err := c.read(&in)
	if err == nil {
		err = a.checkTarget(&in.BanTarget)
	}
	b := rules.Ban{Rule: in.Rule, Key: in.Key, Network: in.Network}
	if err == nil {
		b.Note, err = c.note(&in.Term, a.Control.Now())
	}
	if err != nil {
		return 0, nil, err
	}
	done, err := a.change(c, "ban", b.Reason, control.AddBan{Ban: b})
	if err != nil {
		return 0, nil, err
	}
	a.Audit.change(c, "ban", a.Audit.about(b.Rule, b.Key, b.Network), b.Reason, done.Replaced.Bans, b, done.Alone)
	return http.StatusCreated, adminapi.Ban{Ban: b, Effect: effect(a.Control.Current().BanOverruled(&b), done.Alone)}, nil
}

func (a *API) removeBan(c *call) (int, any, error) {
	reason, err := c.reason()
	if err != nil {
		return 0, nil, err
	}
	done, err := a.change(c, "lift ban", reason, control.RemoveBan{ID: c.PathValue("id")})
	if err != nil {
		return 0, nil, err
	}
	gone := done.Replaced.Bans[0]
	a.Audit.change(c, "lift ban", a.Audit.about(gone.Rule, gone.Key, gone.Network), reason, gone, nil, done.Alone)
	return http.StatusOK, adminapi.Ban{Ban: gone, Effect: effect("", done.Alone)}, nil
}

// liftBans removes the penalty's ban first and then notifies the fleet. In the other order, an
// instance that remembers the ban could ask the store again, and remember the ban again.
func (a *API) liftBans(c *call) (int, any, error) {
	var in adminapi.LiftRequest
	err := c.read(&in)
	if err == nil {
		err = a.checkTarget(&in.BanTarget)
	}
	if err != nil {
		return 0, nil, err
	}
	penalty, before, known, err := a.held(c, &in.BanTarget)
	if err != nil {
		return 0, nil, err
	}
	done, err := a.change(c, "lift bans", in.Reason, control.LiftBans{Target: control.Target(in.BanTarget), At: a.Control.Now().UTC()})
	if err != nil {
		if penalty != nil { // the store may have forgotten the violations by now
			a.Audit.unknown(c, "lift bans", in.Reason, err)
		}
		return 0, nil, err
	}
	if len(done.Replaced.Bans) == 0 && known && before == (stint.Record{}) {
		// The fleet was notified anyway: an instance may still have counts of the key from the
		// time when the store was away.
		return 0, nil, notFound("There is neither a ban nor a violation of the key under the rule %s.", in.Rule)
	}
	gone := adminapi.Lifted{ByHand: []adminapi.Ban{}, ByPenalty: []adminapi.PenaltyBan{}, Reach: reach(done.Alone)}
	for _, b := range done.Replaced.Bans {
		gone.ByHand = append(gone.ByHand, adminapi.Ban{Ban: b})
	}
	if before.BanLeft > 0 {
		gone.ByPenalty = append(gone.ByPenalty, adminapi.PenaltyBan{Rule: in.Rule, Key: in.Key, Left: before.BanLeft.Microseconds(), Bans: before.Bans})
	}
	a.Audit.change(c, "lift bans", a.Audit.about(in.Rule, in.Key, in.Network), in.Reason, gone, nil, done.Alone)
	return http.StatusOK, gone, nil
}

// banLength is the length of the ban of r by the penalty of its rule; 0: there is no such rule.
func (a *API) banLength(r *stint.Record) time.Duration {
	rule, err := a.rule(r.Penalty)
	if err != nil || rule.Penalty == nil {
		return 0
	}
	p := rule.Penalty.Spec()
	length, longest := p.BanFor, cmp.Or(p.MaxBan, math.MaxInt64)
	for range r.Bans - 1 {
		if p.Growth <= 1 || length > longest/time.Duration(p.Growth) {
			break
		}
		length *= time.Duration(p.Growth)
	}
	return max(min(length, longest), r.BanLeft)
}

// held is the stored record of t's key under its rule's penalty: a ban, and earlier violations and bans; zero
// if there is nothing. The penalty is nil if the rule has none, or t is a network. known is false if the
// store did not answer; it may have more.
func (a *API) held(c *call, t *adminapi.BanTarget) (p *stint.Penalty, record stint.Record, known bool, err error) {
	if t.Rule == "" {
		return nil, record, true, nil
	}
	r, err := a.rule(t.Rule)
	if err != nil || r.Penalty == nil {
		return nil, record, true, err
	}
	v := a.Lookup.View(c.Context())
	defer v.Close()
	record, err = v.Record(string(t.Key), r.Penalty)
	if record.Violations == 0 && record.Bans == 0 && record.BanLeft == 0 {
		record = stint.Record{}
	}
	return r.Penalty, record, v.StoreError() == nil, err
}
