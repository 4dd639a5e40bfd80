package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

const (
	sha256Overload = "sha256_string"
	hmacOverload   = "hmac_secret_string"
)

// hashes declares the functions sha256 and hmac.
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

// looksHashed tells whether the functions may give k.
func looksHashed(k Key) bool {
	return len(k) == 2*sha256.Size && strings.Trim(string(k), "0123456789abcdef") == ""
}

// hashCost is that of looking through the text, which is the argument at this place.
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
	s, ok := of.(*secret)
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
