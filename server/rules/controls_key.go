package rules

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/stintdev/stint/internal/address"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// AsCounted returns k as the rule r of s counts it: if r's key expression is a list, a string stands for the
// list with that one part. An error says that r never counts by k, or that k is not a key.
func (s *Set) AsCounted(r *Rule, k Key) (Key, error) {
	if r.Descriptor == nil && r.key != nil && r.key.IsList {
		parts, isList := k.Parts()
		if !isList {
			var err error
			if k, err = JoinKey(parts...); err != nil {
				return "", err
			}
		}
	}
	return k, s.checkKey(r, k)
}

// checkKey is an error if r never counts by k.
func (s *Set) checkKey(r *Rule, k Key) error {
	if err := k.check(); err != nil {
		return err
	}
	if r.Descriptor != nil {
		return r.Descriptor.checkForm(k)
	}
	if r.key == nil {
		return nil // a rule made by hand
	}
	if only, ok, err := r.fixedKey(); err == nil && ok {
		if only != string(k) {
			return fmt.Errorf("key %s: the rule counts everyone under %s", expr.Clip(k.String()), expr.Clip(Key(only).String()))
		}
		return nil
	}
	parts, isList := k.Parts()
	switch {
	case r.key.IsHash && !expr.IsHash(string(k)):
		return fmt.Errorf("key %s: the rule counts by a hash, %s: give the hash, which `stint explain` shows for a request", expr.Clip(k.String()), expr.Clip(r.Key))
	case r.key.Parts > 0 && (!isList || len(parts) != r.key.Parts):
		return fmt.Errorf("key %s: the rule counts by a list of %d, %s: give as many parts, in its order", expr.Clip(k.String()), r.key.Parts, expr.Clip(r.Key))
	case r.key.Variable != "" && isList:
		return fmt.Errorf("key %s: the rule counts by %s, which is not a list", expr.Clip(k.String()), r.Key)
	case r.key.Variable == "client.ip":
		return s.checkClient(k)
	}
	return nil
}

func (a *applier) ruleWithKey(name string, k Key) (*Rule, error) {
	r, err := a.rule(name)
	if err == nil {
		err = a.base.checkKey(r, k)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// mayCount reports whether p is the network of one client, as client.ip is counted. A network that begins
// like one that embeds IPv4 addresses has many clients.
func (s *Set) mayCount(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return p.IsSingleIP()
	}
	return p.Bits() == s.IPv6Prefix && s.nat64().Plain(p.Addr()).Is6()
}

// checkClient is an error if a rule that counts by client.ip counts the client k in another form.
func (s *Set) checkClient(k Key) error {
	client, err := address.Parse(string(k))
	if err != nil && strings.Contains(string(k), "/") {
		var p netip.Prefix
		if p, err = s.nat64().ParseNetwork(string(k)); err == nil && !s.mayCount(p) {
			return fmt.Errorf("key %s: the rule counts by client.ip, which is never this network: give an address, or ban the network without a rule", expr.Clip(k.String()))
		}
		client = p.Addr()
	}
	if err != nil {
		return fmt.Errorf("key %s: the rule counts by client.ip: %w", expr.Clip(k.String()), err)
	}
	if counted := s.counted(client); counted != string(k) {
		return fmt.Errorf("key %s: the rule counts by client.ip, and counts this client as %s: give that", expr.Clip(k.String()), counted)
	}
	return nil
}
