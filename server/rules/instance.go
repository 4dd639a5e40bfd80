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

// Instance has a server instance's own values, beside those of requests. The zero Instance has none.
type Instance struct {
	// Secrets are for the function hmac; nil: there are none.
	Secrets *Secrets
	// Lists are for the function list; nil: there are none.
	Lists *Lists
	// Claims finds the claims of a request's token; nil, or an empty result: there are none. It is called
	// where Input.Claims is nil and an expression needs the claims, at most once for each request. Several
	// goroutines may call it at once, and must not change what it returns.
	Claims func(*Request) map[string]any
	// TokenHeader is the canonical name of the header in which Claims finds the token. If that is ambiguous,
	// claims are an error: the application may use another token. Empty: it is never ambiguous.
	TokenHeader string
	// Allow are the ambiguities that expressions read nevertheless: all lines of a repeated header, the first
	// value of a repeated parameter, and of twins the one with the exact name. Ambiguities of targets have no
	// effect here; see Set.Ambiguous.
	Allow Ambiguity
	// Now is the clock by which entries of Controls end, in a fleet the same on every instance; nil:
	// time.Now. Several goroutines may call it at once.
	Now func() time.Time
}

func (i *Instance) now() time.Time {
	if i == nil || i.Now == nil {
		return time.Now()
	}
	return i.Now()
}

// On returns s for an instance, and does not change s. An error has every place where s names a secret or a
// list that i does not have. Controls that With adds afterwards are checked in the same way, and end by i's time;
// controls that s has already are not.
func (s *Set) On(i *Instance) (*Set, error) {
	if err := s.lacking(i); err != nil {
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

// Secrets are the secrets of the function hmac, by name. No expression can read one, and none is printed. The
// names are fixed by NewSecrets; their values may change at any time, and several goroutines may use a
// Secrets at once. A nil Secrets has none.
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

// Format prints String under every verb, also verbs that would print fields.
func (s *Secrets) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue is String.
func (s *Secrets) LogValue() slog.Value { return slog.StringValue(s.String()) }

// IsSecretName reports whether text can name a secret: 1 to 64 letters, digits and
// underscores, not beginning with a digit.
func IsSecretName(text string) bool {
	return IsName(text) && !strings.ContainsAny(text, ".:/-") && (text[0] < '0' || text[0] > '9')
}

// outsideAt is where a file names what an Instance has.
type outsideAt struct {
	expr.Use
	file         string
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

// lacks says that i does not have a secret or a list; empty: it has it.
func (i *Instance) lacks(use expr.Use) string {
	switch {
	case use.IsList && !i.Lists.has(use.Name):
		return i.Lists.noList(use.Name)
	case !use.IsList && !i.Secrets.has(use.Name):
		return i.Secrets.noSecret(use.Name)
	}
	return ""
}

func (s *Set) lacking(i *Instance) error {
	var all error
	for _, use := range s.outside {
		if text := i.lacks(use.Use); text != "" {
			all = yamlnode.Merge(all, &yamlnode.Error{File: use.file,
				Problems: []yamlnode.Problem{{Line: use.line, Column: use.column, Text: text}}})
		}
	}
	return all
}
