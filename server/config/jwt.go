package config

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// JWT says which header has the clients' tokens (JSON Web Tokens), and when a token is valid. Expressions
// read the claims of a valid one.
type JWT struct {
	// Header is the header with the token, in canonical form. In Authorization, the
	// token comes after "Bearer"; in other headers that word is optional.
	Header string
	// Exactly one of KeysFile, KeysURL and Trusted is given. KeysFile is a file with a JWK Set, which is read
	// again when it changes. KeysURL is the URL of one, which is fetched every 15 minutes and when a token
	// names an unknown key. Trusted means that a proxy before this instance has verified the signature: it is
	// not checked, and only tokens from trusted_proxies and in checks are believed.
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

func (j *JWT) rows(r *yamlnode.Reader) schema.Rows {
	return schema.Rows{
		{Name: "header", Value: schema.Parsed(r, &j.Header, parseTokenHeader, schema.Scalar("header", "^[A-Za-z0-9-]+$")), Default: "Authorization", Example: "X-Token",
			Says: "The header with the token, after \"Bearer\", which only Authorization requires."},
		{Name: "jwks_file", Value: schema.Text(r, &j.KeysFile, "file"), Example: "/etc/stint/jwks.json", Reread: true, Instead: []string{"jwks_url", "trusted"}, Not: []string{"jwks_url", "trusted"},
			Says: "File with the keys of tokens, a JWK Set."},
		{Name: "jwks_url", Value: schema.Parsed(r, &j.KeysURL, parseKeysURL, webURL).Expanding(r), Example: "https://id.example.com/.well-known/jwks.json", Not: []string{"trusted"},
			Says: "URL of a JWK Set, fetched every 15 minutes, and when a token names an unknown key."},
		{Name: "trusted", Value: schema.Bool(r, &j.Trusted), Default: "false", Example: "true",
			Says: "A proxy verifies signatures, and Stint does not. Only tokens from trusted_proxies and in checks count."},
		{Name: "issuer", Value: schema.Text(r, &j.Issuer, "text"), Example: `"https://id.example.com"`,
			Says: "The iss that a token must have. Without it, any."},
		{Name: "audience", Value: schema.Text(r, &j.Audience, "text"), Example: "api",
			Says: "A value that a token's aud must contain. Without it, any."},
		{Name: "algorithms", Value: schema.List(r, &j.Algorithms, parseAlgorithm, schema.Words(JWTAlgorithms()...)), Computed: "all of them", Example: "[ES256]", Not: []string{"trusted"},
			Says: "The signature algorithms that tokens may use."},
		{Name: "leeway", Value: schema.Duration(r, "leeway", &j.Leeway, 0, hour), Default: "30s",
			Says: "How far clocks may differ for the times in a token."},
	}
}

// readJWT is the section jwt of the settings.
func readJWT(r *yamlnode.Reader, to **JWT) schema.Value {
	return schema.Optional(r, to, func(j *JWT) schema.Rows { return j.rows(r) }, func(j *JWT, n *yamlnode.Node, fields map[string]*yamlnode.Node) {
		given := 0
		for _, is := range [...]bool{j.KeysFile != "", fields["jwks_url"] != nil, j.Trusted} {
			if is {
				given++
			}
		}
		if given != 1 {
			r.Report(n, "jwt needs one of jwks_file, jwks_url and trusted: true, to verify tokens")
		}
		if j.Trusted && fields["algorithms"] != nil {
			r.Report(fields["algorithms"], "algorithms without keys: with trusted: true, signatures are not checked here")
		}
	})
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
	if !isWebURL(u, err) {
		return "", errors.New("want the URL of a JWK Set, such as https://id.example.com/.well-known/jwks.json")
	}
	return text, nil
}

// KeysInTheClear reports whether keys come from another machine unencrypted, so that an
// attacker on the network could replace them.
func (j *JWT) KeysInTheClear() bool { return isInTheClear(j.KeysURL) }

// claimsUnknown finds rules that need claims where no token is read.
func (s *Settings) claimsUnknown(set *rules.Set) (f rules.Finding, found bool) {
	why := ""
	switch {
	case s.JWT == nil:
		why = "the section server has no jwt"
	case s.JWT.Trusted && len(set.TrustedProxies) == 0:
		why = "jwt is trusted: true while trusted_proxies is empty"
	}
	return rules.Finding{Code: rules.CodeClaimsUnknown, Text: "the rules use claims, but " + why +
		", so only checks that send claims have any; configure how tokens are verified"}, why != "" && set.UsesClaims()
}
