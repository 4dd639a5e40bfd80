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
)

// JWT says where requests bear the tokens of clients (JSON Web Tokens) and when one is
// valid. Expressions find what a valid one says in claims.
type JWT struct {
	// Header is the header with the token, in canonical form. In Authorization, the
	// token comes after "Bearer"; in others that word may be missing.
	Header string
	// KeysFile, KeysURL or Trusted is given. KeysFile is a file with a JWK Set, which
	// is read again when it changes; KeysURL is where one is fetched from, every 15
	// minutes and when a token names a key that is not known. Trusted means that who
	// stands before this instance has verified the signature: then it is not looked
	// at, and tokens are believed of trusted_proxies alone, and in checks.
	KeysFile, KeysURL string
	Trusted           bool
	// Issuer and Audience, if they are not empty, must be what the token says in iss,
	// and one of what it says in aud.
	Issuer, Audience string
	// Algorithms are those that signatures may have. Empty: all of JWTAlgorithms.
	Algorithms []string
	// Leeway is by how much clocks may differ when it is told whether a token has
	// expired, or is not valid yet.
	Leeway time.Duration
}

// JWTAlgorithms are the algorithms of signatures that are known here. All have public
// keys: with a key that is shared, whoever verifies tokens could make them.
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
		why = ", for whoever has the key of a symmetric one can make tokens"
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

// KeysInTheClear reports whether keys come from another machine unencrypted, so that
// somebody between the two can replace them.
func (j *JWT) KeysInTheClear() bool {
	u, err := url.Parse(j.KeysURL)
	return err == nil && u.Scheme == "http" && !httpfield.IsLoopback(u.Hostname())
}
