package rules

import (
	"fmt"
	"net/netip"

	"github.com/stintdev/stint/rules/internal/expr"
)

// AsCounted returns k as r counts it: where r's key expression is a list, a string stands
// for the list with that one part. An error says that r never counts by k, or that k is no
// key.
func (r *Rule) AsCounted(k Key) (Key, error) {
	if d := r.Descriptor; d != nil {
		if err := k.check(); err != nil {
			return k, err
		}
		return k, d.checkForm(k)
	}
	if r.key == nil || !r.key.IsList {
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

func (r *Rule) checkForm(k Key) error {
	if r.key.IsHash && !expr.IsHash(string(k)) {
		return fmt.Errorf("key %s: the rule counts by a hash, %s: give the hash, which `stint explain` shows for a request", expr.Clip(k.String()), expr.Clip(r.Key))
	}
	if parts, isList := k.Parts(); r.key.Parts > 0 && (!isList || len(parts) != r.key.Parts) {
		return fmt.Errorf("key %s: the rule counts by a list of %d, %s: give as many parts, in its order", expr.Clip(k.String()), r.key.Parts, expr.Clip(r.Key))
	}
	return nil
}

func (a *applier) ruleWithKey(name string, k Key) (*Rule, error) {
	r, err := a.rule(name)
	if err != nil {
		return nil, err
	}
	if err := k.check(); err != nil {
		return nil, err
	}
	if r.Descriptor != nil {
		return r, r.Descriptor.checkForm(k)
	}
	if r.key == nil {
		return r, nil // a rule made by hand
	}
	if only, ok, err := r.fixedKey(); err == nil && ok {
		if only != string(k) {
			return nil, fmt.Errorf("key %s: the rule counts everyone under %s", expr.Clip(k.String()), expr.Clip(Key(only).String()))
		}
		return r, nil
	}
	_, isList := k.Parts()
	switch {
	case r.key.Parts > 0, r.key.IsHash:
		return r, r.checkForm(k)
	case r.key.Variable != "" && isList:
		return nil, fmt.Errorf("key %s: the rule counts by %s, which is no list", expr.Clip(k.String()), r.Key)
	case r.key.Variable == "client.ip":
		return r, a.checkClient(k)
	}
	return r, nil
}

// checkClient is an error if a rule that counts by client.ip counts the client k in another form.
func (a *applier) checkClient(k Key) error {
	addr, err := netip.ParseAddr(string(k))
	if p, notPrefix := netip.ParsePrefix(string(k)); notPrefix == nil {
		if expr.CountedAddr(p.Addr(), a.base.IPv6Prefix) != string(k) {
			return fmt.Errorf("key %s: the rule counts by client.ip, which is never this network: give an address, or ban the network without a rule", expr.Clip(k.String()))
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("key %s: the rule counts by client.ip: give an address, such as 192.0.2.1", expr.Clip(k.String()))
	}
	if counted := expr.CountedAddr(addr, a.base.IPv6Prefix); counted != string(k) {
		return fmt.Errorf("key %s: the rule counts by client.ip, and counts this client as %s: give that", expr.Clip(k.String()), counted)
	}
	return nil
}
