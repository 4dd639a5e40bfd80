package config

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// JWT says in which header requests have the tokens of clients (JSON Web Tokens), and when
// a token is valid. Expressions read the claims of a valid one.
type JWT struct {
	// Header is the header with the token, in canonical form. In Authorization, the
	// token comes after "Bearer"; in others that word may be missing.
	Header string
	// One of KeysFile, KeysURL and Trusted is given. KeysFile is a file with a JWK Set,
	// which is read again when it changes. KeysURL is the URL of one, which is fetched
	// every 15 minutes and when a token names an unknown key. Trusted means that a proxy
	// before this instance has verified the signature: it is not checked, and only tokens
	// from trusted_proxies, and those in checks, are believed.
	KeysFile, KeysURL string
	Trusted           bool
	// Issuer, if it is not empty, must equal the token's iss. Audience, if it is not empty,
	// must be one of its aud.
	Issuer, Audience string
	// Algorithms are the signature algorithms that tokens may use. Empty: all of
	// JWTAlgorithms.
	Algorithms []string
	// Leeway is how much clocks may differ when the times in a token are checked.
	Leeway time.Duration
}

// JWTAlgorithms returns the supported signature algorithms. All of them use public keys:
// with a shared key, everyone who can verify a token could make one.
func JWTAlgorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

const (
	defaultLeeway = 30 * time.Second
	mostLeeway    = time.Hour
)

// readJWT makes a reader of the settings' "jwt".
func readJWT(r *yamlnode.Reader, to **JWT) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		j := &JWT{Header: "Authorization", Leeway: defaultLeeway}
		fields := r.Mapping(n, yamlnode.Fields{
			"header":     yamlnode.Parsed(r, &j.Header, parseTokenHeader),
			"jwks_file":  r.Text(&j.KeysFile),
			"jwks_url":   yamlnode.Parsed(r, &j.KeysURL, parseKeysURL),
			"trusted":    r.Bool(&j.Trusted),
			"issuer":     r.Text(&j.Issuer),
			"audience":   r.Text(&j.Audience),
			"algorithms": yamlnode.List(r, &j.Algorithms, parseAlgorithm),
			"leeway":     r.Period(&j.Leeway),
		})
		if fields == nil {
			return
		}
		*to = j
		given := 0
		for _, is := range [...]bool{j.KeysFile != "", fields["jwks_url"] != nil, j.Trusted} {
			if is {
				given++
			}
		}
		if given != 1 {
			r.Report(n, "jwt needs one of jwks_file, jwks_url and trusted: true: who verifies tokens, by which keys")
		}
		if j.Trusted && fields["algorithms"] != nil {
			r.Report(fields["algorithms"], "algorithms without keys: with trusted: true nobody looks at signatures here")
		}
		if j.Leeway < 0 || j.Leeway > mostLeeway {
			r.Report(fields["leeway"], "leeway must be from 0 to 1h")
		}
	}
}

func parseTokenHeader(text string) (string, error) {
	name, err := parseHeader(text)
	return http.CanonicalHeaderKey(name), err
}

func parseAlgorithm(text string) (string, error) {
	if slices.Contains(JWTAlgorithms(), text) {
		return text, nil
	}
	why := ""
	if strings.HasPrefix(text, "HS") {
		why = ", because anyone who has a symmetric key can make tokens"
	}
	return "", fmt.Errorf("algorithm %.60q: must be one of %s%s", text, strings.Join(JWTAlgorithms(), ", "), why)
}

func parseKeysURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", errors.New("want the URL of a JWK Set, such as https://id.example.com/.well-known/jwks.json")
	}
	return text, nil
}

// KeysInTheClear reports whether keys come from another machine unencrypted, so that an
// attacker on the network could replace them.
func (j *JWT) KeysInTheClear() bool {
	u, err := url.Parse(j.KeysURL)
	return err == nil && u.Scheme == "http" && !httpfield.IsLoopback(u.Hostname())
}

// claimsUnknown finds rules that need claims where no token is read.
func (s *Settings) claimsUnknown(set *rules.Set) (f rules.Finding, found bool) {
	why := ""
	switch {
	case s.JWT == nil:
		why = "the section server has no jwt"
	case s.JWT.Trusted && len(set.TrustedProxies) == 0:
		why = "jwt is trusted: true while trusted_proxies is empty"
	}
	return rules.Finding{Code: rules.CodeClaimsUnknown, Text: "the rules use claims, and " + why +
		", so that only checks which send claims have any; configure how tokens are verified"}, why != "" && set.UsesClaims()
}
