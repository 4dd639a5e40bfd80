package rules

import (
	"fmt"
	"net/netip"
)

// AsCounted is k as r counts it: where r's key expression is a list, a string is the
// list with that one part, for nobody who means such a key should have to know that.
// An error says that r never counts by k, or that k is no key.
func (r *Rule) AsCounted(k Key) (Key, error) {
	if r.key == nil || !r.key.isList {
		if err := k.check(); err != nil || r.key == nil {
			return k, err
		}
		return k, r.checkForm(k)
	}
	parts, isList := k.Parts()
	if !isList {
		var err error
		if k, err = JoinKey(parts...); err != nil {
			return "", err
		}
	}
	return k, r.checkForm(k)
}

// checkForm says where r never counts by k: because k has more or fewer parts, or is
// no hash.
func (r *Rule) checkForm(k Key) error {
	if r.key.hashed && !looksHashed(k) {
		return fmt.Errorf("key %s: the rule counts by a hash, %s: give the hash, which `stint explain` tells of a request", clip(k.String()), clip(r.Key))
	}
	if parts, isList := k.Parts(); r.key.parts > 0 && (!isList || len(parts) != r.key.parts) {
		return fmt.Errorf("key %s: the rule counts by a list of %d, %s: give as many parts, in its order", clip(k.String()), r.key.parts, clip(r.Key))
	}
	return nil
}

// ruleWithKey finds a rule, and says where the key is none that it would give.
func (o *overlay) ruleWithKey(name string, k Key) (*Rule, error) {
	r, err := o.rule(name)
	if err != nil {
		return nil, err
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	_, isList := k.Parts()
	switch {
	case r.key == nil:
		return r, nil // a rule made by hand
	case r.key.constant != nil:
		if only, ok, err := keyOf(r.key.constant); err == nil && ok && only != string(k) {
			return nil, fmt.Errorf("key %s: the rule counts everyone under %s", clip(k.String()), clip(Key(only).String()))
		}
	case r.key.parts > 0, r.key.hashed:
		return r, r.checkForm(k)
	case r.key.variable != "" && isList:
		return nil, fmt.Errorf("key %s: the rule counts by %s, which is no list", clip(k.String()), r.Key)
	case r.key.variable == "client.ip":
		return r, o.clientKey(k)
	}
	return r, nil
}

// clientKey says how a client is counted whom k means otherwise.
func (o *overlay) clientKey(k Key) error {
	a, err := netip.ParseAddr(string(k))
	if p, notPrefix := netip.ParsePrefix(string(k)); notPrefix == nil {
		if a = p.Addr(); o.base.ClientKey(a) != string(k) {
			return fmt.Errorf("key %s: the rule counts by client.ip, which is never this network: give an address, or ban the network without a rule", clip(k.String()))
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("key %s: the rule counts by client.ip: give an address, such as 192.0.2.1", clip(k.String()))
	}
	if counted := o.base.ClientKey(a); counted != string(k) {
		return fmt.Errorf("key %s: the rule counts by client.ip, which makes %s of it: give that", clip(k.String()), counted)
	}
	return nil
}
