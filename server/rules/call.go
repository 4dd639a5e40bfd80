package rules

import (
	"fmt"
	"net/netip"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/address"
)

// check finds errors that do not depend on the rules. The texts of the first two errors are
// envoyproxy/ratelimit's.
func (d *Descriptors) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("rules: %w: %s", stint.ErrRequest, fmt.Sprintf(format, args...))
	}
	switch {
	case d.Domain == "":
		return bad("rate limit domain must not be empty")
	case len(d.List) == 0:
		return bad("rate limit descriptor list must not be empty")
	case len(d.List) > stint.MaxAsks:
		return bad("%d descriptors: at most %d", len(d.List), stint.MaxAsks)
	}
	for i := range d.List {
		if cost := d.List[i].Cost; cost < 0 {
			return bad("descriptor %d: cost %d: must not be negative", i+1, cost)
		}
	}
	return nil
}

// Addr is the address of the client: Client or, if that is unknown, the one that the Descriptors name.
// Invalid: neither is known. An IPv6 address that embeds an IPv4 address becomes the IPv4 address; see also
// Set.Client.
func (in *Input) Addr() netip.Addr {
	if in.Client.IsValid() || in.Descriptors == nil {
		return address.Plain(in.Client)
	}
	return in.Descriptors.addr()
}

// Client is the client's address of in, as s compares and counts it: in.Addr, but with NAT64 addresses as
// IPv4, too.
func (s *Set) Client(in *Input) netip.Addr { return s.nat64().Plain(in.Addr()) }

// What names the operation: Operation or, if that is empty, the domain of the Descriptors.
func (in *Input) What() string {
	if in.Operation != "" || in.Descriptors == nil {
		return in.Operation
	}
	return in.Descriptors.Domain
}

// cost is how many units the request takes under rules without a cost.
func (in *Input) cost() int64 {
	if in.Descriptors == nil {
		return in.Cost
	}
	var most int64
	for i := range in.Descriptors.List {
		if d := &in.Descriptors.List[i]; !d.GiveBack {
			most = max(most, d.Cost)
		}
	}
	return most
}

// attrs is the variable attrs of expressions: the domain, the descriptors with their entries, and each key of
// an entry with its first value. A key that a descriptor repeats also has its first value there.
func (d *Descriptors) attrs() map[string]any {
	all, list := map[string]any{}, make([]any, len(d.List))
	for i := range d.List {
		entries := make(map[string]any, len(d.List[i].Entries))
		for _, e := range d.List[i].Entries {
			for _, to := range [...]map[string]any{entries, all} {
				if _, known := to[e.Key]; !known {
					to[e.Key] = e.Value
				}
			}
		}
		list[i] = entries
	}
	all["domain"], all["descriptors"] = d.Domain, list
	return all
}
