package lists

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/address"
)

func TestParse(t *testing.T) {
	const google = `{"creationTime": "2026-11-24T15:46:03.000000", "prefixes": [{"ipv6Prefix": "2001:4860:4801:10::/64"}, {"ipv4Prefix": "66.249.64.0/27"}]}`
	const wantMember = "want an object with a text ipv4Prefix, ipv6Prefix, ip_prefix, ipv6_prefix, prefix, cidr or network"
	for _, c := range []struct {
		name, pointer, text string
		has, lacks          string // addresses
		err                 string
	}{
		{name: "nothing", lacks: "192.0.2.1"},
		{name: "lines", text: "192.0.2.0/24\n198.51.100.7\n2001:db8::/32\n", has: "192.0.2.255 198.51.100.7 2001:db8::1", lacks: "198.51.100.8"},
		{name: "comments", text: "# bad ones\n; others\n\n 192.0.2.0/24 ; SBL1\n198.51.100.7#x\n\t\n10.0.0.0/8", has: "192.0.2.1 198.51.100.7 10.1.1.1"},
		{name: "a BOM and CRLF", text: "\ufeff192.0.2.0/24\r\n198.51.100.7\r\n", has: "192.0.2.1 198.51.100.7"},
		{name: "bits beyond the prefix", text: "192.0.2.77/24", has: "192.0.2.1"},
		{name: "IPv4 in IPv6", text: "::ffff:192.0.2.0/120\n64:ff9b::c633:6407", has: "192.0.2.1 198.51.100.7"},
		{name: "a zone and brackets", text: "fe80::1%eth0\n[2001:db8::1]", has: "fe80::1 2001:db8::1"},
		{name: "a wrong line", text: "192.0.2.0/24\n\n192.0.2\n", err: `list:3: "192.0.2" must be a network such as 10.0.0.0/8, or an address`},
		{name: "a mask", text: "10.0.0.0/255.0.0.0", err: `list:1: "10.0.0.0/255.0.0.0" want the length of the prefix, and no mask: write 10.0.0.0/8`},
		{name: "many wrong lines", text: strings.Repeat("x\n", 12), err: `list:5: "x" must be a network such as 10.0.0.0/8, or an address; and 7 more`},
		{name: "a long line", text: strings.Repeat("x", 1000), err: `list:1: "` + strings.Repeat("x", 60) + `" must be`},
		{name: "a page", text: "<html>", err: `list:1: "<html>"`},

		{name: "an array", text: ` ["192.0.2.0/24", "\u003198.51.100.7"]`, has: "192.0.2.1 198.51.100.7"},
		{name: "an empty array", text: "[]"},
		{name: "Google's", pointer: "/prefixes", text: google, has: "2001:4860:4801:10::1 66.249.64.1", lacks: "66.249.65.1"},
		{name: "AWS's", pointer: "/ipv6_prefixes", has: "2600:1f00::1", lacks: "3.4.12.4",
			text: `{"syncToken": "1", "prefixes": [{"ip_prefix": "3.4.12.4/32", "region": "eu-west-1"}], "ipv6_prefixes": [{"ipv6_prefix": "2600:1f00::/24", "region": "eu-west-1"}]}`},
		{name: "Atlassian's", pointer: "/items", has: "13.52.5.97",
			text: `{"creationDate": "x", "items": [{"network": "13.52.5.96", "mask_len": 28, "cidr": "13.52.5.96/28", "mask": "255.255.255.240", "region": ["global"]}]}`},
		{name: "Azure's", pointer: "/values/1/properties/addressPrefixes", has: "192.0.2.1", lacks: "198.51.100.7",
			text: `{"values": [{"properties": {"addressPrefixes": ["198.51.100.7"]}}, {"properties": {"addressPrefixes": ["192.0.2.0/24"]}}]}`},
		{name: "a pointer with escapes", pointer: "/a~1b/~01", text: `{"a/b": {"~1": ["192.0.2.0/24"]}}`, has: "192.0.2.1"},
		{name: "an empty name", pointer: "/", text: `{"": ["192.0.2.0/24"]}`, has: "192.0.2.1"},
		{name: "a BOM before JSON", pointer: "/a", text: "\ufeff" + `{"a": ["192.0.2.0/24"]}`, has: "192.0.2.1"},
		{name: "no pointer", text: google, err: `list: it is a JSON object: set pointer to the array with the networks: "/prefixes"`},
		{name: "a pointer to an object", pointer: "/a", text: `{"a": {"b/c": []}}`, err: `list: want an array at "/a", and there is an object: pointer may be "/a/b~1c"`},
		{name: "no arrays", text: `{"a": 1}`, err: `list: want an array at "", and there is an object without arrays`},
		{name: "a pointer to text", pointer: "/a", text: `{"a": "192.0.2.0/24"}`, err: `list: want an array at "/a"`},
		{name: "a pointer to nothing", pointer: "/a/b", text: `{"a": {}}`, err: `list: there is nothing at the pointer "/a/b"`},
		{name: "a pointer through text", pointer: "/a/b", text: `{"a": "b"}`, err: `list: there is nothing at the pointer "/a/b"`},
		{name: "an index beyond the end", pointer: "/1", text: `[[]]`, err: `list: there is nothing at the pointer "/1"`},
		{name: "an index with a zero", pointer: "/00", text: `[[]]`, err: `list: there is nothing at the pointer "/00"`},
		{name: "twice", pointer: "/a", text: `{"a": [], "a": ["192.0.2.0/24"]}`, err: `list: /a is given twice`},
		{name: "text, with a pointer", pointer: "/a", text: "192.0.2.0/24", err: "list: the JSON cannot be read: "},
		{name: "half of it", text: `["192.0.2.0/24", "198.`, err: "list: the JSON cannot be read: unexpected end of JSON input"},
		{name: "JSON by lines", text: "{\"cidr\": \"192.0.2.0/24\"}\n{\"cidr\": \"198.51.100.7\"}\n", err: "list: the JSON cannot be read: "},
		{name: "not UTF-8", text: "[\"\xff\"]", err: "list: the JSON is not UTF-8"},
		{name: "wrong elements", pointer: "/p", text: `{"p": ["192.0.2.0/24", "x", {"name": "y"}, 7, {"prefix": 24}]}`,
			err: `list: /p/1: "x" must be a network such as 10.0.0.0/8, or an address; list: /p/2: ` + wantMember +
				`; list: /p/3: want a text with a network, or an object with one; list: /p/4: ` + wantMember},
		{name: "a member in other letters", text: `[{"CIDR": "192.0.2.0/24"}]`, err: "list: /0: " + wantMember},
	} {
		t.Run(c.name, func(t *testing.T) {
			networks, err := parse("list", c.pointer, []byte(c.text))
			if c.err != "" || err != nil {
				if err == nil || !strings.Contains(err.Error(), c.err) || c.err == "" {
					t.Fatalf("%v, want %s", err, c.err)
				}
				return
			}
			for _, a := range strings.Fields(c.has) {
				if !networks.Contains(netip.MustParseAddr(a)) {
					t.Errorf("it lacks %s", a)
				}
			}
			for _, a := range strings.Fields(c.lacks) {
				if networks.Contains(netip.MustParseAddr(a)) {
					t.Errorf("it has %s", a)
				}
			}
		})
	}
}

