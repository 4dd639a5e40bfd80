package expr

import "testing"

// Zones do not count, and a network with one is refused rather than taken for the
// one address before it.
func TestParseNetworkZones(t *testing.T) {
	for text, want := range map[string]string{
		"fe80::1%eth0": "fe80::1/128", "fe80::1%eth0/64": "", "fe80::/64%eth0": "", "::ffff:192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1/120": "192.0.2.0/24",
	} {
		got := ""
		if p, err := ParseNetwork(text, nil); err == nil {
			got = p.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
