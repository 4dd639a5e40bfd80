package server

import (
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
)

// Kind is what became of a request. String is its word in logs, metrics and traces; Answer, Status and Code
// are what clients are told: a word, and the statuses of HTTP and gRPC.
type Kind = kind.Kind

// The kinds.
const (
	KindAllowed    = kind.Allowed
	KindLimited    = kind.Limited    // a limit refused
	KindWarned     = kind.Warned     // a limit refused, and a ban is near
	KindBanned     = kind.Banned     // by a penalty, or by hand
	KindSafe       = kind.Safe       // on the safelist
	KindBlocked    = kind.Blocked    // on the blocklist
	KindUnmatched  = kind.Unmatched  // no rule applied
	KindOverloaded = kind.Overloaded // this instance had no room for it
	KindUndecided  = kind.Undecided  // the store did not answer, and a rule denies then
	KindMalformed  = kind.Malformed  // it cannot be decided, and the client is at fault
)

// KindOf is the kind of a request with this verdict, or that could not be decided because of err.
func KindOf(v *Verdict, err error) Kind { return decide.KindOf(v, err) }
