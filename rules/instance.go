package rules

import (
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
)

// Instance is what an instance adds to what requests say. The zero Instance adds
// nothing.
type Instance struct {
	// Secrets are for the function hmac; nil: there are none.
	Secrets *Secrets
	// Claims finds the claims of the token that a request bears; nil, or an empty
	// result: there are none. It is called where Input.Claims is nil and an expression
	// needs the claims, at most once for each request. Several goroutines may call it
	// at once, and nobody changes what it returns.
	Claims func(*Request) map[string]any
	// TokenHeader is the canonical name of the header in which Claims finds the token.
	// Where that is ambiguous, claims are an error: the application may know the client
	// by another token. Empty: it is never ambiguous.
	TokenHeader string
	// Allow is what expressions read though it is ambiguous: of a repeated header all
	// lines, of a repeated parameter the first value, and of twins the one by its own
	// name. What of it is in a target does nothing here; see Set.Ambiguous.
	Allow Ambiguity
	// Now is the time by which entries of Controls end, which in a fleet is the same on
	// every instance; nil: time.Now. Several goroutines may call it at once.
	Now func() time.Time
}

// now is i's time; i may be nil.
func (i *Instance) now() time.Time {
	if i == nil || i.Now == nil {
		return time.Now()
	}
	return i.Now()
}

// On is s as it decides on an instance. An error tells every place where s names a
// secret that i does not have. s is not changed. Controls that are added afterwards, by
// With, are looked at in the same way, and end by i's time; those that s has already are
// not.
func (s *Set) On(i *Instance) (*Set, error) {
	if err := s.lacking(i.Secrets); err != nil {
		return nil, err
	}
	on := *s
	on.instance, on.repeatable.allow = i, i.Allow
	if s.base != nil { // for With
		base := *s.base
		base.instance, base.repeatable.allow = i, i.Allow
		on.base = &base
	}
	return &on, nil
}

// claims are those of the request's token, or an error.
func (s *scope) claims() any {
	if !s.claimsKnown {
		s.claimsKnown, s.claimed = true, s.findClaims()
	}
	return s.claimed
}

func (s *scope) findClaims() any {
	i, r := s.set.instance, s.in.Request
	if s.in.Claims != nil || r == nil || i == nil || i.Claims == nil {
		return s.in.Claims
	}
	if i.TokenHeader != "" {
		if _, _, bad := r.header(i.TokenHeader, &s.set.repeatable); bad != 0 {
			return types.WrapErr(&AmbiguousError{Is: bad, Name: strings.ToLower(i.TokenHeader)})
		}
	}
	return i.Claims(r)
}

// noSecrets is the value of secrets where no instance is known. It is no missing one:
// a rule must not be passed by for want of a secret.
var noSecrets = types.NewErrWithNodeID(-1, "no secrets are known here").(*types.Err)

// secrets are those of the instance, as CEL finds them by their names.
func (s *scope) secrets() any {
	if i := s.set.instance; i != nil && i.Secrets != nil {
		return i.Secrets.values
	}
	return noSecrets
}
