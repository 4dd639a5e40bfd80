package config_test

import (
	"slices"
	"testing"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

func TestClaimsUnknown(t *testing.T) {
	const byClaims = "rules: [{name: a, key: claims.sub, limits: [1 per 1s]}, {name: b, key: client.ip, limits: [1 per 1s], default: true}]\n"
	for file, want := range map[string]bool{
		byClaims: true,
		"server: {jwt: {trusted: true}}\n" + byClaims:                                        true,
		"server: {jwt: {jwks_file: keys.json}}\n" + byClaims:                                 false,
		"server: {listen: \":1\"}\nrules: []\n":                                              false,
		"server: {listen: \":1\"}\n" + byClaims:                                              true,
		"server: {jwt: {trusted: true}}\ntrusted_proxies: [10.0.0.5]\n" + byClaims:           false,
		"rules: [{name: a, match: claims.sub == \"x\", key: client.ip, limits: [1 per 1s]}]": true,
		"rules: [{name: a, key: client.ip, limits: [1 per 1s]}]":                             false,
	} {
		settings, set, err := config.Read([]rules.File{{Name: "f", Data: []byte(file)}}, nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if all := settings.Findings(set); (len(all) == 1 && all[0].Code == rules.CodeClaimsUnknown) != want || len(all) > 1 {
			t.Errorf("%s: %v, want %t", file, all, want)
		}
	}
}

// Under max_delay, a request must be able to wait for its turn.
func TestQueuesInVain(t *testing.T) {
	for _, c := range []struct {
		limit, delay, mode string
		want               bool
	}{
		{"5 per 1m leaky_bucket", "", "enforce", true}, // a request each 12 s, and 10 s to wait
		{"5 per 1m leaky_bucket", "", "off", false},
		{"5 per 1m leaky_bucket", "max_delay: 12s", "enforce", false},
		{"5 per 1m leaky_bucket", "max_delay: 11s", "shadow", true},
		{"6 per 1m leaky_bucket", "", "enforce", false},
		{"10 per 1s leaky_bucket", "max_delay: 99ms", "enforce", true},
	} {
		file := "server: {listen: \":1\", " + c.delay + "}\nrules: [{name: a, key: client.ip, limits: [" + c.limit + "], shape: true, mode: " + c.mode + "}]\n"
		settings, set, err := config.Read([]rules.File{{Name: "f", Data: []byte(file)}}, nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if all := settings.Findings(set); slices.ContainsFunc(all, func(f rules.Finding) bool { return f.Code == rules.CodeNoQueue }) != c.want || len(all) > 1 {
			t.Errorf("%s: %v", file, all)
		}
	}
}
