package stint

import (
	"fmt"
	"slices"
	"strings"
)

// OnError says what becomes of an ask that the Store cannot decide, where a
// fleet.Fallback is around it. The zero OnError is OnErrorLocal.
type OnError uint8

// If you add one, name it in String and package rules' documentation.
const (
	OnErrorLocal OnError = iota // this instance decides by its share of the limit
	OnErrorAllow                // it is allowed
	OnErrorDeny                 // nothing is decided: Take returns the error
)

var onErrorNames = [...]string{"local", "allow", "deny"}

// String is "local", "allow" or "deny".
func (o OnError) String() string {
	if int(o) < len(onErrorNames) {
		return onErrorNames[o]
	}
	return "unknown"
}

// ParseOnError is the inverse of String.
func ParseOnError(text string) (OnError, error) {
	i := slices.Index(onErrorNames[:], text)
	if i < 0 {
		return 0, fmt.Errorf("%q: must be one of %s", clip(text), strings.Join(onErrorNames[:], ", "))
	}
	return OnError(i), nil
}

// Source is who decided. The zero Source is the Store that counts for all.
type Source uint8

const (
	ByStore    Source = iota
	ByLocal           // this instance alone; see fleet.Fallback
	ByPolicy          // nobody: OnErrorAllow
	ByLease           // this instance, by units that the Store had charged ahead; see fleet.Leases
	ByInstance        // this instance, which refuses for its own sake; see Limiter.Instance
)

// Counted tells whether it was counted by the Store that counts for all.
func (s Source) Counted() bool { return s == ByStore || s == ByLease }

// String is "store", "local", "policy", "lease" or "instance".
func (s Source) String() string {
	switch s {
	case ByStore:
		return "store"
	case ByLocal:
		return "local"
	case ByPolicy:
		return "policy"
	case ByLease:
		return "lease"
	case ByInstance:
		return "instance"
	}
	return "unknown"
}
