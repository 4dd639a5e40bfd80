package rpclimit_test

import (
	"context"
	"net/http"
	"net/netip"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/rpclimit"
)

func TestKeys(t *testing.T) {
	md := metadata.Pairs("x-user", " ann ", "x-many", "a", "x-many", "b", "x-forwarded-for", "203.0.113.9, 192.0.2.7", "x-real-ip", "198.51.100.4")
	header := http.Header{}
	for name, values := range md {
		for _, v := range values {
			header.Add(name, v)
		}
	}
	ctx := stint.WithSubject(context.Background(), "bob")
	trusted := httplimit.Clients{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	realIP := trusted
	realIP.Header = "x-real-ip"
	for name, c := range map[string]struct {
		key  rpclimit.Key
		peer string
		want string
	}{
		"peer":                 {rpclimit.Peer, "192.0.2.1", "192.0.2.1"},
		"peer, NAT64":          {rpclimit.Peer, "64:ff9b::c000:201", "192.0.2.1"},
		"peer, IPv6":           {rpclimit.Peer, "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		"no peer":              {rpclimit.Peer, "", "unknown"},
		"client, trusted":      {rpclimit.ClientKey(trusted), "10.1.2.3", "192.0.2.7"},
		"client, not trusted":  {rpclimit.ClientKey(trusted), "192.0.2.1", "192.0.2.1"},
		"client, other header": {rpclimit.ClientKey(realIP), "10.1.2.3", "198.51.100.4"},
		"client, local":        {rpclimit.ClientKey(httplimit.Clients{TrustLocal: true}), "", "192.0.2.7"},
		"client, no address":   {rpclimit.ClientKey(trusted), "", "unknown"},
		"client, IPv6":         {rpclimit.ClientKey(httplimit.Clients{IPv6Bits: 48}), "2001:db8:1:2:3::4", "2001:db8:1::/48"},
		"metadata":             {rpclimit.Metadata("X-User"), "", "ann"},
		"metadata, lower":      {rpclimit.Metadata("x-user"), "", "ann"},
		"metadata, missing":    {rpclimit.Metadata("x-none"), "", ""},
		"method":               {rpclimit.Method, "", "/acme.v1.Items/Get"},
		"caller":               {rpclimit.Caller, "", "subject=bob"},
		"target":               {rpclimit.Target, "", ""},
		"join":                 {rpclimit.Join(rpclimit.Metadata("x-user"), rpclimit.Metadata("x-none"), rpclimit.Peer), "192.0.2.1", "3:ann0:9:192.0.2.1"},
		"join, empty":          {rpclimit.Join(rpclimit.Metadata("x-none"), rpclimit.Target), "192.0.2.1", ""},
	} {
		call := rpclimit.Call{Method: "/acme.v1.Items/Get"}
		if c.peer != "" {
			call.Peer = netip.MustParseAddr(c.peer)
		}
		for kind, values := range map[string]func(string) []string{"metadata.MD": md.Get, "http.Header": header.Values} {
			call.Metadata = values
			if got := c.key(ctx, &call); got != c.want {
				t.Errorf("%s, %s: %q, want %q", name, kind, got, c.want)
			}
		}
	}
	call := rpclimit.Call{}
	if got := rpclimit.Metadata("x-user")(ctx, &call); got != "" {
		t.Errorf("without metadata: %q", got)
	}
	call.Metadata = md.Get
	for _, key := range []rpclimit.Key{rpclimit.Metadata("x-many"), rpclimit.Join(rpclimit.Metadata("x-many"), rpclimit.Peer)} {
		if got := key(ctx, &call); len(got) <= stint.MaxKey {
			t.Errorf("several values: %q", got)
		}
	}
}

// Different parts never give the same key.
func FuzzJoin(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("1:a", "", "1", ":a")
	f.Add("", "1:", "1:", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		join := func(parts ...string) string {
			var keys []rpclimit.Key
			for _, p := range parts {
				keys = append(keys, func(context.Context, *rpclimit.Call) string { return p })
			}
			return rpclimit.Join(keys...)(context.Background(), new(rpclimit.Call))
		}
		if equal := a == c && b == d; (join(a, b) == join(c, d)) != equal {
			t.Errorf("%q %q and %q %q: %q and %q", a, b, c, d, join(a, b), join(c, d))
		}
		if (a+b == "") != (join(a, b) == "") {
			t.Errorf("%q %q: %q", a, b, join(a, b))
		}
	})
}
