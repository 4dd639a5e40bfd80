package admin

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/lookup"
	"github.com/stintdev/stint/server/rules"
)

// keyCall is a call about a key under a rule.
type keyCall struct {
	key          rules.Key
	tier, reason string
	rule         *rules.Rule
	limits       []*stint.Limit
	override     *rules.Override
}

// keyCall reads the call into to. in is the part of to with the key.
func (a *API) keyCall(c *call, to any, in *adminapi.KeyRequest) (*keyCall, error) {
	err := c.read(to)
	if err == nil && (in.Rule == "" || in.Key == "") {
		err = badCall("rule and key must be given.")
	}
	if err != nil {
		return nil, err
	}
	k := keyCall{tier: in.Tier, reason: in.Reason}
	if k.rule, err = a.rule(in.Rule); err != nil {
		return nil, err
	}
	if k.key, err = a.counted(in.Rule, in.Key); err != nil {
		return nil, err
	}
	set := a.Control.Current()
	if k.tier != "" && !slices.Contains(set.Tiers, k.tier) {
		return nil, impossible("tier", "no tier %.60q%s", k.tier, didYouMean(k.tier, set.Tiers))
	}
	k.limits, k.override = k.rule.EffectiveLimits(k.key, k.tier)
	return &k, nil
}

// rule is the current rule of a name.
func (a *API) rule(name string) (*rules.Rule, error) {
	var names []string
	for _, r := range a.Control.Current().Rules {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return nil, impossible("rule", "no rule %.60q%s", name, didYouMean(name, names))
}

// counted is a key in the form under which the rule counts it. All calls about keys use it.
func (a *API) counted(rule string, k rules.Key) (rules.Key, error) {
	r, err := a.rule(rule)
	if err != nil || k == "" {
		return k, nil // callers report a missing key if it matters
	}
	if k, err = a.Control.Current().AsCounted(r, k); err != nil {
		return "", impossible("key", "%s", err)
	}
	return k, nil
}

func didYouMean(name string, names []string) string {
	if near := spelling.Nearest(name, names); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

func (a *API) showKey(c *call) (int, any, error) {
	var in adminapi.KeyRequest
	k, err := a.keyCall(c, &in, &in)
	if err != nil {
		return 0, nil, err
	}
	v := a.Lookup.View(c.Context())
	defer v.Close()
	j, err := a.keyState(v, k)
	return http.StatusOK, j, err
}

func (a *API) keyState(v *lookup.View, k *keyCall) (adminapi.KeyState, error) {
	j := adminapi.KeyState{Rule: k.rule.Name, Key: k.key, Mode: k.rule.Mode.String(), Tier: k.tier}
	if k.override != nil {
		j.Override = &adminapi.Override{Override: *k.override}
	}
	var err error
	if j.Limits, err = countsOf(v, k); err != nil {
		return j, err
	}
	if p := k.rule.Penalty; p != nil {
		r, err := v.Record(string(k.key), p)
		if err != nil {
			return j, err
		}
		j.Penalty = &adminapi.PenaltyState{Violations: r.Violations, Bans: r.Bans, BanLeft: r.BanLeft.Microseconds()}
	}
	j.CountedBy = v.CountedBy()
	now := a.Control.Status()
	for i := range now.Controls.Bans {
		if b := &now.Controls.Bans[i]; b.Rule == k.rule.Name && b.Key == k.key {
			j.Ban = &adminapi.Ban{Ban: *b}
		}
	}
	return j, nil
}

// countsOf is the state of the key under the limits of the call's tier. If the call names no
// tier, the limits of each tier under which something is used or held follow.
func countsOf(v *lookup.View, k *keyCall) ([]adminapi.KeyLimit, error) {
	limits := slices.Clone(k.limits)
	tiers := make([]string, len(limits)) // of each limit
	if k.tier == "" {
		for _, tier := range k.rule.CountedTiers() {
			its, _ := k.rule.EffectiveLimits(k.key, tier)
			for range its {
				tiers = append(tiers, tier)
			}
			limits = append(limits, its...)
		}
	}
	all := []adminapi.KeyLimit{}
	for from := 0; from < len(limits); from += stint.MaxAsks {
		some, err := keyLimits(v, k, limits[from:min(from+stint.MaxAsks, len(limits))])
		if err != nil {
			return nil, err
		}
		for i, j := range some {
			if j.Tier = tiers[from+i]; from+i < len(k.limits) || j.Used > 0 || j.Held > 0 {
				all = append(all, j)
			}
		}
	}
	return all, nil
}

// keyLimits is the state of the key under each of the limits.
func keyLimits(v *lookup.View, k *keyCall, limits []*stint.Limit) ([]adminapi.KeyLimit, error) {
	out := make([]stint.Decision, len(limits))
	if err := v.Look(k.request(limits, 0), out); err != nil {
		return nil, err
	}
	stored := v.Stored(string(k.key), limits)
	all := make([]adminapi.KeyLimit, len(out))
	for i := range out {
		all[i].LimitState = v.Limit(&out[i])
		if stored != nil && stored[i].Held {
			ago, left := stored[i].Idle.Microseconds(), stored[i].Expires.Microseconds()
			all[i].ChargedAgo, all[i].ExpiresIn = &ago, &left
		}
	}
	for _, h := range v.Holds(string(k.key), limits) {
		if i := slices.IndexFunc(limits, func(l *stint.Limit) bool { return l.ID() == h.Limit.ID() }); i >= 0 {
			age := max(0, time.Since(h.ID.Made()))
			all[i].Holds = append(all[i].Holds, adminapi.Hold{Hold: h.ID.String(), Units: h.Units, Age: age.Microseconds(), Left: h.Left.Microseconds()})
		}
	}
	return all, nil
}

// request asks about the key under limits, without a penalty.
func (k *keyCall) request(limits []*stint.Limit, cost int64) *stint.Request {
	r := &stint.Request{}
	for _, l := range limits {
		r.Asks = append(r.Asks, stint.Ask{Key: string(k.key), Limit: l, Cost: cost, Peek: cost == 0})
	}
	return r
}

func (a *API) resetKey(c *call) (int, any, error) {
	var in adminapi.KeyRequest
	k, err := a.keyCall(c, &in, &in)
	if err != nil {
		return 0, nil, err
	}
	return keyAnswer(a.changeKey(c, k, "reset key", func() error {
		// The limits of all tiers, because a key may be in several.
		for limits := range slices.Chunk(k.rule.AllLimits(k.key), stint.MaxAsks) {
			err := a.Limiter.Reset(c.Context(), string(k.key), limits...)
			r := stint.Request{}
			for _, l := range limits {
				r.Asks = append(r.Asks, stint.Ask{Key: string(k.key), Limit: l})
			}
			a.Forget(&r)
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

func (a *API) refundKey(c *call) (int, any, error) {
	var in adminapi.RefundRequest
	k, err := a.keyCall(c, &in, &in.KeyRequest)
	switch {
	case err != nil:
		return 0, nil, err
	case in.Cost < 1:
		return 0, nil, impossible("cost", "%d: must be at least 1", in.Cost)
	case len(k.limits) == 0:
		return 0, nil, impossible("rule", "%s has no limits, so nothing was taken", k.rule.Name)
	}
	counted := slices.DeleteFunc(slices.Clone(k.limits), func(l *stint.Limit) bool { return !k.rule.TakesCost(l) })
	if len(counted) == 0 {
		return 0, nil, impossible("rule", "%s limits only requests in flight, of which nothing is refunded; release what is held instead", k.rule.Name)
	}
	return keyAnswer(a.changeKey(c, k, "refund", func() error {
		r := k.request(counted, in.Cost)
		if err := stint.Internal(friend.Of{}).Check(r); err != nil {
			return err
		}
		return stint.Refund(c.Context(), a.Limiter.Store, r)
	}))
}

// releaseKey drops holds of a key, in every tier. They are not charged, and a client that still
// renews one of them does not make it again.
func (a *API) releaseKey(c *call) (int, any, error) {
	var in adminapi.ReleaseRequest
	k, err := a.keyCall(c, &in, &in.KeyRequest)
	if err != nil {
		return 0, nil, err
	}
	if (in.Hold == "") == !in.All {
		return 0, nil, badCall("Want either hold or all.")
	}
	var id stint.HoldID
	if in.Hold != "" {
		if id, err = stint.ParseHoldID(in.Hold); err != nil {
			return 0, nil, impossible("hold", "%.60q: want 24 hexadecimal digits, as key show has them", in.Hold)
		}
	}
	calls, released, err := a.releases(c, k, id)
	if err != nil {
		return 0, nil, err
	}
	after, err := a.changeKey(c, k, "release", func() error {
		stint.Holds(c.Context(), a.Limiter.Store, time.Time{}, calls)
		for i := range calls {
			if calls[i].Err != nil {
				return calls[i].Err
			}
		}
		return nil
	})
	return http.StatusOK, adminapi.Released{Released: released, KeyState: after}, err
}

// releases returns the calls that release one request's holds of k or, without its identity, all holds;
// requests is the number of requests.
func (a *API) releases(c *call, k *keyCall, id stint.HoldID) (calls []stint.HoldCall, requests int64, err error) {
	seen := map[stint.HoldID]bool{}
	for limits := range slices.Chunk(k.rule.AllLimits(k.key), stint.MaxAsks) {
		holds, err := lookup.Holds(c.Context(), a.Limiter.Store, string(k.key), limits)
		if err != nil {
			return nil, 0, unavailable(fmt.Errorf("nothing was released: %w", err))
		}
		for _, h := range holds {
			if id == (stint.HoldID{}) || id == h.ID {
				seen[h.ID] = true
				calls = append(calls, stint.HoldCall{Action: stint.HoldRelease, Key: string(k.key), Limit: h.Limit, Hold: h.ID, Units: h.Units, For: h.For})
			}
		}
	}
	if len(calls) == 0 {
		return nil, 0, notFound("Nothing is held, or no longer.")
	}
	return calls, int64(len(seen)), nil
}

// keyAnswer answers with the state of a key.
func keyAnswer(j adminapi.KeyState, err error) (int, any, error) { return http.StatusOK, j, err }

// changeKey changes the key and returns its new state. Only the store can change a key. A change is logged
// even if the new state is not known.
func (a *API) changeKey(c *call, k *keyCall, action string, change func() error) (after adminapi.KeyState, err error) {
	v := a.Lookup.View(c.Context())
	defer v.Close()
	before, err := a.keyState(v, k)
	if err == nil && v.StoreError() != nil {
		err = unavailable(fmt.Errorf("nothing was changed: %w", v.StoreError()))
	}
	if err != nil {
		return after, err
	}
	err = change()
	a.Forget(&stint.Request{Asks: []stint.Ask{{Key: string(k.key)}}}) // the other instances are notified
	if err != nil {
		a.Audit.unknown(c, action, k.reason, err)
		return after, err
	}
	v = a.Lookup.View(c.Context())
	defer v.Close()
	what := a.Audit.about(k.rule.Name, k.key, "")
	if after, err = a.keyState(v, k); err != nil {
		a.Audit.change(c, action, what, k.reason, withoutHolds(before), nil, nil)
		return after, err
	}
	a.Audit.change(c, action, what, k.reason, withoutHolds(before), withoutHolds(after), nil)
	return after, nil
}

// withoutHolds is j without its list of holds, which may have thousands.
func withoutHolds(j adminapi.KeyState) adminapi.KeyState {
	j.Limits = slices.Clone(j.Limits)
	for i := range j.Limits {
		j.Limits[i].Holds = nil
	}
	return j
}
