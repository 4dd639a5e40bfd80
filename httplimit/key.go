package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/httpfield"
)

// A Key returns the key that a request counts under, any bytes. "" means that the request has
// no such value: stint.Anonymous says what happens then. A Key is called concurrently.
//
// The store keeps and shows keys unchanged: hash a key that is a secret. A request whose
// key is longer than stint.MaxKey bytes is answered with 400.
//
// Count by values that the server has verified, such as an address, a user or a Route.
// A client can invent any number of raw values such as URL.Path.
type Key func(r *http.Request) string

// Header counts by the value of a header. "Host" is the request's Host. The key of a request
// without the header is "". A client can omit the header or invent its value: use a header
// that was verified, or Join it with the client's address.
//
// A request is answered with 400 if it has the header in several lines, because servers
// differ in which line they use, or if it has a header that some servers take for the same
// one, such as X_User for X-User. Lines of a header that is a list in HTTP, such as
// Accept-Language, are joined.
func Header(name string) Key {
	name = http.CanonicalHeaderKey(name)
	if name == "Host" {
		return func(r *http.Request) string { return r.Host }
	}
	return func(r *http.Request) string {
		value, ok := headerValue(r, name)
		if !ok {
			return ambiguous
		}
		return value
	}
}

// headerValue is the value of the header with this canonical name, "" if there is none. It is not
// ok if servers differ in how they read it.
func headerValue(r *http.Request, name string) (value string, ok bool) {
	switch lines := r.Header[name]; {
	case httpfield.HasTwin(r.Header, name), len(lines) > 1 && !httpfield.IsList(name):
		return "", false
	case len(lines) == 0:
		return "", true
	case len(lines) == 1:
		return textproto.TrimString(lines[0]), true // HTTP/2 keeps the spaces
	default:
		return httpfield.Joined(name, lines), true
	}
}

// Credential counts by the SHA-256, in hexadecimal, of the credential in headers with these names, by
// default Authorization, X-Api-Key and Api-Key: the token of Bearer, the user and the password of
// Basic, the value of the other headers. A credential has the same key however a client writes it.
// The key of a request without one, or with a scheme whose text changes with each request, such as
// Digest, is "". The key equals sha256(request.credential) in a rules file.
//
// A request is answered with 400 if servers read its credential in different ways, or if it has
// several. Name only the headers that your program reads.
func Credential(headers ...string) Key {
	names := httpfield.CredentialHeaders
	if len(headers) > 0 {
		names = make([]string, len(headers))
		for i, name := range headers {
			names[i] = http.CanonicalHeaderKey(name)
		}
	}
	return func(r *http.Request) string {
		var c httpfield.Credential
		for _, name := range names {
			if value, ok := headerValue(r, name); !ok || !c.Add(name, value) {
				return ambiguous
			}
		}
		return hashed(c.Text)
	}
}

// Cookie counts by the SHA-256, in hexadecimal, of the value of a cookie, without quotation marks
// around it and with its escapes decoded. The key of a request without the cookie is "". A request is
// answered with 400 if it has the cookie several times with different values, or a cookie that some
// servers take for it, such as session for SESSION.
func Cookie(name string) Key {
	return func(r *http.Request) string {
		header, ok := headerValue(r, "Cookie")
		if !ok {
			return ambiguous
		}
		value, more, _, twin := httpfield.FindCookie(header, name)
		if twin || slices.ContainsFunc(more, func(other string) bool { return other != value }) {
			return ambiguous
		}
		return hashed(value)
	}
}

// hashed is the key of a secret; "" for "".
func hashed(secret string) string {
	if secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// ambiguous is the key of requests that servers could count under different keys. It is
// longer than MaxKey, also after Join, so such requests are refused.
var ambiguous = strings.Repeat("?", stint.MaxKey+1)

// Subject is a Key that counts by the subject of the request's context, which an outer middleware has
// verified and set by stint.WithSubject. Without one, the key is "". A Guard without a Key counts by the
// same subject.
func Subject(r *http.Request) string {
	subject, _ := strings.CutPrefix(stint.Caller(stint.WithClient(r.Context(), "")), "subject=")
	return subject
}

// PathValue counts by the value of a wildcard in the matched pattern; see
// http.Request.PathValue. Use it only in handlers that are registered with a
// http.ServeMux: before the mux has matched a pattern, the key is "".
func PathValue(name string) Key {
	return func(r *http.Request) string { return r.PathValue(name) }
}

// Route is a Key that counts by method and pattern, such as "GET /items/{id}", so that
// all items count together. A pattern that has a method is used unchanged, so that HEAD
// counts as the GET that it matches. Methods that net/http has no name for count
// together. Before a http.ServeMux has matched a pattern, all requests of a method count
// together.
func Route(r *http.Request) string {
	if strings.ContainsAny(r.Pattern, " \t") {
		return r.Pattern
	}
	method := "OTHER"
	switch r.Method {
	case "":
		method = http.MethodGet
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		method = r.Method
	}
	return method + " " + r.Pattern
}

// Join counts by several keys together. Different lists of parts never give the same
// key, whatever bytes they hold. A part may be empty, so that a client does not escape
// the limit by omitting one header. If all parts are empty, so is the key.
func Join(keys ...Key) Key {
	return func(r *http.Request) string {
		return stint.Internal(friend.Of{}).JoinKey(len(keys), func(i int) string { return keys[i](r) })
	}
}
