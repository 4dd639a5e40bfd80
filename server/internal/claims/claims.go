// Package claims reads clients' tokens (JSON Web Tokens), verifies them with keys that it reads or fetches,
// and returns their claims, for the variable claims of expressions.
package claims

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/strictjson"
	"github.com/stintdev/stint/server/rules"
)

// longestToken is the size of the longest token that is read, in bytes.
const longestToken = 16 << 10

// Reader returns the claims of clients' tokens, if they are valid. New makes it. It may be used from many
// goroutines at once. A nil Reader has no keys to read or fetch.
type Reader struct {
	config.JWT
	Client  *http.Client // fetches keys
	allowed []jose.SignatureAlgorithm
	keys    atomic.Pointer[keyring] // nil: none are known yet

	bytes          int64  // of verified tokens
	valid, invalid func() // count tokens that were read

	file    readfile.Watched
	log     *slog.Logger
	wanted  chan struct{} // has one element if a token names an unknown key
	failed  func()        // counts attempts to fetch keys that failed
	failure string        // of the last attempt to fetch keys, to log each failure once
}

// keyring is a JWK Set and the tokens that it verified. When the keys change, the verified
// tokens are dropped.
type keyring struct {
	keySet
	digest [sha256.Size]byte // of the text of the keys
	seen   seenTokens
}

// Options has a Reader's needs beside the settings. All fields are required.
type Options struct {
	Client *http.Client // that fetches keys: see NewClient
	Log    *slog.Logger
	// Bytes bounds the memory for verified tokens.
	Bytes int64
	// Valid, Invalid and Failed are called for each token that is valid or not, and for each
	// attempt to fetch keys that fails.
	Valid, Invalid, Failed func()
}

// New returns a Reader without keys: Reload reads their file, Follow fetches them.
func New(j *config.JWT, o Options) *Reader {
	r := &Reader{
		JWT: *j, allowed: algorithms(j), log: o.Log, Client: o.Client, wanted: make(chan struct{}, 1),
		file:  readfile.Watched{Paths: []string{j.KeysFile}},
		bytes: o.Bytes, valid: o.Valid, invalid: o.Invalid, failed: o.Failed,
	}
	r.Header = http.CanonicalHeaderKey(cmp.Or(r.Header, "Authorization"))
	return r
}

// CanRead reports whether keys were ever read, or none are needed. Until then no token is valid.
func (t *Reader) CanRead() bool { return t.Trusted || t.keys.Load() != nil }

// Of returns the claims of r's token; nil: it has no valid one. It is
// rules.Instance.Claims.
func (t *Reader) Of(r *rules.Request) map[string]any {
	text, err := t.find(r.Header)
	if text == "" && err == nil {
		return nil
	}
	var is token
	if err == nil {
		is, err = t.read(text, time.Now())
	}
	if err != nil {
		t.invalid()
		return nil
	}
	t.valid()
	return is.claims
}

// find is the text of the token; "": there is none.
func (t *Reader) find(h http.Header) (string, error) {
	lines := h[t.Header]
	if len(lines) == 0 {
		return "", nil
	}
	if len(lines) > 1 {
		return "", errors.New("the header is given twice")
	}
	text := strings.TrimSpace(lines[0])
	switch scheme, rest := httpfield.SplitAuthorization(text); {
	case rest != "" && scheme == "bearer":
		text = rest
	case t.Header == "Authorization": // another scheme, such as Basic
		return "", nil
	}
	if len(text) > longestToken {
		return "", fmt.Errorf("it is longer than %d bytes", longestToken)
	}
	return text, nil
}

// token has the contents of a token. Its signature was verified, or need not be.
type token struct {
	claims map[string]any
	// notBefore and until are seconds since 1970; until 0: it does not expire.
	notBefore, until int64
}

