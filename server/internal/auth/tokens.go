package auth

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
)

// Tokens are the bearer tokens of an API. It stores digests of them, not their texts, and
// prints neither. OpenTokens returns it. Safe for concurrent use. A nil
// Tokens has none.
type Tokens struct {
	sources []tokenSource // for Reload only
	known   atomic.Pointer[[]knownToken]
}

type tokenSource struct {
	config.Token
	files  readfile.Watched // empty if it is from the environment
	latest [sha256.Size]byte
}

type knownToken struct {
	Caller
	digest [sha256.Size]byte
}

// shortestToken is the least size of a token, in bytes.
const shortestToken = 16

// OpenTokens reads tokens from their files and from the environment. Errors name the token and
// never contain its text.
func OpenTokens(list []config.Token) (*Tokens, error) {
	t := new(Tokens)
	var errs []error
	for _, token := range list {
		s := tokenSource{Token: token}
		var err error
		if token.File != "" {
			s.files.Paths = []string{token.File}
			_, err = s.reload(true)
		} else {
			err = s.take([]byte(os.Getenv(token.Env)))
		}
		if err != nil {
			errs = append(errs, err)
		}
		t.sources = append(t.sources, s)
	}
	if len(errs) == 0 {
		errs = append(errs, t.publish())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return t, nil
}

// Find returns the name and scope of the token that was presented.
func (t *Tokens) Find(presented string) (Caller, bool) {
	found, ok := t.find(digestOf(presented))
	return found.Caller, ok
}

// digestOf is the digest of a token's text.
func digestOf(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// find returns the token with a digest. Its time reveals neither how much of a token was right
// nor which token: all digests are compared, each in constant time.
func (t *Tokens) find(digest [sha256.Size]byte) (knownToken, bool) {
	if t == nil {
		return knownToken{}, false
	}
	known, found := *t.known.Load(), -1
	for i := range known {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(digest[:], known[i].digest[:]), i, found)
	}
	if found < 0 {
		return knownToken{}, false
	}
	return known[found], true
}

// Reload reads the files that have changed, or all of them. A token that is wrong stays as it
// was. It must not run concurrently.
func (t *Tokens) Reload(all bool) (changed bool, err error) {
	if t == nil {
		return false, nil
	}
	var errs []error
	for i := range t.sources {
		if s := &t.sources[i]; s.File != "" {
			is, err := s.reload(all)
			changed = changed || is
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	if changed {
		if err := t.publish(); err != nil {
			return false, errors.Join(append(errs, err)...)
		}
	}
	return changed, errors.Join(errs...)
}

// publish makes the latest version of each token known to Find, unless two are the same: then
// the caller would be ambiguous.
func (t *Tokens) publish() error {
	known := make([]knownToken, len(t.sources))
	for i := range t.sources {
		s := &t.sources[i]
		for _, other := range known[:i] {
			if other.digest == s.latest {
				return fmt.Errorf("tokens %q and %q are the same", other.Name, s.Name)
			}
		}
		known[i] = knownToken{Caller{Name: s.Name, Scope: s.Scope, By: ByToken}, s.latest}
	}
	t.known.Store(&known)
	return nil
}

func (s *tokenSource) reload(always bool) (changed bool, err error) {
	contents, changed, err := s.files.Read()
	if !changed && !always {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("token %q: %w", s.Name, err)
	}
	if err := s.take(contents[0]); err != nil {
		return false, err
	}
	return changed, nil
}

func (s *tokenSource) take(text []byte) error {
	text = bytes.TrimRight(text, "\r\n")
	switch {
	case len(text) == 0 && s.Env != "":
		// The error leaves out the variable's name, which may be the token, put there by mistake.
		return fmt.Errorf("token %q: the environment variable named in env is not set", s.Name)
	case len(text) < shortestToken:
		return fmt.Errorf("token %q: too short: want at least %d bytes, for example from openssl rand -hex 32", s.Name, shortestToken)
	case bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("token %q: a token is one line of visible ASCII characters, without blanks", s.Name)
	}
	s.latest = sha256.Sum256(text)
	return nil
}

// String names the tokens.
func (t *Tokens) String() string {
	if t == nil {
		return "no tokens"
	}
	var names []string
	for i := range t.sources {
		names = append(names, t.sources[i].Name)
	}
	return "tokens of " + strings.Join(names, ", ")
}

// GoString is String.
func (t *Tokens) GoString() string { return t.String() }

// Format prints String under every verb, also verbs that would print digests.
func (t *Tokens) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(t.String())) }

// LogValue is String.
func (t *Tokens) LogValue() slog.Value { return slog.StringValue(t.String()) }
