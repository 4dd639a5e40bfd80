package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// Networks is a set of networks and addresses, for a list. The zero Networks is empty. Add must not be called
// concurrently, nor after Lists.Set.
type Networks struct{ all expr.Networks }

// NewNetworks returns an empty set.
func NewNetworks() *Networks { return new(Networks) }

// Add adds a network, as Set.ParseNetwork reads it.
func (n *Networks) Add(p netip.Prefix) { n.all.Add(p) }

// Len is the number of networks. One that was added twice counts once.
func (n *Networks) Len() int { return n.all.Len() }

// Contains reports whether one of the networks has the address a. An IPv4 address that an IPv6 address embeds
// is another address here.
func (n *Networks) Contains(a netip.Addr) bool { return n.all.Contains(a) }

// Lists are named lists of networks, for the function list: client.ip in list("bad"). The names are fixed by
// NewLists; their content may change at any time, and several goroutines may use a Lists at once. A nil Lists
// has none.
type Lists struct {
	lists map[string]*expr.List
}

// NewLists returns a Lists with these names. Using a list is an error until Set is called for it.
func NewLists(names ...string) *Lists {
	l := &Lists{lists: make(map[string]*expr.List, len(names))}
	for _, name := range names {
		l.lists[name] = expr.NewList(name)
	}
	return l
}

// Set replaces the content of a list. Requests that are decided at this moment see the former content or the
// new one. It panics if l does not have the name.
func (l *Lists) Set(name string, n *Networks) { l.lists[name].Set(&n.all) }

// Names returns the names that l has, in order.
func (l *Lists) Names() []string {
	if l == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(l.lists))
}

func (l *Lists) has(name string) bool {
	if l == nil {
		return false
	}
	return l.lists[name] != nil
}

func (l *Lists) noList(name string) string {
	return fmt.Sprintf("there is no list %q under server.lists", expr.Clip(name)) + spelling.Hint(name, l.Names())
}
