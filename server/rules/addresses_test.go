package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

const nat64 = "nat64_prefixes: [2001:db8:64::/96, 2001:db8:4800::/48]\n"

// spellings are the ways to write the client 203.0.113.1.
var spellings = []string{
	"203.0.113.1", "::ffff:203.0.113.1", "64:ff9b::cb00:7101", "2002:cb00:7101::1", "2002:cb00:7101:5:6:7:8:9",
	"2001:0:4136:e378:8000:63bf:34ff:8efe", "2001:db8:64::cb00:7101", "2001:db8:4800:cb00:71:100::",
}

// networksOf are the ways to write 203.0.113.0/24.
var networksOf = []string{
	"203.0.113.0/24", "203.0.113.99/24", " 203.0.113.0/24 ", "::ffff:203.0.113.0/120", "64:ff9b::cb00:7100/120", "[64:FF9B::CB00:7100]/120", "2002:cb00:7100::/40",
	"2001:0:4136:e378:8000:63bf:34ff:8e00/120", "2001:db8:64::cb00:7100/120", "2001:db8:4800:cb00:71::/80",
}

// An IPv4 client is one client in keys, conditions, lists, bans and overrides, however it and they are
// spellings, and so is its neighbour, which none of them means.
func TestOneClientHoweverItIsWritten(t *testing.T) {
	for _, network := range networksOf {
		s := parse(t, nat64+`
blocklist: ['attrs.list == 1 && client.ip in cidr("`+network+`")']
tiers: {inside: 'client.ip in cidr("`+network+`")'}
rules:
  - {name: client, key: client.ip, limits: [5 per 1m], tiers: {inside: {times: 3}}}
  - {name: default, limits: [5 per 1m]}
  - {name: text, match: 'request.headers["x-real-ip"] in cidr("`+network+`")', key: '"all"', limits: [5 per 1m]}
  - {name: made, match: 'client.ip in cidr(attrs.network)', key: '"all"', limits: [5 per 1m]}
`)
		if len(s.Findings) > 0 {
			t.Errorf("%s: %v", network, s.Findings)
		}
		for _, client := range spellings {
			in := &rules.Input{Client: addr(client), Operation: "op", Cost: 1, Attrs: map[string]any{"network": network, "list": int64(0)}, Request: get("/", "X-Real-Ip", client)}
			if got, want := asked(s, in), `client="203.0.113.1":1 default="op\x00203.0.113.1\x00":1 text="all":1 made="all":1`; got != want {
				t.Errorf("%s in %s:\ngot  %s\nwant %s", client, network, got, want)
			}
			if s.Client(in) != addr("203.0.113.1") {
				t.Errorf("%s is the client %s", client, s.Client(in))
			}
			in.Attrs["list"] = int64(1)
			var m rules.Plan
			if err := s.Asks(in, &m); err != nil || m.List != rules.Blocked {
				t.Errorf("%s in %s on the blocklist: %v, %v", client, network, m.List, err)
			}
			for _, c := range []rules.Controls{
				{Bans: []rules.Ban{{Note: rules.Note{ID: "b"}, Network: network}}},
				{Blocklist: []rules.Listed{{Note: rules.Note{ID: "b"}, Network: network}}},
				{Safelist: []rules.Listed{{Note: rules.Note{ID: "b"}, Network: network}}},
				{Blocklist: []rules.Listed{{Note: rules.Note{ID: "b"}, Match: `client.ip in cidr("` + network + `")`}}},
			} {
				in.Attrs["list"] = int64(0)
				changed, problems := s.With(&c)
				if len(problems) > 0 {
					t.Fatalf("%s: %v", network, problems)
				}
				if err := changed.Asks(in, &m); err != nil || m.List == rules.Unlisted && m.Ban == nil {
					t.Errorf("%s in %s: %v, %v", client, network, &c, err)
				}
				in.Client = addr(strings.NewReplacer("113.1", "114.1", "7101", "7201", "71:100", "72:100", "8efe", "8dfe").Replace(client))
				if err := changed.Asks(in, &m); err != nil || m.List != rules.Unlisted || m.Ban != nil {
					t.Errorf("the neighbour of %s, %s, in %s: %v, %v", client, in.Client, network, &c, err)
				}
				in.Client = addr(client)
			}
		}
	}
}

