package stint

import "fmt"

// Anonymous says what happens to a call whose key is empty, in a Guard and in packages httplimit
// and rpclimit, where a function returns the key of each call. The zero Anonymous is
// AnonymousRefuse, so that nobody escapes a limit by leaving out the value that it counts by.
type Anonymous uint8

const (
	// AnonymousRefuse: the call fails with an error that wraps ErrRequest. HTTP answers 400,
	// gRPC INVALID_ARGUMENT.
	AnonymousRefuse Anonymous = iota
	// AnonymousShare: all calls without a key count together, under AnonymousKey.
	AnonymousShare
	// AnonymousAllow: the call passes and is not counted.
	AnonymousAllow
)

// AnonymousKey is the key of all calls without one under AnonymousShare.
const AnonymousKey = "(anonymous)"

// String returns "refuse", "share" or "allow", or "unknown".
func (a Anonymous) String() string {
	switch a {
	case AnonymousRefuse:
		return "refuse"
	case AnonymousShare:
		return "share"
	case AnonymousAllow:
		return "allow"
	}
	return "unknown"
}

// key returns the key that a call with key k counts under; "" if it is not counted.
func (a Anonymous) key(k string) (string, error) {
	switch {
	case k != "" || a == AnonymousAllow:
		return k, nil
	case a == AnonymousShare:
		return AnonymousKey, nil
	}
	return "", fmt.Errorf("stint: %w: empty key; to let such calls share a count or pass, set Anonymous", ErrRequest)
}
