package address_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stintdev/stint/internal/address"
)

var own = address.NAT64{
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2001:db9:100::/40"),
	netip.MustParsePrefix("2001:db9:222::/48"),
	netip.MustParsePrefix("2001:db9:322:300::/56"),
	netip.MustParsePrefix("2001:db9:422:344::/64"),
	netip.MustParsePrefix("2001:db9:522:344::/96"),
}

// The addresses of NAT64 are those of RFC 6052, section 2.4, but for the prefixes.
func TestPlain(t *testing.T) {
	for _, c := range []struct{ address, want string }{
		{"192.0.2.33", "192.0.2.33"},
		{"::ffff:192.0.2.33", "192.0.2.33"},
		{"::ffff:192.0.2.33%eth0", "192.0.2.33"},
		{"64:ff9b::192.0.2.33", "192.0.2.33"},
		{"64:ff9b::192.0.2.33%eth0", "192.0.2.33"},
		{"64:FF9B:0000::c000:0221", "192.0.2.33"},
		{"64:ff9b::10.0.0.1", "10.0.0.1"},
		{"64:ff9b::", "0.0.0.0"},
		{"64:ff9b:0:0:0:1:c000:221", "64:ff9b::1:c000:221"},
		{"64:ff9b:1::192.0.2.33", "64:ff9b:1::c000:221"},
		{"2001:db8:c000:221::", "192.0.2.33"},
		{"2001:db8:c000:221::", "192.0.2.33"},
		{"2001:db9:1c0:2:21::", "192.0.2.33"},
		{"2001:db9:222:c000:2:2100::", "192.0.2.33"},
		{"2001:db9:322:3c0:0:221::", "192.0.2.33"},
		{"2001:db9:422:344:c0:2:2100::", "192.0.2.33"},
		{"2001:db9:522:344::192.0.2.33", "192.0.2.33"},
		{"2001:db9:422:344:c0:2:21ff:ffff", "192.0.2.33"},                  // the suffix does not count
		{"2001:db9:422:344:1c0:2:2100:0", "2001:db9:422:344:1c0:2:2100:0"}, // bits 64 to 71 do
		{"2001:db8:c000:221:100::", "2001:db8:c000:221:100::"},
		{"2001:db8:a00:1::", "10.0.0.1"}, // who runs NAT64 may know of it
		{"2002:c000:221::", "192.0.2.33"},
		{"2002:c000:221:1:2:3:4:5", "192.0.2.33"},
		{"2001:0:4136:e378:8000:63bf:3fff:fdde", "192.0.2.33"},
		{"2001:1::192.0.2.33", "2001:1::c000:221"},
		{"2001:db7::1", "2001:db7::1"},
		{"fe80::1%eth0", "fe80::1"},
		{"::192.0.2.33", "::c000:221"}, // nobody has had such an address for decades
		{"::", "::"},
		{"::1", "::1"},
	} {
		a := netip.MustParseAddr(c.address)
		got := own.Plain(a)
		if got.String() != c.want {
			t.Errorf("%s is %s, want %s", c.address, got, c.want)
		}
		for i, p := range own {
			if one := own[i : i+1].Plain(a); p.Contains(a) && one != got {
				t.Errorf("%s is %s with %s alone, want %s", a, one, p, got)
			}
		}
	}
	if address.Plain(netip.Addr{}).IsValid() {
		t.Error("no address has become one")
	}
}

// A host chooses its address of 6to4 and Teredo itself.
func TestNobodyClaimsToBeInside(t *testing.T) {
	for _, inside := range []string{"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "169.254.169.254",
		"172.16.0.1", "172.31.255.255", "192.168.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"} {
		v4 := netip.MustParseAddr(inside)
		for _, e := range embeddings {
			got := own.Plain(e.of(v4))
			if want := e.of(v4); e.chosen && got != want {
				t.Errorf("%s by %s is %s, want %s", inside, e.name, got, want)
			} else if !e.chosen && got != v4 {
				t.Errorf("%s by %s is %s", inside, e.name, got)
			}
		}
	}
	for _, outside := range []string{"1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.0.0",
		"169.255.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0", "223.255.255.255", "203.0.113.1", "192.0.2.1", "198.51.100.1"} {
		v4 := netip.MustParseAddr(outside)
		for _, e := range embeddings {
			if got := own.Plain(e.of(v4)); got != v4 {
				t.Errorf("%s by %s is %s", outside, e.name, got)
			}
		}
	}
}