// A list has at most so many entries, right or wrong.
func TestMostEntries(t *testing.T) {
	if _, err := parse("list", "", []byte(strings.Repeat("10.0.0.1\n", maxEntries))); err != nil {
		t.Error(err)
	}
	for _, entry := range []string{"10.0.0.1\n", "[]\n"} {
		_, err := parse("list", "", []byte("10.0.0.1\n"+strings.Repeat(entry, maxEntries)))
		if err == nil || entry[0] == '1' && err.Error() != "list: more than 2000000 networks" {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

// Whatever a list has, it is refused, or each of its networks is one.
func FuzzParse(f *testing.F) {
	f.Add("", "192.0.2.0/24 # a\r\n;\n::1\n")
	f.Add("/prefixes", `{"prefixes": [{"ipv4Prefix": "192.0.2.0/24"}, "::/0"]}`)
	f.Add("/0/a~1", `[{"a/": [{"cidr": "x"}, 1]}]`)
	f.Fuzz(func(t *testing.T, pointer, text string) {
		if pointer != "" && pointer[0] != '/' {
			return // settings have none of these
		}
		networks, err := parse("list", pointer, []byte(text))
		if (networks == nil) == (err == nil) {
			t.Fatalf("%v and %v", networks, err)
		}
		if err != nil && len(err.Error()) > 8<<10+2*len(pointer)*shownProblems {
			t.Fatalf("an error of %d bytes", len(err.Error()))
		}
		if err != nil || pointer != "" || strings.ContainsAny(text, "[{") {
			return
		}
		for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) { // the slow, obvious way
			entry, _, _ := strings.Cut(strings.ReplaceAll(line, ";", "#"), "#")
			if entry = strings.TrimSpace(entry); entry == "" {
				continue
			}
			network, err := address.NAT64(nil).ParseNetwork(entry)
			if err != nil || !network.IsValid() || !networks.Contains(network.Addr()) {
				t.Fatalf("%q: %v, %v", entry, network, err)
			}
		}
	})
}

// manyLines is a list of n networks or addresses.
func manyLines(n int, suffix string) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d.%d.%d.%d%s\n", 1+i>>16&127, i>>8&255, i&255, i&7*32, suffix)
	}
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	const n = 1_000_000
	var asJSON strings.Builder
	asJSON.WriteString(`{"prefixes": [`)
	for line := range strings.Lines(string(manyLines(n, "/27"))) {
		fmt.Fprintf(&asJSON, `{"ipv4Prefix": %q},`, strings.TrimSpace(line))
	}
	asJSON.WriteString(`{"ipv4Prefix": "192.0.2.0/24"}]}`)
	for _, c := range []struct {
		name, pointer string
		text          []byte
	}{
		{"networks", "", manyLines(n, "/27")},
		{"addresses", "", manyLines(n, "")},
		{"json", "/prefixes", []byte(asJSON.String())},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := parse("list", c.pointer, c.text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
