// Package caller finds the address of a gRPC caller.
package caller

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"google.golang.org/grpc/peer"
)

// Address is the address of a call's connection. It is invalid if the connection has none, as for a unix
// socket.
func Address(ctx context.Context) netip.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(*net.TCPAddr); ok {
			return a.AddrPort().Addr()
		}
	}
	return netip.Addr{}
}

// Of is Address for a room.Room, which divides its places among the addresses of callers.
func Of(ctx context.Context) func(*http.Request) netip.Addr {
	return func(*http.Request) netip.Addr { return Address(ctx) }
}