// read returns the contents of a token, or why it is not valid at now.
func (t *Reader) read(text string, now time.Time) (token, error) {
	if t.Trusted {
		is, err := t.decoded(text)
		if err != nil {
			return token{}, err
		}
		return is, cmp.Or(t.isForUs(&is), t.isTimely(&is, now))
	}
	ring := t.keys.Load()
	if ring == nil {
		return token{}, errors.New("no keys are known yet")
	}
	digest := sha256.Sum256([]byte(text))
	is, ok := ring.seen.get(digest, t.bytes)
	if !ok {
		var err error
		if is, err = t.verified(text, ring); err != nil {
			return token{}, err
		}
		ring.seen.put(digest, is, bytesOf(is.claims), t.bytes)
	}
	return is, t.isTimely(&is, now)
}

// verified returns the contents of a token that one of the keys has signed, even if it has expired.
func (t *Reader) verified(text string, ring *keyring) (token, error) {
	signed, err := jose.ParseSignedCompact(text, t.allowed)
	if err != nil {
		return token{}, errors.New("it is not a signed token, or its algorithm is not allowed")
	}
	for part := range strings.SplitSeq(text, ".") {
		if _, err := encoding.DecodeString(part); err != nil {
			return token{}, errBase64
		}
	}
	header := &signed.Signatures[0].Protected
	key, err := ring.find(header.KeyID, header.Algorithm)
	if err != nil {
		if errors.Is(err, errUnknownKey) {
			t.want()
		}
		return token{}, err
	}
	payload, err := signed.Verify(key)
	if err != nil {
		return token{}, errors.New("its signature is wrong")
	}
	is, err := readClaims(payload)
	if err != nil {
		return token{}, err
	}
	return is, t.isForUs(&is)
}

// decoded returns the contents of a token whose signature others have verified.
func (t *Reader) decoded(text string) (token, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return token{}, errors.New("it is not a signed token: want three parts separated by dots")
	}
	header, err := decodedPart(parts[0])
	if err != nil {
		return token{}, err
	}
	if name, _ := header["alg"].(string); name == "" || strings.EqualFold(name, "none") {
		return token{}, errors.New("it is not signed: its algorithm is none")
	}
	payload, err := encoding.DecodeString(parts[1])
	if err != nil {
		return token{}, errBase64
	}
	return readClaims(payload)
}

// encoding accepts only one spelling of the same bytes: otherwise one token would be remembered under
// thousands of spellings.
var encoding = base64.RawURLEncoding.Strict()

var errBase64 = errors.New("it is not in base64url")

func decodedPart(text string) (map[string]any, error) {
	data, err := encoding.DecodeString(text)
	if err != nil {
		return nil, errBase64
	}
	return objectOf(data)
}

// objectOf reads an object strictly: if a member occurs twice, other programs might use the
// other one.
func objectOf(data []byte) (map[string]any, error) {
	r, err := strictjson.New(string(data))
	if err != nil {
		return nil, errors.New("it holds no JSON object")
	}
	object, err := r.Map()
	if err := r.End(err); err != nil {
		return nil, errors.New("it holds no JSON object, or one with the same member twice")
	}
	return object, nil
}

func readClaims(payload []byte) (is token, err error) {
	if is.claims, err = objectOf(payload); err != nil {
		return token{}, err
	}
	if is.notBefore, err = is.instant("nbf"); err == nil {
		is.until, err = is.instant("exp")
	}
	if err == nil && is.until <= 0 && is.claims["exp"] != nil {
		err = errors.New("its exp is not a time since 1970")
	}
	return is, err
}

// instant is a claim in whole seconds since 1970; 0: there is none.
func (t *token) instant(name string) (int64, error) {
	switch v := t.claims[name].(type) {
	case nil:
		return 0, nil
	case int64:
		return v, nil
	case float64:
		const most = 1 << 53
		if v >= 0 && v < most {
			return int64(v), nil
		}
	}
	return 0, fmt.Errorf("its %s is not a time since 1970", name)
}

