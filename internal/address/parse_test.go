package address_test

import (
	"testing"

	"github.com/stintdev/stint/internal/address"
)

func TestParse(t *testing.T) {
	const octal, zeros, none = "a number that begins with 0 may be octal: write ", "a number has too many zeros before it: write ", "want an IP address such as 192.0.2.1"
	for _, c := range []struct{ text, want, fails string }{
		{"192.0.2.1", "192.0.2.1", ""},
		{" 192.0.2.1\t", "192.0.2.1", ""},
		{"2001:DB8::A", "2001:db8::a", ""},
		{"2001:0db8:0000:0000::000a", "2001:db8::a", ""},
		{"[2001:db8::1]", "2001:db8::1", ""},
		{" [2001:db8::1] ", "2001:db8::1", ""},
		{"fe80::1%eth0", "fe80::1%eth0", ""},
		{"010.0.0.1", "", octal + "10.0.0.1"},
		{"192.000.002.001", "", octal + "192.0.2.1"},
		{"::ffff:192.0.2.01", "", zeros + "::ffff:192.0.2.1"},
		{"2001:00db8::1", "", zeros + "2001:db8::1"},
		{"2001:00db8:a00:f00::1", "", zeros + "2001:db8:a00:f00::1"},
		{"09.0.0.1", "", octal + "9.0.0.1"},
		{"192.0.2.1:80", "", "it has a port: write 192.0.2.1"},
		{"[2001:db8::1]:80", "", "it has a port: write 2001:db8::1"},
		{"", "", none}, {"[]", "", none}, {"[", "", none}, {"192.0.2", "", none}, {"192.0.2.256", "", none}, {"0300.0.0.1", "", none},
		{"192.0.2.0/24", "", none}, {"example.com", "", none}, {"1 92.0.2.1", "", none}, {"2001:db8::1]", "", none},
	} {
		got, err := address.Parse(c.text)
		if err != nil && err.Error() != c.fails || err == nil && (c.fails != "" || got.String() != c.want) || err != nil && got.IsValid() {
			t.Errorf("%q: %s, %v", c.text, got, err)
		}
	}
}

func TestParseNetwork(t *testing.T) {
	const octal, zeros, none = "a number that begins with 0 may be octal: write ", "a number has too many zeros before it: write ", "must be a network such as 10.0.0.0/8, or an address"
	for _, c := range []struct{ text, want, fails string }{
		{"10.1.2.3/8", "10.0.0.0/8", ""},
		{" 10.0.0.0/8 ", "10.0.0.0/8", ""},
		{"2001:DB8:ABCD::/48", "2001:db8:abcd::/48", ""},
		{"2001:0db8::/32", "2001:db8::/32", ""},
		{"[2001:db8::]/32", "2001:db8::/32", ""},
		{"[2001:db8::1]", "2001:db8::1/128", ""},
		{"64:ff9b::203.0.113.0/120", "203.0.113.0/24", ""},
		{"64:ff9b::203.0.113.1", "203.0.113.1/32", ""},
		{"fe80::1%eth0", "fe80::1/128", ""},
		{"010.0.0.0/8", "", octal + "10.0.0.0/8"},
		{"010.0.0.1", "", octal + "10.0.0.1"},
		{"2001:00db8::/32", "", zeros + "2001:db8::/32"},
		{"2001:db8::/032", "", zeros + "2001:db8::/32"},
		{"10.0.0.0/255.0.0.0", "", "want the length of the prefix, and no mask: write 10.0.0.0/8"},
		{"10.1.2.3/255.255.255.255", "", "want the length of the prefix, and no mask: write 10.1.2.3/32"},
		{"10.0.0.0/255.0.255.0", "", none}, {"10.0.0.0/0.0.0.255", "", none}, {"10.0.0.0/ffff::", "", none}, {"2001:db8::/255.0.0.0", "", none},
		{"192.0.2.1:80", "", "it has a port: write 192.0.2.1"},
		{"", "", none}, {"/8", "", none}, {"10.0.0.0/", "", none}, {"10.0.0.0/33", "", none}, {"10.0.0.0/-1", "", none}, {"10.0.0.0 / 8", "", none},
		{"fe80::1%eth0/64", "", none}, {"fe80::1%a/b", "", none}, {"example.com", "", none},
	} {
		got, err := address.NAT64(nil).ParseNetwork(c.text)
		if err != nil && err.Error() != c.fails || err == nil && (c.fails != "" || got.String() != c.want) {
			t.Errorf("%q: %s, %v", c.text, got, err)
		}
	}
}

// What is read is plain, and is read again as the same; a network never holds addresses of both kinds.
func FuzzParseNetwork(f *testing.F) {
	for _, text := range []string{"10.0.0.0/8", "[2001:db8::]/32", "64:ff9b::203.0.113.0/120", "2002:cb00::/24", "2001:0:4136:e378:8000:63bf:34ff:8e00/120", "2001:db9:422:344:cb::/80", "010.0.0.1", "fe80::1%a/b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := own.ParseNetwork(text)
		if err != nil {
			return
		}
		if p != p.Masked() || p.Addr().Zone() != "" || p.Addr().Is4In6() && p.Bits() >= 96 {
			t.Fatalf("%q: %s is not plain", text, p)
		}
		if again, err := own.ParseNetwork(p.String()); err != nil || again != p {
			t.Fatalf("%q is %s, which is %s, %v", text, p, again, err)
		}
		if first := own.Plain(p.Addr()); own.Hollow(p) == "" && p.Addr().Is6() && first.Is4() && p.IsSingleIP() {
			t.Fatalf("%q: the address %s is IPv4", text, p)
		}
		if a, err := address.Parse(text); err == nil && own.Plain(a) != p.Addr() {
			t.Fatalf("%q is the network %s and the address %s", text, p, own.Plain(a))
		}
	})
}
