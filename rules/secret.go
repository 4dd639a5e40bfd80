package rules

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/stintdev/stint/internal/yamlnode"
)

// Secrets are the texts by which the function hmac makes keys. No expression can
// read one, and none is printed. NewSecrets makes it with all names that it will
// ever have; what they hold may change at any time, and several goroutines may use
// it at once. A nil Secrets has none.
type Secrets struct {
	values map[string]any // each a *secret, as CEL finds them
}

// NewSecrets is a Secrets with these names, none of which holds anything yet.
func NewSecrets(names ...string) *Secrets {
	s := &Secrets{values: make(map[string]any, len(names))}
	for _, name := range names {
		s.values[name] = &secret{name: name}
	}
	return s
}

// Set makes value what the name holds. It panics if s does not have the name.
func (s *Secrets) Set(name string, value []byte) {
	value = slices.Clone(value)
	s.values[name].(*secret).macs.Store(&sync.Pool{New: func() any { return hmac.New(sha256.New, value) }})
}

// Names are those that s has, in order.
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

// secret is the value of secrets.NAME. It is of a type that only hmac takes.
type secret struct {
	name string
	macs atomic.Pointer[sync.Pool] // of hash.Hash; nil: not read yet
}

var secretType = cel.OpaqueType("secret")

// sum is the HMAC-SHA256 of text in hexadecimal; false: the secret was not read yet.
func (s *secret) sum(text string) (string, bool) {
	macs := s.macs.Load()
	if macs == nil {
		return "", false
	}
	mac := macs.Get().(hash.Hash)
	mac.Reset()
	mac.Write([]byte(text))
	var sum [sha256.Size]byte
	mac.Sum(sum[:0])
	macs.Put(mac)
	return hex.EncodeToString(sum[:]), true
}

var errSecret = errors.New("a secret is for hmac only")

// ConvertToNative implements ref.Val.
func (*secret) ConvertToNative(reflect.Type) (any, error) { return nil, errSecret }

// ConvertToType implements ref.Val.
func (*secret) ConvertToType(ref.Type) ref.Val { return types.WrapErr(errSecret) }

// Equal implements ref.Val.
func (*secret) Equal(ref.Val) ref.Val { return types.WrapErr(errSecret) }

// Type implements ref.Val.
func (*secret) Type() ref.Type { return secretType }

// Value implements ref.Val.
func (*secret) Value() any { return errSecret }

// secretUse is where an expression names a secret, offset characters from its
// beginning.
type secretUse struct {
	name   string
	offset int
}

// secretAt is where a file names a secret.
type secretAt struct {
	name, file   string
	line, column int
}

// takesSecret looks at the first argument of hmac, which must be a secret by its name.
func (i *inspector) takesSecret(e ast.Expr) {
	var of ast.Expr
	var name string
	var ok bool
	switch {
	case e.Kind() == ast.SelectKind:
		of, name, ok = e.AsSelect().Operand(), e.AsSelect().FieldName(), !e.AsSelect().IsTestOnly()
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
		of = e.AsCall().Args()[0]
		name, ok = literal(e.AsCall().Args()[1])
	}
	if !ok || !i.isVariable(of, "secrets") {
		i.note(e, "hmac takes a secret, as in hmac(secrets.pepper, client.ip)")
		return
	}
	i.proper[of.ID()] = true
	i.secrets = append(i.secrets, secretUse{name, startOf(i.checked, of.ID())})
}

// secretsStay refuses every use of secrets but as hmac(secrets.NAME, …): what compares
// secrets, or lists them, could tell something of them.
func (i *inspector) secretsStay(e ast.Expr) {
	if i.isVariable(e, "secrets") && !i.proper[e.ID()] && len(i.problems) == 0 {
		i.note(e, "secrets are for hmac only, as in hmac(secrets.pepper, client.ip)")
	}
}

// noSecret is what is wrong with a name that s does not have.
func (s *Secrets) noSecret(name string) string {
	text := fmt.Sprintf("there is no secret %q under server.secrets", clip(name))
	if near := yamlnode.Nearest(name, s.Names()); near != "" {
		text += ": did you mean " + near + "?"
	}
	return text
}

func (s *Secrets) has(name string) bool {
	if s == nil {
		return false
	}
	_, ok := s.values[name]
	return ok
}

// lacking is an error of the places where s names secrets that known does not have.
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
