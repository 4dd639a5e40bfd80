package httpfield

import (
	"encoding/base64"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CredentialHeaders are the default headers for a client's credential.
var CredentialHeaders = []string{"Authorization", "X-Api-Key", "Api-Key"}

// A Credential is the credential in the headers of a request. Add each of them. The zero
// Credential: none.
type Credential struct {
	// Text is the same however a client writes it: the token of Bearer and of other schemes, the user
	// and password of Basic as "user:password", the value of other headers. Empty: none. After Add
	// has returned false, it is a guess.
	Text string
}

// Add adds the value of the header with this canonical name. It returns false if servers read the
// value in different ways, or if it is another credential than that of a header before.
func (c *Credential) Add(name, value string) bool {
	value = strings.Trim(value, " \t")
	text, ok := value, isToken(value)
	if name == "Authorization" || name == "Proxy-Authorization" {
		text, ok = ofAuthorization(value)
	}
	if text == "" || c.Text == text {
		return ok
	}
	if c.Text != "" {
		return false
	}
	c.Text = text
	return ok
}

// SplitAuthorization splits the value of the header Authorization into the scheme, in lower case, and
// the rest. Schemes are case-insensitive (RFC 9110 §11.1). One or more spaces follow (§11.4); servers
// also accept tabs. Without them, the whole value is the scheme.
func SplitAuthorization(value string) (scheme, rest string) {
	value = strings.Trim(value, " \t")
	end := strings.IndexAny(value, " \t")
	if end < 0 {
		return strings.ToLower(value), ""
	}
	scheme, rest = value[:end], strings.TrimLeft(value[end:], " \t")
	if scheme == "Bearer" { // as nearly all write it
		return "bearer", rest
	}
	return strings.ToLower(scheme), rest
}

// tokenSchemes are schemes with a token, which some servers cut off somewhere. Other schemes may
// have parameters, like Digest.
var tokenSchemes = []string{"bearer", "token", "basic", "apikey", "api-key", "key", "dpop"}

func ofAuthorization(value string) (text string, ok bool) {
	scheme, rest := SplitAuthorization(value)
	switch known := slices.Contains(tokenSchemes, scheme); {
	case rest == "" && known:
		return "", true
	case rest == "": // some servers want no scheme
		return value, isToken(value)
	case scheme == "basic":
		return ofBasic(rest)
	case scheme == "negotiate", scheme == "ntlm": // of a connection
		return "", isToken(rest)
	case isToken(rest) && !strings.Contains(strings.TrimRight(rest, "="), "="):
		return ofToken(rest), true
	case known || !strings.Contains(rest, "=") || namesScheme(rest):
		return rest, false
	}
	return "", true // new parameters with each request
}

// namesScheme reports whether servers that look for a scheme anywhere may find one in text.
func namesScheme(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "bearer") || strings.Contains(text, "basic")
}

// isToken reports whether all servers read all of text as one token.
func isToken(text string) bool { return consistsOf(text, isTokenByte) }

func isTokenByte(c byte) bool {
	return c > ' ' && c < 0x7f && c != '"' && c != ',' && c != ';' && c != '\\'
}

// urlAlphabet is base64url's; toURL converts the other one into it.
const urlAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

var toURL = strings.NewReplacer("+", "-", "/", "_")

// ofToken is a token. The last part of a JWT is base64url, which has several spellings of the same
// bytes; the parts before are signed as they are written.
func ofToken(token string) string {
	if strings.Count(token, ".") != 2 {
		return token
	}
	start := strings.LastIndexByte(token, '.') + 1
	signature := toURL.Replace(strings.TrimRight(token[start:], "="))
	if last := len(signature) - 1; last >= 0 {
		digit := strings.IndexByte(urlAlphabet, signature[last])
		unused := [...]int{2: 0xf, 3: 0x3}[len(signature)%4] // unused bits
		if digit >= 0 && digit&unused != 0 {
			signature = signature[:last] + urlAlphabet[digit&^unused:][:1]
		}
	}
	if signature == token[start:] {
		return token
	}
	return token[:start] + signature
}

// ofBasic is the user and the password, which are in base64.
func ofBasic(text string) (pair string, ok bool) {
	bytes, err := decoded(text)
	if err != nil || len(bytes) == 0 {
		return text, false
	}
	pair = string(bytes)
	if !utf8.Valid(bytes) { // then it is Latin-1, as of older browsers
		runes := make([]rune, len(bytes))
		for i, b := range bytes {
			runes[i] = rune(b)
		}
		pair = string(runes)
	}
	if !strings.Contains(pair, ":") { // some servers take it for a user without a password
		pair += ":"
	}
	return pair, strings.IndexFunc(pair, unicode.IsControl) < 0
}

// decoded reads base64 of either alphabet, with or without padding.
func decoded(text string) ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(toURL.Replace(strings.TrimRight(text, "=")))
}
