package expr

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

const (
	sha256Overload = "sha256_string"
	hmacOverload   = "hmac_secret_string"
)

func hashes() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("sha256",
			cel.Overload(sha256Overload, []*cel.Type{cel.StringType}, cel.StringType, cel.UnaryBinding(hashOf))),
		cel.Function("hmac",
			cel.Overload(hmacOverload, []*cel.Type{secretType, cel.StringType}, cel.StringType, cel.BinaryBinding(hmacOf))),
		cel.CostModel(hashCost(sha256Overload, 0), hashCost(hmacOverload, 1)),
	}
}

func isHash(function string) bool { return function == "sha256" || function == "hmac" }

// IsHash reports whether text may be a result of sha256 or hmac.
func IsHash(text string) bool {
	return len(text) == 2*sha256.Size && strings.Trim(text, "0123456789abcdef") == ""
}

func hashCost(overload string, text int) cost.OverloadModel {
	return cost.Overload(overload,
		cost.EvalCost(cost.Sum(cost.Const(cost.CallCost), cost.StringScan(cost.Length(cost.Arg(text))))),
		cost.ResultSize(cost.Const(2*sha256.Size)))
}

func hashOf(v ref.Val) ref.Val {
	text, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	sum := sha256.Sum256([]byte(text))
	return types.String(hex.EncodeToString(sum[:]))
}

func hmacOf(of, v ref.Val) ref.Val {
	s, ok := of.(*Secret)
	if !ok {
		return types.MaybeNoSuchOverloadErr(of)
	}
	text, ok := v.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	sum, ok := s.sum(string(text))
	if !ok {
		return types.NewErr("the secret %q was not read yet", s.name)
	}
	return types.String(sum)
}

// Secret is the value of secrets.NAME, which only hmac can use. Set may be called at any time, and
// several goroutines may use a Secret at once.
type Secret struct {
	name string
	macs atomic.Pointer[sync.Pool] // of hash.Hash; nil: not read yet
}

// NewSecret is a Secret of this name without a value yet: using it is an error.
func NewSecret(name string) *Secret { return &Secret{name: name} }

// Set sets the value of s.
func (s *Secret) Set(value []byte) {
	value = slices.Clone(value)
	s.macs.Store(&sync.Pool{New: func() any { return hmac.New(sha256.New, value) }})
}

var secretType = cel.OpaqueType("secret")

// noSecrets is an error and not missing: a rule must not be skipped because a secret is absent.
var noSecrets = types.NewErrWithNodeID(-1, "no secrets are known here").(*types.Err)

// sum is the hexadecimal HMAC-SHA256; false: the secret was not read yet.
func (s *Secret) sum(text string) (string, bool) {
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

var errSecret = errors.New("only hmac may use a secret")

// ConvertToNative implements ref.Val.
func (*Secret) ConvertToNative(reflect.Type) (any, error) { return nil, errSecret }

// ConvertToType implements ref.Val.
func (*Secret) ConvertToType(ref.Type) ref.Val { return types.WrapErr(errSecret) }

// Equal implements ref.Val.
func (*Secret) Equal(ref.Val) ref.Val { return types.WrapErr(errSecret) }

// Type implements ref.Val.
func (*Secret) Type() ref.Type { return secretType }

// Value implements ref.Val.
func (*Secret) Value() any { return errSecret }
