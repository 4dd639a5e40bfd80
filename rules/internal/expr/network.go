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
)

var networkType = cel.ObjectType("cidr", traits.ContainerType)

type network netip.Prefix

func newNetwork(v ref.Val) ref.Val {
	text, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	p, err := ParseNetwork(string(text))
	if err != nil {
		return types.WrapErr(err)
	}
	return network(p)
}

// ParseNetwork reads a network such as 10.0.0.0/8, or one address. IPv4 written as IPv6 is IPv4,
// zones do not count, and bits beyond the prefix are dropped.
func ParseNetwork(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, err := netip.ParseAddr(text)
		if err != nil || strings.Contains(text, "/") { // to netip, a zone may have any text
			return p, fmt.Errorf("%q: must be a network such as 10.0.0.0/8, or an address", Clip(text))
		}
		a = PlainAddr(a)
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// PlainAddr is a as clients are compared and counted. Without Unmap, all of IPv4
// would be one client behind ::ffff:0:0/96.
func PlainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// CountedAddr is client.ip in a key: an IPv4 address, or an IPv6 network; empty where a is invalid.
func CountedAddr(a netip.Addr, ipv6Bits int) string {
	a = PlainAddr(a)
	switch {
	case !a.IsValid():
		return ""
	case a.Is4():
		return a.String()
	}
	p, err := a.Prefix(ipv6Bits)
	if err != nil {
		return a.String() // for there are not so many bits
	}
	return p.String()
}

// Contains is CEL's "in"; an error for what is neither address nor network.
func (n network) Contains(v ref.Val) ref.Val {
	text, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	outer := netip.Prefix(n)
	if !strings.Contains(string(text), "/") {
		if a, err := netip.ParseAddr(string(text)); err == nil {
			return types.Bool(outer.Contains(PlainAddr(a)))
		}
	}
	inner, err := ParseNetwork(string(text))
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Bool(outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr()))
}

func (n network) ConvertToNative(to reflect.Type) (any, error) {
	if to == reflect.TypeFor[netip.Prefix]() {
		return netip.Prefix(n), nil
	}
	return nil, fmt.Errorf("a cidr is no %s", to)
}

func (n network) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.StringType:
		return types.String(netip.Prefix(n).String())
	case types.TypeType:
		return networkType
	}
	return types.NewErr("a cidr is no %s", to.TypeName())
}

func (n network) Equal(other ref.Val) ref.Val {
	o, ok := other.(network)
	return types.Bool(ok && n == o)
}

func (n network) Type() ref.Type { return networkType }

func (n network) Value() any { return netip.Prefix(n) }