// Keys that a person gives are those of the client, or the error shows them.
func TestKeysOfClientsHoweverTheyAreWritten(t *testing.T) {
	s := parse(t, nat64+"rules: [{name: client, key: client.ip, limits: [5 per 1m]}]")
	for _, key := range append(spellings[1:], "[64:ff9b::cb00:7101]", " 203.0.113.1 ", "203.0.113.001") {
		_, err := s.AsCounted(s.Rules[0], rules.Key(key))
		if err == nil || !strings.Contains(err.Error(), " 203.0.113.1") {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, key := range []string{"2001:DB8:1:2::3", "2001:0db8:1:2::3", "[2001:db8:1:2::]/64", "2001:db8:1:2::3/64", "2001:db8:1:2::/064"} {
		if _, err := s.AsCounted(s.Rules[0], rules.Key(key)); err == nil || !strings.Contains(err.Error(), " 2001:db8:1:2::/64") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Descriptors that Envoy makes of a client find and count what they do of the IPv4 address.
func TestDescriptorsOfOneClient(t *testing.T) {
	s, err := rules.ParseFiles([]rules.File{
		{Name: "r.yaml", Data: []byte(nat64 + "rules: [{name: client, key: client.ip, limits: [5 per 1m]}]")},
		{Name: "d.yaml", Envoy: true, Data: []byte(`
domain: d
descriptors:
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: masked_remote_address, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: path, descriptors: [{key: remote_address, value: 203.0.113.1, rate_limit: {unit: minute, requests_per_unit: 1}}]}
  - {key: other, rate_limit: {unit: minute, requests_per_unit: 5}}
`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	keys := func(address, masked string) string {
		entries := []rules.Entry{{Key: "path", Value: "/"}, {Key: "remote_address", Value: address}}
		in := &rules.Input{Descriptors: &rules.Descriptors{Domain: "d", List: []rules.Descriptor{
			{Cost: 1, Entries: entries[1:]},
			{Cost: 1, Entries: []rules.Entry{{Key: "masked_remote_address", Value: masked}}},
			{Cost: 1, Entries: entries},
		}}}
		var m rules.Plan
		if err := s.Asks(in, &m); err != nil {
			t.Fatal(err)
		}
		var text []string
		for i, ask := range m.Asks {
			text = append(text, m.Rules[i].Name+"="+ask.Key)
		}
		if entries[1].Value != address {
			t.Error("the caller's entries were changed")
		}
		return strings.Join(text, " ")
	}
	want := keys("203.0.113.1", "203.0.113.1/32")
	if !strings.Contains(want, "path/") && strings.Count(want, "=") != 4 {
		t.Fatalf("the descriptors ask %s", want)
	}
	for _, client := range spellings {
		masked := netip.PrefixFrom(addr(client), addr(client).BitLen()).String()
		if got := keys(client, masked); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", client, got, want)
		}
	}
	for _, other := range []string{"2001:db8::1", "no address", "", "203.0.113.2"} {
		if got := keys(other, other); !strings.Contains(got, "="+other) && other != "" || strings.Contains(got, "203.0.113.1") {
			t.Errorf("%s: %s", other, got)
		}
	}
}

func TestNAT64Prefixes(t *testing.T) {
	many := "nat64_prefixes: ["
	for i := range 17 {
		many += fmt.Sprintf("2001:db8:%d::/96, ", i)
	}
	for _, c := range []struct{ file, want string }{
		{"nat64_prefixes: [2001:db8:64::/96, 64:ff9b:1::/48]", ""},
		{"nat64_prefixes: []", ""},
		{"nat64_prefixes: [2001:db8:64::/95]", "r.yaml:1:18: 2001:db8:64::/95: the length of a NAT64 prefix is 32, 40, 48, 56, 64 or 96"},
		{"nat64_prefixes: [2001:db8:64::1/96]", "r.yaml:1:18: 2001:db8:64::1/96: it has bits beyond the prefix: write 2001:db8:64::/96"},
		{"nat64_prefixes: [192.0.2.0/24]", "r.yaml:1:18: 192.0.2.0/24: want a prefix of IPv6, such as 2001:db8:64::/96"},
		{"nat64_prefixes: [2001:db8:64::]", `r.yaml:1:18: "2001:db8:64::": want a prefix of IPv6 with its length, such as 2001:db8:64::/96`},
		{"nat64_prefixes:\n- 2001:db8:64::/96\n- 2001:db8:64::/96", "r.yaml:3:3: 2001:db8:64::/96: it overlaps 2001:db8:64::/96, which is listed before"},
		{"nat64_prefixes:\n- 2001:db8:64::/48\n- 2001:db8:64::/96", "r.yaml:3:3: 2001:db8:64::/96: it overlaps 2001:db8:64::/48, which is listed before"},
		{"nat64_prefixes: [2002:1:2::/48]", "r.yaml:1:18: 2002:1:2::/48: it overlaps 2002::/16, which is 6to4"},
		{"nat64_prefixes: 2001:db8:64::/96", `r.yaml:1:17: want a list, have the text "2001:db8:64::/96"`},
		{"nat64_prefixes: []\nnat64_prefixes: []", `r.yaml:2:1: field "nat64_prefixes" is given twice: first on line 1`},
		{many + "]", "r.yaml:1:17: 17 prefixes: at most 16"},
	} {
		_, err := rules.Parse("r.yaml", []byte(c.file+"\nrules: []"))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.file, got, c.want)
		}
	}
	file := func(name, text string) rules.File { return rules.File{Name: name, Data: []byte(text)} }
	_, err := rules.ParseFiles([]rules.File{file("a", "nat64_prefixes: []"), file("b", "rules: []\nnat64_prefixes: []")})
	if err == nil || err.Error() != "b:2:17: nat64_prefixes is given twice, first at a:1: only one file may have it" {
		t.Error(err)
	}
	// Any file may have them, also the last.
	s, err := rules.ParseFiles([]rules.File{file("a", `{blocklist: ['client.ip in cidr("2001:db8:64::cb00:7100/120")'], rules: []}`), file("b", nat64)})
	if err != nil {
		t.Fatal(err)
	}
	var m rules.Plan
	if err := s.Asks(&rules.Input{Client: addr("203.0.113.9")}, &m); err != nil || m.List != rules.Blocked {
		t.Errorf("%v, %v", m.List, err)
	}
}

// A network that does not say which IPv4 addresses it means is never all of them: it is found.
func TestHollowNetworks(t *testing.T) {
	for _, network := range []string{"64:ff9b::/96", "2002::/16", "2001::/32", "2001:db8:64::/96", "2001:db8:4800::/48"} {
		file := nat64 + "trusted_proxies: ['" + network + "']\nblocklist: ['client.ip in cidr(\"" + network + "\")']\nrules: [{name: r, match: 'client.ip in cidr(\"" + network + "\")', key: client.ip, limits: [1 per 1m]}]"
		s := parse(t, file)
		for i, at := range []string{":2:19", ":3:32", ":4:45"} {
			if len(s.Findings) != 3 || s.Findings[i].Code != "ST006" || !strings.HasSuffix(s.Findings[i].Where, at) || !strings.Contains(s.Findings[i].Text, "write the network of IPv4, such as 203.0.113.0/24") {
				t.Fatalf("%s: %v", network, s.Findings)
			}
		}
		for _, client := range append(spellings, "192.0.2.1") {
			var m rules.Plan
			if err := s.Asks(&rules.Input{Client: addr(client)}, &m); err != nil || m.List != rules.Unlisted || len(m.Asks) > 0 {
				t.Errorf("%s holds %s", network, client)
			}
		}
		if _, err := s.ParseNetwork(network); err == nil || !strings.Contains(err.Error(), "write the network of IPv4") {
			t.Errorf("%s for a ban: %v", network, err)
		}
		_, problems := s.With(&rules.Controls{Bans: []rules.Ban{{Note: rules.Note{ID: "b"}, Network: network}}})
		if len(problems) != 1 {
			t.Errorf("%s as a ban: %v", network, problems)
		}
	}
	s := parse(t, "trusted_proxies: ['::/0', '2000::/3', 64:ff9b::/48, '2002:a00::/24', '::ffff:0:0/96']\nrules: []")
	for _, f := range s.Findings {
		if f.Code == "ST006" {
			t.Error(f)
		}
	}
}

// What an explanation says is missing is what the rule misses, by the file's own prefixes of NAT64, too.
func TestExplainsNAT64(t *testing.T) {
	set := parse(t, `
nat64_prefixes: [2001:db8:64::/96]
rules:
  - name: r
    match: 'attrs.from in cidr("203.0.113.0/24") ? request.headers["x-inside"] == "1" : request.headers["x-outside"] == "1"'
    limits: [1 per 1m]
`)
	x, err := set.Explain(t.Context(), &rules.Input{Request: get("/"), Attrs: map[string]any{"from": "2001:db8:64::cb00:7101"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := x.Rules[0].Why, `match needs request.headers["x-inside"], which is missing`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
