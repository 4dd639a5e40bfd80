// Package claimstest makes tokens and their keys for tests.
package claimstest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// Key is a key that signs tokens.
type Key struct {
	Private   crypto.Signer
	Algorithm jose.SignatureAlgorithm
	ID        string
}

// Keys has one key of each kind. Making them takes a while.
var Keys = sync.OnceValue(func() map[string]*Key {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	e, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, d, err3 := ed25519.GenerateKey(rand.Reader)
	if err != nil || err2 != nil || err3 != nil {
		panic(fmt.Sprint(err, err2, err3))
	}
	return map[string]*Key{
		"RS256": {r, jose.RS256, "r1"}, "ES256": {e, jose.ES256, "e1"}, "EdDSA": {d, jose.EdDSA, "d1"},
	}
})

// JWKS is a JWK Set of the public keys of all.
func JWKS(t testing.TB, all ...*Key) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, k := range all {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Private.Public(), KeyID: k.ID, Use: "sig", Algorithm: string(k.Algorithm)})
	}
	data, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Sign makes a token of a payload.
func (k *Key) Sign(t testing.TB, payload string) string {
	t.Helper()
	options := new(jose.SignerOptions).WithType("JWT")
	if k.ID != "" {
		options.WithHeader("kid", k.ID)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: k.Algorithm, Key: k.Private}, options)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
