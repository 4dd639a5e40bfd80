package expr

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"

	"github.com/stintdev/stint/internal/address"
)

var networkType = cel.ObjectType("cidr", traits.ContainerType)

// network is the value of cidr(), with the prefixes of NAT64 that are known.
type network struct {
	prefix netip.Prefix
	nat64  address.NAT64
}

func newNetwork(v ref.Val) ref.Val {
	text, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	p, err := ParseNetwork(string(text), nil)
	if err != nil {
		return types.WrapErr(err)
	}
	return network{prefix: p}
}

// ParseNetwork reads a network such as 10.0.0.0/8, or one address, as address.NAT64 does.
func ParseNetwork(text string, nat64 address.NAT64) (netip.Prefix, error) {
	p, err := nat64.ParseNetwork(text)
	if err != nil {
		return p, fmt.Errorf("%q: %w", Clip(text), err)
	}
	return p, nil
}

// Contains is CEL's "in"; an error for values that are neither address nor network.
func (n network) Contains(v ref.Val) ref.Val {
	return inNetworks(v, n.nat64, n.prefix.Contains, func(inner netip.Prefix) bool {
		return n.prefix.Bits() <= inner.Bits() && n.prefix.Contains(inner.Addr())
	})
}

// inNetworks is CEL's "in" for networks which have an address, or all of another network.
func inNetworks(v ref.Val, nat64 address.NAT64, has func(netip.Addr) bool, hasAll func(netip.Prefix) bool) ref.Val {
	text, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	if !strings.Contains(string(text), "/") {
		if a, err := netip.ParseAddr(string(text)); err == nil {
			return types.Bool(has(nat64.Plain(a)))
		}
	}
	inner, err := ParseNetwork(string(text), nat64)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Bool(hasAll(inner))
}

// inNAT64 is a call of cidr with known prefixes of NAT64.
type inNAT64 struct {
	interpreter.InterpretableCall
	prefixes address.NAT64
}

func (c *inNAT64) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := c.InterpretableCall.(interpreter.InterpretableV2).Exec(frame)
	if n, ok := v.(network); ok {
		return network{c.prefixes.PlainNetwork(n.prefix), c.prefixes}
	}
	return v
}

func (c *inNAT64) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, c.Exec)
}

func (n network) ConvertToNative(to reflect.Type) (any, error) {
	if to == reflect.TypeFor[netip.Prefix]() {
		return n.prefix, nil
	}
	return nil, fmt.Errorf("a cidr is not a %s", to)
}

func (n network) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.StringType:
		return types.String(n.prefix.String())
	case types.TypeType:
		return networkType
	}
	return types.NewErr("a cidr is not a %s", to.TypeName())
}

func (n network) Equal(other ref.Val) ref.Val {
	o, ok := other.(network)
	return types.Bool(ok && n.prefix == o.prefix)
}

func (n network) Type() ref.Type { return networkType }

func (n network) Value() any { return n.prefix }