// embedding writes IPv4 addresses as RFCs say, at from bit at on; after 64 bits, one octet is left out.
type embedding struct {
	name     string
	prefix   string
	at       int
	split    bool
	inverted bool
	chosen   bool // by the host that has it
}

var embeddings = []embedding{
	{"mapped", "::ffff:0:0/96", 96, false, false, false},
	{"NAT64", "64:ff9b::/96", 96, false, false, false},
	{"6to4", "2002::/16", 16, false, false, true},
	{"Teredo", "2001::/32", 96, false, true, true},
	{"NAT64 of 32", "2001:db8::/32", 32, true, false, false},
	{"NAT64 of 40", "2001:db9:100::/40", 40, true, false, false},
	{"NAT64 of 48", "2001:db9:222::/48", 48, true, false, false},
	{"NAT64 of 56", "2001:db9:322:300::/56", 56, true, false, false},
	{"NAT64 of 64", "2001:db9:422:344::/64", 64, true, false, false},
	{"NAT64 of 96", "2001:db9:522:344::/96", 96, false, false, false},
}

func (e *embedding) of(v4 netip.Addr) netip.Addr {
	return e.network(netip.PrefixFrom(v4, 32)).Addr()
}

// network is the network of all addresses that embed one of v4's, but for what follows the IPv4 address.
func (e *embedding) network(v4 netip.Prefix) netip.Prefix {
	b := netip.MustParsePrefix(e.prefix).Addr().As16()
	four := v4.Addr().As4()
	end := e.at
	for i := range 32 {
		if e.split && end == 64 && i < v4.Bits() {
			end = 72
		}
		bit := four[i/8]>>(7-i%8)&1 == 1
		if i >= v4.Bits() {
			break
		}
		if bit != e.inverted {
			b[end/8] |= 0x80 >> (end % 8)
		}
		end++
	}
	return netip.PrefixFrom(netip.AddrFrom16(b), end)
}

func randomV4(r *rand.Rand) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], r.Uint32())
	return netip.AddrFrom4(b)
}

// However an IPv4 client is written, it has one key and is in the same networks, however these are
// written. An address without an IPv4 address in it stays as it is.
func TestOneClientHoweverItIsWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(6052, 3056))
	inside := func(a netip.Addr) bool {
		for _, e := range embeddings {
			if netip.MustParsePrefix(e.prefix).Contains(a) {
				return true
			}
		}
		return false
	}
	for range 20_000 {
		v4, v6 := randomV4(r), randomV6(r)
		around := netip.PrefixFrom(v4, 1+r.IntN(32)).Masked()
		other := netip.PrefixFrom(randomV4(r), 1+r.IntN(32)).Masked()
		for _, e := range embeddings {
			a := e.of(v4)
			plain := own.Plain(a)
			if plain != v4 && !(e.chosen && plain == a) {
				t.Fatalf("%s by %s is %s", v4, e.name, plain)
			}
			if plain == v4 && address.Counted(own.Plain(a), 64) != v4.String() {
				t.Fatalf("%s by %s has another key", v4, e.name)
			}
			for _, p := range []netip.Prefix{around, other} {
				written := own.PlainNetwork(e.network(p))
				if got := written.Contains(plain); got != p.Contains(v4) && own.Hollow(written) == "" {
					t.Fatalf("%s in %s, which is %s, by %s is %t", v4, p, written, e.name, got)
				}
				if !e.chosen && written != p {
					t.Fatalf("%s by %s is %s", p, e.name, written)
				}
			}
		}
		if !inside(v6) && own.Plain(v6) != v6 {
			t.Fatalf("%s has become %s", v6, own.Plain(v6))
		}
	}
}

