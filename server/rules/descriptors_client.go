package rules

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/stintdev/stint/internal/address"
)

// The keys of entries that have the address of the client.
const (
	remoteAddress       = "remote_address"
	maskedRemoteAddress = "masked_remote_address" // with the length of its prefix
)

// addr is the first address in an entry remote_address or, if there is none, in an entry
// masked_remote_address, whose prefix is dropped.
func (d *Descriptors) addr() (masked netip.Addr) {
	for i := range d.List {
		for _, e := range d.List[i].Entries {
			text, whole := e.Value, e.Key == remoteAddress
			if !whole {
				if e.Key != maskedRemoteAddress || masked.IsValid() {
					continue
				}
				text, _, _ = strings.Cut(text, "/")
			}
			a, err := netip.ParseAddr(text)
			if a = address.Plain(a); err == nil && whole {
				return a
			}
			masked = a
		}
	}
	return masked
}

// plainEntries returns all with the addresses of clients as s counts them, which are found and counted
// as text. It leaves all as it is, and returns it if nothing changes.
func (s *Set) plainEntries(all []Entry) []Entry {
	same := true
	for i := range all {
		plain, ok := s.plainValue(&all[i])
		if !ok {
			continue
		}
		if same {
			all, same = slices.Clone(all), false
		}
		all[i].Value = plain
	}
	return all
}

// plainValue returns the address of an entry as IPv4, if it is another way to write one.
func (s *Set) plainValue(e *Entry) (string, bool) {
	if e.Key != remoteAddress && e.Key != maskedRemoteAddress || !strings.Contains(e.Value, ":") {
		return "", false
	}
	if e.Key == remoteAddress {
		a, err := netip.ParseAddr(e.Value)
		if a = s.nat64().Plain(a); err == nil && a.Is4() {
			return a.String(), true
		}
		return "", false
	}
	p, err := netip.ParsePrefix(e.Value)
	if p = s.nat64().PlainNetwork(p); err == nil && p.Addr().Is4() {
		return p.String(), true
	}
	return "", false
}
