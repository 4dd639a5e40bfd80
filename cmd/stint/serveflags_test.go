package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/stintdev/stint/server/config"
)

// The order of flags means nothing: each two of serve give the same settings either way.
func TestFlagsInAnyOrder(t *testing.T) {
	flags := [][]string{
		{"--listen", "127.0.0.1:1"}, {"--check-listen", "127.0.0.1:2"}, {"--probe-listen", "127.0.0.1:3"}, {"--admin-listen", "127.0.0.1:4"},
		{"--store", "redis://127.0.0.1:5"}, {"--namespace", "n"}, {"--headers", "draft-11"}, {"--upstream", "http://127.0.0.1:6"},
		{"--envoy", "dir"}, {"--envoy-listen", "127.0.0.1:7"}, {"--envoy-each"},
	}
	settings := func(args ...string) (config.Settings, string) {
		var c choice
		f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		c.addFlags(f)
		if err := f.Parse(append(args, "--limit", "1 per 1s")); err != nil {
			t.Fatal(args, err)
		}
		s, _, err := c.load(nil)
		if err != nil {
			return s, err.Error()
		}
		return s, ""
	}
	for _, one := range flags {
		for _, other := range flags {
			a, wrong := settings(slices.Concat(one, other)...)
			b, wrongToo := settings(slices.Concat(other, one)...)
			if &one[0] != &other[0] && (wrong != wrongToo || !a.Equal(&b)) {
				t.Errorf("%v %v: %+v, %s\nin the other order: %+v, %s", one, other, a, wrong, b, wrongToo)
			}
		}
	}
}

// A flag of a setting goes before the variable, and that before the file; each problem names its origin.
func TestFlagsBeforeVariablesBeforeTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stint.yaml")
	const file = "server: {namespace: file, store: memory, max_keys: 5, log: {level: warn}, headers: [draft-11]}\nrules: [{name: a, key: client.ip, limits: [1 per 1s]}]\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(environ []string, args ...string) (config.Settings, error) {
		var c choice
		f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		c.addFlags(f)
		if err := f.Parse(append(args, "--config", path)); err != nil {
			t.Fatal(args, err)
		}
		s, _, err := c.load(environ)
		return s, err
	}
	s, err := load([]string{"STINT_SERVER_NAMESPACE=variable", "STINT_SERVER_MAX_KEYS=7", "STINT_SERVER_LOG_LEVEL=error", "STINT_SERVER_STORE="},
		"--namespace=flag", "--headers=openai,anthropic", "--upstream", "http://localhost:9")
	if err != nil || s.Namespace != "flag" || s.MaxKeys != 7 || s.Log.Level != slog.LevelError || s.Store != "memory" || s.Dialect.String() != "openai,anthropic" || len(s.Routes) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = load([]string{"STINT_SERVER_MAX_KEYS=0", "STINT_SERVER_NAMESPACE=a b"}, "--namespace=a/b", "--store=ftp://x", "--headers=x")
	const want = `--namespace: namespace "a/b": must be 1 to 64 of A–Z a–z 0–9 _ . : -
STINT_SERVER_MAX_KEYS: want a number from 1 to 2147483648, have "0"
--headers: unknown header dialect "x": use any of x-ratelimit, x-ratelimit-epoch, draft-11, none, openai, anthropic
--store: `
	if _, isUsage := errors.AsType[errUsage](err); !isUsage || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}
