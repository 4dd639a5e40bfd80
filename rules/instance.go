package rules

import (
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
	on.instance = i
	if s.base != nil { // for With
		base := *s.base
		base.instance = i
		on.base = &base
	}
	return &on, nil
}

// claims are those of the request's token.
func (s *scope) claims() map[string]any {
	if !s.claimsKnown {
		s.claimsKnown, s.claimed = true, s.in.Claims
		if i := s.set.instance; s.claimed == nil && s.in.Request != nil && i != nil && i.Claims != nil {
			s.claimed = i.Claims(s.in.Request)
		}
	}
	return s.claimed
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
