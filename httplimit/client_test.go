package httplimit_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/httplimit"
)

func prefixes(texts ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, t := range texts {
		ps = append(ps, netip.MustParsePrefix(t))
	}
	return ps
}

// behindTen trusts the proxies of these tests.
var behindTen = prefixes("10.0.0.0/8", "fd00::/8")

func from(socket, header string, lines ...string) *http.Request {
	r := &http.Request{RemoteAddr: socket, Header: http.Header{}}
	for _, l := range lines {
		r.Header.Add(header, l)
	}
	return r
}

func TestClientBehindXForwardedFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		socket string
		lines  []string
		want   string
	}{
		{"direct, nothing claimed", "203.0.113.7:4000", nil, "203.0.113.7"},
		{"direct, and claims to be another", "203.0.113.7:4000", []string{"198.51.100.1"}, "203.0.113.7"},
		{"direct over IPv6", "[2001:db8::7]:4000", nil, "2001:db8::7"},
		{"direct, mapped", "[::ffff:203.0.113.7]:4000", nil, "203.0.113.7"},
		{"direct, with a zone", "[fe80::1%eth0]:4000", nil, "fe80::1"},
		{"a socket without a port", "203.0.113.7", nil, "203.0.113.7"},
		{"a Unix socket", "@", []string{"198.51.100.1"}, ""},
		{"no socket at all", "", []string{"198.51.100.1"}, ""},

		{"the proxy says nothing", "10.0.0.1:1", nil, "10.0.0.1"},
		{"the proxy says it", "10.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a mapped proxy says it", "[::ffff:10.0.0.1]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"the client lied to the proxy", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.1"}, "198.51.100.1"},
		{"two proxies", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"},
		{"two proxies, two lines", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.1", "10.0.0.2"}, "198.51.100.1"},
		{"the lie on a line of its own", "10.0.0.1:1", []string{"1.1.1.1", "198.51.100.1"}, "198.51.100.1"},
		{"proxies of both families", "[fd00::1]:1", []string{"198.51.100.1, fd00::2, 10.1.2.3"}, "198.51.100.1"},
		{"all trusted: a client of our own", "10.0.0.1:1", []string{"10.7.7.7, 10.0.0.2"}, "10.7.7.7"},

		{"with a port", "10.0.0.1:1", []string{"198.51.100.1:443"}, "198.51.100.1"},
		{"IPv6", "10.0.0.1:1", []string{"2001:db8::1"}, "2001:db8::1"},
		{"IPv6 in brackets", "10.0.0.1:1", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"IPv6 with a port", "10.0.0.1:1", []string{"[2001:db8::1]:443"}, "2001:db8::1"},
		{"IPv6 with a zone", "10.0.0.1:1", []string{"[fe80::1%25eth0]:443"}, "fe80::1"},
		{"IPv6, mapped", "10.0.0.1:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"a mapped proxy in the list", "10.0.0.1:1", []string{"198.51.100.1, ::ffff:10.0.0.2"}, "198.51.100.1"},
		{"blanks of all kinds", "10.0.0.1:1", []string{" \t198.51.100.1\t ,10.0.0.2 "}, "198.51.100.1"},
		{"empty elements", "10.0.0.1:1", []string{"198.51.100.1, ,,10.0.0.2,", "", ","}, "198.51.100.1"},

		{"garbage alone", "10.0.0.1:1", []string{"garbage"}, "10.0.0.1"},
		{"unknown", "10.0.0.1:1", []string{"198.51.100.1, unknown"}, "10.0.0.1"},
		{"garbage in the middle", "10.0.0.1:1", []string{"198.51.100.1, garbage, 10.0.0.2"}, "10.0.0.2"},
		{"garbage further left", "10.0.0.1:1", []string{"garbage, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"},
		{"NUL and no UTF-8", "10.0.0.1:1", []string{"198.51.100.1\x00, 10.0.0.3", "10.0.0.2"}, "10.0.0.3"},
		{"no address: leading zeros", "10.0.0.1:1", []string{"198.051.100.001"}, "10.0.0.1"},
		{"no address: a prefix", "10.0.0.1:1", []string{"198.51.100.0/24"}, "10.0.0.1"},
		{"no address: a port that is none", "10.0.0.1:1", []string{"198.51.100.1:http"}, "10.0.0.1"},
		{"no address: text behind the bracket", "10.0.0.1:1", []string{"[2001:db8::1]443"}, "10.0.0.1"},
		{"no address: an open bracket", "10.0.0.1:1", []string{"[2001:db8::1"}, "10.0.0.1"},
		{"no address: IPv4 in brackets", "10.0.0.1:1", []string{"[198.51.100.1]"}, "10.0.0.1"},
		{"no address: IPv4 with a zone", "10.0.0.1:1", []string{"198.51.100.1%eth0"}, "10.0.0.1"},
		{"no address: an empty zone", "10.0.0.1:1", []string{"fe80::1%"}, "10.0.0.1"},
		{"no address: quotes", "10.0.0.1:1", []string{`"198.51.100.1"`}, "10.0.0.1"},

		{"more hops than anyone has", "10.0.0.1:1", []string{"198.51.100.1" + strings.Repeat(", 10.0.0.9", 32)}, "10.0.0.9"},
		{"as many as are walked", "10.0.0.1:1", []string{"198.51.100.1" + strings.Repeat(", 10.0.0.9", 31)}, "198.51.100.1"},
		{"an element longer than any address", "10.0.0.1:1", []string{"198.51.100.1" + strings.Repeat(" ", 200) + ", 10.0.0.2"}, "10.0.0.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := httplimit.Clients{Trusted: behindTen}.Addr(from(c.socket, "X-Forwarded-For", c.lines...))
			checkAddr(t, got, c.want)
		})
	}
}

func checkAddr(t *testing.T, got netip.Addr, want string) {
	t.Helper()
	if want == "" && !got.IsValid() {
		return
	}
	if got.String() != want || got.Zone() != "" || got.Is4In6() {
		t.Errorf("got %s, want %q", got, want)
	}
}

func TestClientBehindForwarded(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"one", []string{"for=198.51.100.1"}, "198.51.100.1"},
		{"in any case", []string{"FoR=198.51.100.1;PROTO=https"}, "198.51.100.1"},
		{"not the first parameter", []string{"by=10.0.0.9;proto=https;for=198.51.100.1"}, "198.51.100.1"},
		{"blanks that nobody should send", []string{"by=10.0.0.9 ; for=198.51.100.1 ; proto=https"}, "198.51.100.1"},
		{"quoted", []string{`for="198.51.100.1"`}, "198.51.100.1"},
		{"quoted with a port", []string{`for="198.51.100.1:4711"`}, "198.51.100.1"},
		{"with an obfuscated port", []string{`for="198.51.100.1:_gazonk"`}, "198.51.100.1"},
		{"IPv6", []string{`for="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::17"},
		{"IPv6 as it must not be written", []string{`for=[2001:db8::1]`}, "2001:db8::1"},
		{"quoted pairs", []string{`for="198.51.\100.1"`}, "198.51.100.1"},
		{"a comma and a semicolon in quotes", []string{`for=198.51.100.1;host="a,b;c", for=10.0.0.2`}, "198.51.100.1"},
		{"an escaped quote in quotes", []string{`for=1.1.1.1, for=198.51.100.1;host="a\",b", for=10.0.0.2`}, "198.51.100.1"},
		{"an escaped backslash ends quotes", []string{`for=1.1.1.1, for=198.51.100.1;host="a\\", for=10.0.0.2`}, "198.51.100.1"},
		{"the client lied", []string{"for=1.1.1.1, for=198.51.100.1", "for=10.0.0.2"}, "198.51.100.1"},
		{"the client left a quote open", []string{`for=", for=198.51.100.1, for=10.0.0.2`}, "198.51.100.1"},
		{"the client left a backslash", []string{`for="\, for=198.51.100.1`}, "198.51.100.1"},

		{"unknown", []string{"for=198.51.100.1, for=unknown, for=10.0.0.2"}, "10.0.0.2"},
		{"an obfuscated name", []string{`for=198.51.100.1, for="_gazonk", for=10.0.0.2`}, "10.0.0.2"},
		{"a proxy that does not say for whom", []string{"for=198.51.100.1, by=10.0.0.3;proto=http, for=10.0.0.2"}, "10.0.0.2"},
		{"for twice", []string{"for=198.51.100.1;for=198.51.100.2"}, "10.0.0.1"},
		{"no pair", []string{"198.51.100.1"}, "10.0.0.1"},
		{"an open quote", []string{`for="198.51.100.1`}, "10.0.0.1"},
		{"an open quote that ends in a backslash", []string{`for="198.51.100.1\`}, "10.0.0.1"},
		{"quotes that enclose no value", []string{`for=1.1.1.1, x"for=198.51.100.1;host="`}, "10.0.0.1"},
		{"quotes within a value", []string{`for=198.51.100.1;host=a"b"`}, "10.0.0.1"},
		{"text behind the quotes", []string{`for="198.51.100.1"x`}, "10.0.0.1"},
		{"a trailing semicolon", []string{`for=198.51.100.1;`}, "10.0.0.1"},
		{"too long", []string{"for=198.51.100.1;host=" + strings.Repeat("a", 2000)}, "10.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clients := httplimit.Clients{Trusted: behindTen, Header: "forwarded"}
			r := from("10.0.0.1:1", "Forwarded", c.lines...)
			r.Header.Set("X-Forwarded-For", "9.9.9.9") // nobody asked for it
			checkAddr(t, clients.Addr(r), c.want)
		})
	}
}

func TestClientBehindAnotherHeader(t *testing.T) {
	clients := httplimit.Clients{Trusted: behindTen, Header: "x-real-ip"}
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"absent", nil, "10.0.0.1"},
		{"one address", []string{"198.51.100.1"}, "198.51.100.1"},
		{"the proxy added to what the client sent", []string{"1.1.1.1", "198.51.100.1"}, "198.51.100.1"},
		{"a client of our own", []string{"10.7.7.7"}, "10.7.7.7"},
		{"garbage", []string{"you know me"}, "10.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := from("10.0.0.1:1", "X-Real-Ip", c.lines...)
			r.Header.Set("X-Forwarded-For", "9.9.9.9")
			checkAddr(t, clients.Addr(r), c.want)
		})
	}
}

func TestClientOnAUnixSocket(t *testing.T) {
	clients := httplimit.Clients{TrustLocal: true, Trusted: behindTen}
	checkAddr(t, clients.Addr(from("@", "X-Forwarded-For", "1.1.1.1, 198.51.100.1, 10.0.0.2")), "198.51.100.1")
	checkAddr(t, clients.Addr(from("@", "X-Forwarded-For", "garbage")), "")
	// An address on the socket is trusted only if it is listed, here as ever.
	checkAddr(t, clients.Addr(from("203.0.113.7:1", "X-Forwarded-For", "1.1.1.1")), "203.0.113.7")
}

func TestTrustedPrefixInMappedForm(t *testing.T) {
	clients := httplimit.Clients{Trusted: prefixes("::ffff:10.0.0.0/104")}
	checkAddr(t, clients.Addr(from("10.0.0.1:1", "X-Forwarded-For", "198.51.100.1")), "198.51.100.1")
	checkAddr(t, clients.Addr(from("11.0.0.1:1", "X-Forwarded-For", "198.51.100.1")), "11.0.0.1")
	// A prefix that holds all of IPv4 and more, in IPv6 form, is about IPv6.
	clients.Trusted = append(prefixes("::/0"), netip.Prefix{})
	checkAddr(t, clients.Addr(from("10.0.0.1:1", "X-Forwarded-For", "198.51.100.1")), "10.0.0.1")
}

// An IPv4 address is one, however connection, header and Trusted write it, and nobody is a proxy inside
// by an address that it makes up.
func TestClientsOfEmbeddedAddresses(t *testing.T) {
	own := prefixes("2001:db8:64::/96")
	for _, trusted := range []string{"198.51.100.0/24", "::ffff:198.51.100.0/120", "64:ff9b::c633:6400/120", "2002:c633:6400::/40", "2001:db8:64::c633:6400/120"} {
		clients := httplimit.Clients{Trusted: prefixes(trusted), NAT64: own}
		for _, proxy := range []string{"198.51.100.1:1", "[::ffff:198.51.100.1]:1", "[64:ff9b::c633:6401]:1", "[2002:c633:6401::9]:1", "[2001:db8:64::c633:6401]:1"} {
			for _, client := range []string{"203.0.113.1", "::ffff:203.0.113.1", "64:ff9b::cb00:7101", "2002:cb00:7101:1::2", "2001:0:4136:e378:8000:63bf:34ff:8efe", "2001:db8:64::cb00:7101"} {
				r := from(proxy, "X-Forwarded-For", "192.0.2.1, "+client+", 64:ff9b::c633:6402")
				checkAddr(t, clients.Addr(r), "203.0.113.1")
				if key := clients.Key(r); key != "203.0.113.1" {
					t.Errorf("%s counts as %s", client, key)
				}
			}
		}
	}
	clients := httplimit.Clients{Trusted: prefixes("10.0.0.0/8", "64:ff9b::/96", "2001::/32")}
	for _, stranger := range []string{"2002:a00:1::1", "2001:db8:64::a00:1", "64:ff9b::cb00:7101"} {
		r := from("["+stranger+"]:1", "X-Forwarded-For", "192.0.2.1")
		if clients.Believes(r) {
			t.Errorf("%s is trusted", stranger)
		}
	}
}

// A walk must not take longer because the client sent more.
func TestWalkIsBounded(t *testing.T) {
	many := make([]string, 50_000)
	for i := range many {
		many[i] = "10.0.0.2"
	}
	for name, lines := range map[string][]string{
		"one element":     {strings.Repeat("x", 1<<20)},
		"elements":        {strings.Repeat("10.0.0.2,", 1<<17)},
		"commas":          {strings.Repeat(",", 1<<20)},
		"lines":           many,
		"quotes":          {strings.Repeat(`"`, 1<<20)},
		"escaped quotes":  {strings.Repeat(`\"`, 1<<19)},
		"backslashes":     {strings.Repeat(`\`, 1<<20) + `"`},
		"open quote, end": {`"` + strings.Repeat("for=10.0.0.2,", 1<<16)},
	} {
		for _, header := range []string{"X-Forwarded-For", "Forwarded"} {
			clients := httplimit.Clients{Trusted: behindTen, Header: header}
			r := from("10.0.0.1:1", header, lines...)
			fastest := time.Hour
			for range 20 { // the machine may have other things to do
				start := time.Now()
				if a := clients.Addr(r); !a.IsValid() {
					t.Fatalf("%s: no address", name)
				}
				fastest = min(fastest, time.Since(start))
			}
			if fastest > time.Millisecond {
				t.Errorf("a megabyte of %s in %s took %s", name, header, fastest)
			}
		}
	}
}

func TestCounted(t *testing.T) {
	for _, c := range []struct {
		addr string
		bits int
		want string
	}{
		{"198.51.100.1", 0, "198.51.100.1"},
		{"198.51.100.1", 8, "198.51.100.1"},
		{"::ffff:198.51.100.1", 0, "198.51.100.1"},
		{"2001:db8:1:2:3:4:5:6", 0, "2001:db8:1:2::/64"},
		{"2001:db8:1:2:ffff::", 0, "2001:db8:1:2::/64"},
		{"2001:db8:1:3::", 0, "2001:db8:1:3::/64"},
		{"2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::/48"},
		{"2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6/128"},
		{"2001:db8:1:2:3:4:5:6", 129, "2001:db8:1:2::/64"},
		{"2001:db8:1:2:3:4:5:6", -1, "2001:db8:1:2::/64"},
		{"fe80::1%eth0", 0, "fe80::/64"},
		{"fe80::1%eth0", 128, "fe80::1/128"},
	} {
		if got := httplimit.Counted(netip.MustParseAddr(c.addr), c.bits); got != c.want {
			t.Errorf("%s by %d bits counts as %q, want %q", c.addr, c.bits, got, c.want)
		}
	}
	if got := httplimit.Counted(netip.Addr{}, 0); got != "unknown" {
		t.Errorf("no address counts as %q", got)
	}
	clients := httplimit.Clients{IPv6Bits: 56}
	if got := clients.Key(from("[2001:db8:1:2ff::1]:1", "")); got != "2001:db8:1:200::/56" {
		t.Errorf("got %q", got)
	}
}
