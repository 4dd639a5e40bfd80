package main

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/rules"
)

func TestWithoutServer(t *testing.T) {
	const some = "rules:\n  - {name: a, key: client.ip, limits: [1 per 1m]}\n"
	for text, want := range map[string]string{
		some:                                some,
		"server:\n  listen: :1\n" + some:    "\n\n" + some,
		"server: {listen: \":1\"}\n" + some: "\n" + some,
		"server:\n  listen: :1\n\n# ours\n" + some:            "\n\n\n# ours\n" + some,
		some + "server:\n  # secret\n  store: redis://:x@h\n": some + "\n\n\n",
		some + "server:\n  store: redis://:x@h":               some + "\n\n",
		"\"server\":\n  listen: :1\n" + some:                  "\n\n" + some,
		"# server:\n" + some:                                  "# server:\n" + some,
		"tiers: {server: cost > 1}\n" + some:                  "tiers: {server: cost > 1}\n" + some,
		"{server: {listen: \":1\"}, rules: []}":               "{server: {listen: \":1\"}, rules: []}",
		"server: [\n":                                         "server: [\n",
	} {
		got, had := withoutServer(text)
		if strings.TrimRight(got, "\n") != strings.TrimRight(want, "\n") || had != (got != text) {
			t.Errorf("%q: %q, %t, want %q", text, got, had, want)
		}
		if !had {
			continue
		}
		if strings.Count(got, "\n") != strings.Count(text, "\n") {
			t.Errorf("%q: lines have moved: %q", text, got)
		}
		if set, err := rules.Parse("x", []byte(got)); err != nil || set.HasServer || len(set.Rules) != 1 {
			t.Errorf("%q: %v", got, err)
		}
	}
}
