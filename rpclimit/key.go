package rpclimit

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/friend"
)

// A Key returns the key that a call counts under, any bytes. "" means that the call has no
// such value: stint.Anonymous says what happens then. A Key is called concurrently.
//
// The store keeps and shows keys unchanged: hash a key that is a secret. A call whose key is
// longer than stint.MaxKey bytes is answered with INVALID_ARGUMENT.
//
// Count by values that the server has verified. A client can invent any number of metadata
// values.
type Key func(ctx context.Context, c *Call) string

// Peer is a Key that counts by the address of the connection, as httplimit.Counted writes it: an
// IPv6 address by its /64 network, and all calls without an address as one client. Behind a
// proxy, use ClientKey.
func Peer(_ context.Context, c *Call) string { return httplimit.Counted(c.Peer, 0) }

// ClientKey counts by the client's address behind trusted proxies, which report it in metadata
// such as x-forwarded-for; see httplimit.Clients.
func ClientKey(clients httplimit.Clients) Key {
	return func(_ context.Context, c *Call) string {
		return httplimit.Counted(address(clients, c), clients.IPv6Bits)
	}
}

// address returns the address of the client of c, as for an HTTP request.
func address(clients httplimit.Clients, c *Call) netip.Addr {
	var r http.Request
	if c.Peer.IsValid() {
		r.RemoteAddr = c.Peer.String()
	}
	if clients.Believes(&r) {
		name := clients.Header
		if name == "" {
			name = "X-Forwarded-For"
		}
		r.Header = http.Header{http.CanonicalHeaderKey(name): c.Values(name)}
	}
	return clients.Addr(&r)
}

// Metadata counts by the metadata value of a name. The key of a call without it is "". A client can
// omit the value or invent it: use one that was verified, or Join it with the client's address. A
// call that has several values is answered with INVALID_ARGUMENT, because servers differ in which
// one they use.
func Metadata(name string) Key {
	return func(_ context.Context, c *Call) string {
		switch values := c.Values(name); len(values) {
		case 0:
			return ""
		case 1:
			return strings.Trim(values[0], " \t")
		}
		return ambiguous
	}
}

// ambiguous is the key of calls that servers could count under different keys. It is longer than
// MaxKey, also after Join, so such calls are refused.
var ambiguous = strings.Repeat("?", stint.MaxKey+1)

// Method is a Key that counts by the full name of the method. A server that has a handler for
// unknown methods should not use it: its clients can invent names.
func Method(_ context.Context, c *Call) string { return c.Method }

// Caller is a Key that counts by the subject or client of the context; see stint.Caller. Put the
// interceptor that calls stint.WithSubject before the one with the limits.
func Caller(ctx context.Context, _ *Call) string { return stint.Caller(ctx) }

// Target is a Key that counts outgoing calls by their server.
func Target(_ context.Context, c *Call) string { return c.Target }

// Join counts by several keys together. Different lists of parts never give the same key,
// whatever bytes they hold. A part may be empty, so that a client does not escape the limit by
// omitting one value. If all parts are empty, so is the key.
func Join(keys ...Key) Key {
	return func(ctx context.Context, c *Call) string {
		return stint.Internal(friend.Of{}).JoinKey(len(keys), func(i int) string { return keys[i](ctx, c) })
	}
}
