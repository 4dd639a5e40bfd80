package rules_test

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// What a file says in another way is the same, in its only form, or the error shows how to write it.
func TestSpellingsInFiles(t *testing.T) {
	for fields, want := range map[string]string{
		`limits: [5 PER Week starts SUN], mode: SHADOW, on_store_error: Deny`:                                      "5 per week starts sunday",
		`limits: [{amount: 5, per: Week, starts: Sun}], mode: Shadow, on_store_error: DENY`:                        "5 per week starts sunday",
		`limits: [{amount: 5, per: YEAR, starts: April 6, in: europe/berlin}], mode: shadow, on_store_error: deny`: "5 per year in Europe/Berlin starts 04-06",
		`limits: [{amount: 5, per: day, in: America/New York}], mode: shadow, on_store_error: deny`:                "5 per day in America/New_York",
		`limits: [{amount: 5, period: 10s, algorithm: Sliding-Log}], mode: shadow, on_store_error: deny`:           "5 per 10s sliding_log",
		`limits: [4 IN_FLIGHT], mode: shadow, on_store_error: deny`:                                                "4 in_flight",
	} {
		s, err := rules.Parse("r.yaml", []byte("rules: [{name: r, key: client.ip, "+fields+"}]"))
		if err != nil {
			t.Error(err)
			continue
		}
		if r := s.Rules[0]; r.Limits[0].Terms() != want || r.Mode != rules.Shadow || r.OnStoreError.String() != "deny" {
			t.Errorf("%s: %s, %s, %s, want %s", fields, r.Limits[0].Terms(), r.Mode, r.OnStoreError, want)
		}
	}
	for file, want := range map[string]string{
		"rules: [{name: r, key: client.ip, limits: [5 per minute]}]":            `period "minute": write 1m`,
		"rules: [{name: r, key: client.ip, limits: [{amount: 5, period: 2w}]}]": `r.yaml:1:64: period "2w": write 14d`,
		"trusted_proxies: [010.0.0.0/8]\nrules: []":                             `r.yaml:1:19: "010.0.0.0/8": a number that begins with 0 may be octal: write 10.0.0.0/8`,
		"trusted_proxies: [10.0.0.0/255.0.0.0]\nrules: []":                      `r.yaml:1:19: "10.0.0.0/255.0.0.0": want the length of the prefix, and no mask: write 10.0.0.0/8`,
		"blocklist: ['client.ip in cidr(\"010.0.0.1\")']\nrules: []":            `r.yaml:1:32: "010.0.0.1": a number that begins with 0 may be octal: write 10.0.0.1`,
	} {
		_, err := rules.Parse("r.yaml", []byte(file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", file, err, want)
		}
	}
	for text, want := range map[string]string{
		"010.0.0.1": "a number that begins with 0 may be octal: write 10.0.0.1", "[2001:DB8::1]": `write "2001:db8::1"`, "192.0.2.1:80": "it has a port: write 192.0.2.1",
		"64:ff9b::cb00:7101": `write "203.0.113.1"`, "localhost": "which is not an address",
	} {
		s := parse(t, "blocklist: ['client.ip == \""+text+"\"']\nrules: []")
		if len(s.Findings) != 1 || s.Findings[0].Code != "ST006" || !strings.Contains(s.Findings[0].Text, want) {
			t.Errorf("%s: %v, want %s", text, s.Findings, want)
		}
	}
	s := parse(t, "trusted_proxies: ['[2001:DB8::]/32', ' 10.1.2.3/8 ', 2001:0db9::1]\nrules: []")
	if got := s.TrustedProxies[0].String() + " " + s.TrustedProxies[1].String() + " " + s.TrustedProxies[2].String(); got != "2001:db8::/32 10.0.0.0/8 2001:db9::1/128" {
		t.Error(got)
	}
}
