package main

import (
	"reflect"
	"slices"
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
		if err := f.Parse(args); err != nil {
			t.Fatal(args, err)
		}
		s := config.Default()
		if err := c.override(&s); err != nil {
			return s, err.Error()
		}
		return s, ""
	}
	for _, one := range flags {
		for _, other := range flags {
			a, wrong := settings(slices.Concat(one, other)...)
			b, wrongToo := settings(slices.Concat(other, one)...)
			if &one[0] != &other[0] && (wrong != wrongToo || !reflect.DeepEqual(a, b)) {
				t.Errorf("%v %v: %+v, %s\nin the other order: %+v, %s", one, other, a, wrong, b, wrongToo)
			}
		}
	}
}
