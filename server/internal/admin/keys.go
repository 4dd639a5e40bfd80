package server

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/adminapi"
)

// keyCall is a call about a key under a rule.
type keyCall struct {
	key          rules.Key
	tier, reason string
	rule         *rules.Rule
	limits       []*stint.Limit
	override     *rules.Override
}

// keyCall reads the call into to; in is the part of it that says which key.
func (s *Server) keyCall(c *call, to any, in *adminapi.KeyRequest) (*keyCall, error) {
	err := c.read(to)
	if err == nil && (in.Rule == "" || in.Key == "") {
		err = badCall("rule and key must be given.")
	}
	if err != nil {
		return nil, err
	}
	k := keyCall{tier: in.Tier, reason: in.Reason}
	if k.rule, err = s.rule(in.Rule); err != nil {
		return nil, err
	}
	if k.key, err = s.counted(in.Rule, in.Key); err != nil {
		return nil, err
	}
	set := s.Rules()
	if k.tier != "" && !slices.Contains(set.Tiers, k.tier) {
		return nil, impossible("tier", "no tier %.60q%s", k.tier, didYouMean(k.tier, set.Tiers))
	}
	k.limits, k.override = k.rule.EffectiveLimits(k.key, k.tier)
	return &k, nil
}

// rule is the rule of a name, among those that decide now.
func (s *Server) rule(name string) (*rules.Rule, error) {
	var names []string
	for _, r := range s.Rules().Rules {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return nil, impossible("rule", "no rule %.60q%s", name, didYouMean(name, names))
}

// counted is a key as the rule of a name counts it, in all calls about keys.
func (s *Server) counted(rule string, k rules.Key) (rules.Key, error) {
	r, err := s.rule(rule)
	if err != nil || k == "" {
		return k, nil // which others say, if it matters
	}
	if k, err = r.AsCounted(k); err != nil {
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

func (s *Server) showKey(c *call) (int, any, error) {
	var in adminapi.KeyRequest
	k, err := s.keyCall(c, &in, &in)
	if err != nil {
		return 0, nil, err
	}
	v := s.view(c.Context())
	defer v.close()
	j, err := v.keyState(k)
	return http.StatusOK, j, err
}

func (v *view) keyState(k *keyCall) (adminapi.KeyState, error) {
	j := adminapi.KeyState{Rule: k.rule.Name, Key: k.key, Mode: k.rule.Mode.String(), Tier: k.tier}
	if k.override != nil {
		j.Override = &adminapi.Override{Override: *k.override}
	}
	var err error
	if j.Limits, err = v.counts(k); err != nil {
		return j, err
	}
	if p := k.rule.Penalty; p != nil {
		r, err := v.record(string(k.key), p)
		if err != nil {
			return j, err
		}
		j.Penalty = &adminapi.PenaltyState{Violations: r.Violations, Bans: r.Bans, BanLeft: r.BanLeft.Microseconds()}
	}
	j.CountedBy = v.countedBy()
	now := v.control.Status()
	for i := range now.Controls.Bans {
		if b := &now.Controls.Bans[i]; b.Rule == k.rule.Name && b.Key == k.key {
			j.Ban = &adminapi.Ban{Ban: *b}
		}
	}
	return j, nil
}

// counts are how the key stands under the limits of the call's tier. Where the call
// names none, those of the tiers under which something is used follow.
func (v *view) counts(k *keyCall) ([]adminapi.KeyLimit, error) {
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
		some, err := v.keyLimits(k, limits[from:min(from+stint.MaxAsks, len(limits))])
		if err != nil {
			return nil, err
		}
		for i, j := range some {
			if j.Tier = tiers[from+i]; from+i < len(k.limits) || j.Used > 0 {
				all = append(all, j)
			}
		}
	}
	return all, nil
}

// keyLimits is how the key stands under each of the limits.
func (v *view) keyLimits(k *keyCall, limits []*stint.Limit) ([]adminapi.KeyLimit, error) {
	out := make([]stint.Decision, len(limits))
	if err := v.look(k.request(limits, 0), out); err != nil {
		return nil, err
	}
	stored := v.kept(string(k.key), limits)
	all := make([]adminapi.KeyLimit, len(out))
	for i := range out {
		all[i].LimitState = v.limitOf(&out[i])
		if stored != nil && stored[i].Held {
			ago, left := stored[i].Idle.Microseconds(), stored[i].Expires.Microseconds()
			all[i].ChargedAgo, all[i].ExpiresIn = &ago, &left
		}
	}
	return all, nil
}

// request asks limits of the key, without a penalty.
func (k *keyCall) request(limits []*stint.Limit, cost int64) *stint.Request {
	r := &stint.Request{}
	for _, l := range limits {
		r.Asks = append(r.Asks, stint.Ask{Key: string(k.key), Limit: l, Cost: cost, Peek: cost == 0})
	}
	return r
}

func (s *Server) resetKey(c *call) (int, any, error) {
	var in adminapi.KeyRequest
	k, err := s.keyCall(c, &in, &in)
	if err != nil {
		return 0, nil, err
	}
	return s.changeKey(c, k, "reset key", func() error {
		// Those of all tiers, for a key may be of several.
		for limits := range slices.Chunk(k.rule.AllLimits(k.key), stint.MaxAsks) {
			err := s.limiter.Reset(c.Context(), string(k.key), limits...)
			r := stint.Request{}
			for _, l := range limits {
				r.Asks = append(r.Asks, stint.Ask{Key: string(k.key), Limit: l})
			}
			s.fleet.Forget(&r)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Server) refundKey(c *call) (int, any, error) {
	var in adminapi.RefundRequest
	k, err := s.keyCall(c, &in, &in.KeyRequest)
	switch {
	case err != nil:
		return 0, nil, err
	case in.Cost < 1:
		return 0, nil, impossible("cost", "%d: must be at least 1", in.Cost)
	case len(k.limits) == 0:
		return 0, nil, impossible("rule", "%s has no limits, so nothing was taken", k.rule.Name)
	}
	return s.changeKey(c, k, "refund", func() error {
		return s.limiter.RefundAll(c.Context(), k.request(k.limits, in.Cost), nil)
	})
}

// changeKey answers with how the key stands once it is changed, which only the store
// can do. What was changed leaves its line, also where how it stands then cannot be
// told.
func (s *Server) changeKey(c *call, k *keyCall, action string, change func() error) (int, any, error) {
	v := s.view(c.Context())
	defer v.close()
	before, err := v.keyState(k)
	if err == nil && v.alone != nil {
		err = unavailable(fmt.Errorf("nothing was changed: %w", v.alone))
	}
	if err != nil {
		return 0, nil, err
	}
	err = change()
	s.forgetDenials(string(k.key)) // here at once; the others hear of it
	if err != nil {
		s.auditUnknown(c, action, k.reason, err)
		return 0, nil, err
	}
	v = s.view(c.Context())
	defer v.close()
	after, err := v.keyState(k)
	if err != nil {
		s.audit(c, action, k.reason, before, nil, nil)
		return 0, nil, err
	}
	s.audit(c, action, k.reason, before, after, nil)
	return http.StatusOK, after, nil
}
