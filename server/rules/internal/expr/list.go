package expr

import (
	"errors"
	"net/netip"
	"reflect"
	"sync/atomic"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
	"github.com/gaissmai/bart"

	"github.com/stintdev/stint/internal/address"
)

// Networks is a set of networks, in which many goroutines may look at once when nobody adds any more. The zero
// Networks is empty.
type Networks struct{ table bart.Lite }

// Add adds a network, as address.NAT64 makes it plain.
func (n *Networks) Add(p netip.Prefix) { n.table.Insert(p) }

// Len is the number of networks, without those that were added twice.
func (n *Networks) Len() int { return n.table.Size() }

// Contains reports whether a network has an address.
func (n *Networks) Contains(a netip.Addr) bool { return n.table.Lookup(a.WithZone("")) }

// List is a named set of networks. Set may be called at any time, and several goroutines may use a List at once.
type List struct {
	name    string
	content atomic.Pointer[listed] // nil: not read yet
}

// NewList is a List of this name that was not read yet: using it is an error.
func NewList(name string) *List { return &List{name: name} }

// Set replaces the content of l.
func (l *List) Set(n *Networks) { l.content.Store(&listed{Networks: n}) }

const listFunction = "list"

var listType = cel.ObjectType("networks", traits.ContainerType)

// lists declares list("NAME"). namedList is what it does, because it depends on the Scope.
func lists() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function(listFunction, cel.Overload("list_string", []*cel.Type{cel.StringType}, listType)),
		cel.Function(operators.In, cel.Overload("in_string_named_list", []*cel.Type{cel.StringType, listType}, cel.BoolType)),
	}
}

// namedList is a call of list.
type namedList struct {
	interpreter.InterpretableV2
	name  string
	nat64 address.NAT64
}

func (n *namedList) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	s := scopeOf(frame)
	if s == nil || s.Lists == nil {
		return noLists
	}
	l := s.Lists[n.name]
	if l == nil {
		return types.NewErr("there is no list %q", Clip(n.name))
	}
	content := l.content.Load()
	switch {
	case content == nil:
		return types.NewErr("the list %q was not read yet", Clip(n.name))
	case len(n.nat64) > 0:
		return &listed{content.Networks, n.nat64}
	}
	return content
}

func (n *namedList) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, n.Exec)
}

// noLists is an error and not missing: nobody must escape a blocklist because a list is absent.
var noLists = types.NewErrWithNodeID(-1, "no lists are known here").(*types.Err)

// listed is the value of list().
type listed struct {
	*Networks
	nat64 address.NAT64
}

// Contains is CEL's "in"; an error for values that are neither address nor network. A network is in a list if
// one network there has all of it.
func (l *listed) Contains(v ref.Val) ref.Val {
	return inNetworks(v, l.nat64, l.Networks.Contains, l.table.LookupPrefix)
}

var errList = errors.New("a list is only for in")

// ConvertToNative implements ref.Val.
func (*listed) ConvertToNative(reflect.Type) (any, error) { return nil, errList }

// ConvertToType implements ref.Val.
func (*listed) ConvertToType(ref.Type) ref.Val { return types.WrapErr(errList) }

// Equal implements ref.Val.
func (*listed) Equal(ref.Val) ref.Val { return types.WrapErr(errList) }

// Type implements ref.Val.
func (*listed) Type() ref.Type { return listType }

// Value implements ref.Val.
func (*listed) Value() any { return errList }
