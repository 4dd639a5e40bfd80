package httplimit

import (
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/httpfield"
)

// A Key says whom or what a request counts for; "" means that the limit does not
// apply. What it returns may be any bytes. It is called from many goroutines at
// once.
//
// Keys are kept in the store, and shown to who looks into it, as they are: a key
// that is a secret should be hashed first. They are also limited to
// stint.MaxKey bytes; a request with a longer one is answered with 400.
//
// Count by what the server recognized, such as an address, a user or a Route,
// rather than by raw text such as URL.Path, of which a client can invent as many
// as it likes.
type Key func(r *http.Request) string

// Header counts by the value of a header. "Host" is the request's Host. A request that
// lacks it is not limited, and anyone can leave out a header or invent its value: limit
// by it only what has been checked, or Join it with the client's address.
//
// A request is answered with 400 in which it comes in several lines, of which others
// might take another one, or with a header that some servers take for it, as X_User for
// X-User. The lines of a header that is a list by HTTP, such as Accept-Language, are
// joined.
func Header(name string) Key {
	name = http.CanonicalHeaderKey(name)
	if name == "Host" {
		return func(r *http.Request) string { return r.Host }
	}
	return func(r *http.Request) string {
		switch lines := r.Header[name]; {
		case httpfield.HasTwin(r.Header, name), len(lines) > 1 && !httpfield.IsList(name):
			return ambiguous
		case len(lines) == 0:
			return ""
		case len(lines) == 1:
			return textproto.TrimString(lines[0]) // which HTTP/2 leaves as it came
		default:
			return httpfield.Joined(name, lines)
		}
	}
}

// ambiguous is the key of requests that could be counted under several. It is longer
// than any key may be, and so is whatever Join makes of it.
var ambiguous = strings.Repeat("?", stint.MaxKey+1)

// PathValue counts by what a wildcard of the matched pattern holds; see
// http.Request.PathValue. It works only in handlers that are registered with a
// http.ServeMux: outside of it nothing has been matched yet, and the limit would
// not apply.
func PathValue(name string) Key {
	return func(r *http.Request) string { return r.PathValue(name) }
}

// Route counts by method and pattern, such as "GET /items/{id}", so that all
// items are one. It is a Key. A pattern with a method is taken as it is, so that
// HEAD counts as the GET that it matches; methods that net/http has no name for
// count as one. As with PathValue, outside of a http.ServeMux there is no
// pattern yet: there, all requests of a method are counted as one.
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

// Join counts by all of several keys together. No two different lists of parts
// give the same key, whatever bytes they hold. A part may be empty, so that
// leaving out one of several headers does not free a request from the limit; if
// all are empty, so is the key.
func Join(keys ...Key) Key {
	return func(r *http.Request) string {
		var b []byte
		empty := true
		for _, key := range keys {
			part := key(r)
			empty = empty && part == ""
			// The length goes first: no separator is needed, so none can be forged.
			b = strconv.AppendInt(b, int64(len(part)), 10)
			b = append(b, ':')
			b = append(b, part...)
		}
		if empty {
			return ""
		}
		return string(b)
	}
}
