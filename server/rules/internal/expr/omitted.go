package expr

import (
	"net/netip"
	"slices"
)

// omissible are the parts of a request that a client may leave out.
var omissible = []string{"request.headers", "request.query", "request.cookies", "request.credential", "body"}

// Omits reports whether a Key has no text for a request without the optional parts: headers, parameters,
// cookies, the credential and the body. It is false for a key that needs attributes or claims, which the
// client does not send.
func (e *Expression) Omits() bool {
	if e.Uses("attrs") || e.Uses("claims") || !slices.ContainsFunc(omissible, e.Uses) {
		return false
	}
	s := Scope{Variables: Variables{
		HasRequest: true, Method: "GET", Path: "/", Host: "localhost", Route: "route", Operation: "operation", Client: netip.IPv6Loopback(), IPv6Prefix: 64,
		Headers: noFields{}, Query: noFields{}, Cookies: noFields{}, Body: noBody{}, Secrets: map[string]any{}, Lists: map[string]*List{},
	}}
	for _, use := range e.Outside {
		if use.IsList {
			s.Lists[use.Name] = NewList(use.Name)
			s.Lists[use.Name].Set(new(Networks))
		} else {
			s.Secrets[use.Name] = NewSecret(use.Name)
		}
	}
	const most = 1024
	_, ok, err := e.Key(&s, most)
	return !ok && err == nil
}

// ReadsSame reports whether e and other read the same header, or another part of a request that a
// client may leave out.
func (e *Expression) ReadsSame(other *Expression) bool {
	for _, part := range omissible {
		if part == "request.headers" {
			continue
		}
		if e.Uses(part) && other.Uses(part) {
			return true
		}
	}
	return slices.ContainsFunc(e.Headers, func(name string) bool { return slices.Contains(other.Headers, name) })
}

// noFields are the headers, parameters or cookies of a request without any.
type noFields struct{}

func (noFields) Lookup(string) (string, bool, error) { return "", false, nil }
func (noFields) All() (map[string]string, error)     { return nil, nil }

// noBody is a body without fields.
type noBody struct{}

func (noBody) Lookup([]string) (any, bool, error) { return nil, false, nil }