func randomV6(r *rand.Rand) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], r.Uint64())
	binary.BigEndian.PutUint64(b[8:], r.Uint64())
	return netip.AddrFrom16(b)
}

func TestPlainNetwork(t *testing.T) {
	for _, c := range []struct {
		network, want string
		hollow        bool // it does not hold what it seems to
	}{
		{"10.1.2.3/8", "10.0.0.0/8", false},
		{"::ffff:10.1.2.3/104", "10.0.0.0/8", false},
		{"::ffff:0:0/96", "0.0.0.0/0", false}, // as ever
		{"64:ff9b::cb00:7100/120", "203.0.113.0/24", false},
		{"64:ff9b::/97", "0.0.0.0/1", false},
		{"64:ff9b::/96", "64:ff9b::/96", true},
		{"64:ff9b::/64", "64:ff9b::/64", false}, // it has more than NAT64
		{"2002:cb00::/24", "203.0.0.0/8", false},
		{"2002:cb00:7101::/48", "203.0.113.1/32", false},
		{"2002:cb00:7101:5::/64", "203.0.113.1/32", false},
		{"2002::/16", "2002::/16", true},
		{"2002:a00::/24", "2002:a00::/24", false}, // its addresses stay IPv6
		{"2002:a01::/32", "2002:a01::/32", false},
		{"2002:c000::/24", "2002:c000::/24", true}, // of its addresses, some do
		{"2000::/3", "2000::/3", false},
		{"::/0", "::/0", false},
		{"2001::/32", "2001::/32", true},
		{"2001:0:4136:e378::/64", "2001:0:4136:e378::/64", true},
		{"2001:0:4136:e378::/96", "2001:0:4136:e378::/96", true},
		{"2001:0:4136:e378:8000:63bf:34ff:8e00/120", "203.0.113.0/24", false},
		{"2001:0:4136:e378:8000:63bf:f5ff:ffff/128", "2001:0:4136:e378:8000:63bf:f5ff:ffff/128", false}, // 10.0.0.0
		{"2001:db8::/32", "2001:db8::/32", true},
		{"2001:db8:cb00::/40", "203.0.0.0/8", false},
		{"2001:db9:422:344::/64", "2001:db9:422:344::/64", true},
		{"2001:db9:422:344::/72", "2001:db9:422:344::/72", true},
		{"2001:db9:422:344:cb::/80", "203.0.0.0/8", false},
		{"2001:db9:422:344:100::/72", "2001:db9:422:344:100::/72", false},
		{"2001:db9:422:344:cb:71:100:0/128", "203.0.113.1/32", false},
	} {
		got := own.PlainNetwork(netip.MustParsePrefix(c.network))
		if got.String() != c.want {
			t.Errorf("%s is %s, want %s", c.network, got, c.want)
		}
		if why := own.Hollow(got); (why != "") != c.hollow {
			t.Errorf("%s: %q", c.network, why)
		}
	}
	if own.PlainNetwork(netip.Prefix{}).IsValid() || own.Hollow(netip.Prefix{}) != "" {
		t.Error("no network has become one")
	}
	want := "the addresses in 2002:c000::/24 embed IPv4 addresses (6to4) and count as those, which are never in it: write the network of IPv4, 192.0.0.0/8"
	if why := own.Hollow(netip.MustParsePrefix("2002:c000::/24")); why != want {
		t.Errorf("got  %s\nwant %s", why, want)
	}
}

