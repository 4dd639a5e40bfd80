package rules

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// Instance is what an instance of a server adds to what requests say. The zero Instance adds
// nothing.
type Instance struct {
	// Secrets are for the function hmac; nil: there are none.
	Secrets *Secrets
	// Claims finds the claims of the token that a request bears; nil, or an empty
	// result: there are none. It is called where Input.Claims is nil and an expression
	// needs the claims, at most once for each request. Several goroutines may call it
	// at once, and must not change what it returns.
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

// Secrets are the secrets of the function hmac, by their names. No expression can read one,
// and none is printed. The names are fixed by NewSecrets; their values may change at any
// time, and several goroutines may use a Secrets at once. A nil Secrets has none.
type Secrets struct {
	values map[string]any // each an *expr.Secret
}

// NewSecrets returns a Secrets with these names and no values yet.
func NewSecrets(names ...string) *Secrets {
	s := &Secrets{values: make(map[string]any, len(names))}
	for _, name := range names {
		s.values[name] = expr.NewSecret(name)
	}
	return s
}

// Set sets the value of a name. It panics if s does not have the name.
func (s *Secrets) Set(name string, value []byte) {
	s.values[name].(*expr.Secret).Set(value)
}

// Names returns the names that s has, in order.
func (s *Secrets) Names() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.values))
}

// String names the secrets.
func (s *Secrets) String() string { return "secrets " + strings.Join(s.Names(), ", ") }

// GoString is String.
func (s *Secrets) GoString() string { return s.String() }

// Format prints String under every verb, also those that would print what is within.
func (s *Secrets) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue is String.
func (s *Secrets) LogValue() slog.Value { return slog.StringValue(s.String()) }

// IsSecretName reports whether text can name a secret: 1 to 64 letters, digits and
// underscores, of which the first is no digit.
func IsSecretName(text string) bool {
	return IsName(text) && !strings.ContainsAny(text, ".:/-") && (text[0] < '0' || text[0] > '9')
}

type secretAt struct {
	name, file   string
	line, column int
}

func (s *Secrets) noSecret(name string) string {
	return fmt.Sprintf("there is no secret %q under server.secrets", expr.Clip(name)) + spelling.Hint(name, s.Names())
}

func (s *Secrets) has(name string) bool {
	if s == nil {
		return false
	}
	_, ok := s.values[name]
	return ok
}

func (s *Set) lacking(known *Secrets) error {
	var all error
	for _, use := range s.secrets {
		if !known.has(use.name) {
			all = yamlnode.Merge(all, &yamlnode.Error{File: use.file,
				Problems: []yamlnode.Problem{{Line: use.line, Column: use.column, Text: known.noSecret(use.name)}}})
		}
	}
	return all
}