func (t *Reader) isForUs(is *token) error {
	if t.Issuer != "" && is.claims["iss"] != any(t.Issuer) {
		return errors.New("its iss is not the issuer")
	}
	if t.Audience == "" {
		return nil
	}
	switch aud := is.claims["aud"].(type) {
	case string:
		if aud == t.Audience {
			return nil
		}
	case []any:
		if slices.Contains(aud, any(t.Audience)) {
			return nil
		}
	}
	return errors.New("its aud does not hold the audience")
}

// isTimely returns why a token is not valid at now, or nil.
func (t *Reader) isTimely(is *token, now time.Time) error {
	leeway := int64(t.Leeway / time.Second)
	switch seconds := now.Unix(); {
	case is.until != 0 && seconds-leeway >= is.until:
		return fmt.Errorf("it expired at %s", time.Unix(is.until, 0).UTC().Format(time.RFC3339))
	case is.notBefore > seconds+leeway:
		return fmt.Errorf("it is not valid before %s", time.Unix(is.notBefore, 0).UTC().Format(time.RFC3339))
	}
	return nil
}

// Describe says in a sentence whether a request has a valid token.
func (t *Reader) Describe(h http.Header) string {
	where := "The token in the header " + t.Header
	text, err := t.find(h)
	switch {
	case err == nil && text == "":
		return "There is no token in the header " + t.Header + ", so there are no claims."
	case err == nil:
		var is token
		if is, err = t.read(text, time.Now()); err == nil && is.until != 0 {
			return fmt.Sprintf("%s is valid until %s.", where, time.Unix(is.until, 0).UTC().Format(time.RFC3339))
		}
	}
	if err != nil {
		return fmt.Sprintf("%s is not valid, so there are no claims: %s.", where, err)
	}
	return where + " is valid."
}

// seenTokens remembers verified tokens, by the SHA-256 of their texts, within a bound of bytes. It drops
// those unused for longest.
type seenTokens struct {
	mu         sync.Mutex
	young, old map[[sha256.Size]byte]seenToken
	bytes      int64 // of young, at most half of the bound
}

type seenToken struct {
	token
	bytes int64
}

// bytesOf is about the most bytes that a claim takes; TestBytesOfTokens compares it with the heap.
func bytesOf(v any) (n int64) {
	const (
		value   = 32  // in a list, which grows by doubling
		object  = 400 // a map with room for eight members
		members = 110 // for another one, while the map grows
	)
	switch v := v.(type) {
	case string:
		return 32 + int64(len(v)) + int64(len(v)/8)
	case []any:
		n = 32
		for _, e := range v {
			n += value + bytesOf(e)
		}
	case map[string]any:
		if len(v) == 0 {
			return 64
		}
		n = object + members*int64(max(0, len(v)-8))
		for name, e := range v {
			n += 16 + int64(len(name)) + bytesOf(e)
		}
	default:
		n = 16
	}
	return n
}

func (s *seenTokens) get(digest [sha256.Size]byte, most int64) (token, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, ok := s.young[digest]
	if !ok {
		if is, ok = s.old[digest]; ok {
			s.add(digest, is, most)
		}
	}
	return is.token, ok
}

func (s *seenTokens) put(digest [sha256.Size]byte, is token, bytes, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(digest, seenToken{is, bytes}, most)
}

// add adds is to the young ones. s.mu is held.
func (s *seenTokens) add(digest [sha256.Size]byte, is seenToken, most int64) {
	if is.bytes > most/2 {
		return
	}
	if s.young == nil || s.bytes+is.bytes > most/2 {
		s.young, s.old, s.bytes = make(map[[sha256.Size]byte]seenToken), s.young, 0
	}
	if _, known := s.young[digest]; !known {
		s.bytes += is.bytes
	}
	s.young[digest] = is
}

// algorithms are the algorithms that j allows, under the names of the library.
func algorithms(j *config.JWT) []jose.SignatureAlgorithm {
	names := j.Algorithms
	if len(names) == 0 {
		names = config.JWTAlgorithms()
	}
	all := make([]jose.SignatureAlgorithm, len(names))
	for i, name := range names {
		all[i] = jose.SignatureAlgorithm(name)
	}
	return all
}