func TestCheck(t *testing.T) {
	n := address.NAT64{netip.MustParsePrefix("2001:db8:64::/96")}
	for prefix, want := range map[string]string{
		"2001:db8:65::/96":       "",
		"2001:db8:66::/48":       "",
		"64:ff9b:1::/48":         "",
		"2001:db8:64::/48":       "2001:db8:64::/48: it overlaps 2001:db8:64::/96, which is listed before",
		"2001:db8:64::/96":       "2001:db8:64::/96: it overlaps 2001:db8:64::/96, which is listed before",
		"2001:db8:65::/95":       "2001:db8:65::/95: the length of a NAT64 prefix is 32, 40, 48, 56, 64 or 96",
		"2001:db8:65::/128":      "2001:db8:65::/128: the length of a NAT64 prefix is 32, 40, 48, 56, 64 or 96",
		"2001:db8:65::1/96":      "2001:db8:65::1/96: it has bits beyond the prefix: write 2001:db8:65::/96",
		"2001:db8:65:0:100::/96": "2001:db8:65:0:100::/96: bits 64 to 71 of a NAT64 prefix must be zero",
		"192.0.2.0/32":           "192.0.2.0/32: want a prefix of IPv6, such as 2001:db8:64::/96",
		"::ffff:0:0/96":          "::ffff:0.0.0.0/96: want a prefix of IPv6, such as 2001:db8:64::/96",
		"64:ff9b::/96":           "64:ff9b::/96: it is known to be NAT64 and need not be listed",
		"64:ff9b::/64":           "64:ff9b::/64: it overlaps 64:ff9b::/96, which is NAT64",
		"2002:1:2::/48":          "2002:1:2::/48: it overlaps 2002::/16, which is 6to4",
		"2001::/32":              "2001::/32: it overlaps 2001::/32, which is Teredo",
		"::/32":                  "::/32: it overlaps ::ffff:0.0.0.0/96, which is IPv4 mapped to IPv6",
	} {
		got := ""
		if err := n.Check(netip.MustParsePrefix(prefix)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", prefix, got, want)
		}
	}
}

// A prefix that Check refuses does nothing.
func TestPrefixesWithoutEffect(t *testing.T) {
	wrong := address.NAT64{netip.MustParsePrefix("2001:db8::/33"), netip.MustParsePrefix("10.0.0.0/32"), {}}
	for _, text := range []string{"2001:db8:c000:221::", "10.0.0.0", "::"} {
		if a := netip.MustParseAddr(text); wrong.Plain(a) != a {
			t.Errorf("%s is %s", a, wrong.Plain(a))
		}
	}
}

func TestCounted(t *testing.T) {
	for _, c := range []struct {
		address string
		bits    int
		want    string
	}{
		{"2001:db7:1:2:3::4", 64, "2001:db7:1:2::/64"},
		{"2001:db7:1:2:3::4", 0, "2001:db7:1:2::/64"},
		{"2001:db7:1:2:3::4", 129, "2001:db7:1:2::/64"},
		{"8001:db7::", 1, "8000::/1"},
		{"2001:db7:1:2:3::4%eth0", 128, "2001:db7:1:2:3::4/128"},
		{"64:ff9b::203.0.113.1", 64, "203.0.113.1"},
	} {
		if got := address.Counted(netip.MustParseAddr(c.address), c.bits); got != c.want {
			t.Errorf("%s: %s, want %s", c.address, got, c.want)
		}
	}
}

func TestAllocations(t *testing.T) {
	for _, text := range []string{"203.0.113.1", "::ffff:203.0.113.1", "64:ff9b::203.0.113.1", "2001:db9:422:344:cb:71:100:0", "2001:db7::1"} {
		a := netip.MustParseAddr(text)
		if n := testing.AllocsPerRun(100, func() { own.Plain(a) }); n != 0 {
			t.Errorf("%s: %v allocations", a, n)
		}
		if n := testing.AllocsPerRun(100, func() { address.Counted(a, 64) }); n != 1 {
			t.Errorf("the key of %s: %v allocations", a, n)
		}
	}
}

func BenchmarkPlain(b *testing.B) {
	for _, text := range []string{"203.0.113.1", "::ffff:203.0.113.1", "64:ff9b::203.0.113.1", "2002:cb00:7101::1", "2001:db7::1"} {
		a := netip.MustParseAddr(text)
		for _, n := range []address.NAT64{nil, own} {
			b.Run(fmt.Sprintf("%s/%d", text, len(n)), func(b *testing.B) {
				for b.Loop() {
					n.Plain(a)
				}
			})
		}
	}
}
