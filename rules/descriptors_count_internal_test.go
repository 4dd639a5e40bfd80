package rules

import (
	"testing"

	"github.com/stintdev/stint"
)

// The names are those that envoyproxy/ratelimit writes to Redis for the same entries.
func TestEnvoyCount(t *testing.T) {
	join := func(parts ...string) string {
		k, err := JoinKey(parts...)
		if err != nil {
			t.Fatal(err)
		}
		return string(k)
	}
	path := func(pairs ...string) (p []Entry) {
		for i := 0; i < len(pairs); i += 2 {
			p = append(p, Entry{pairs[i], pairs[i+1]})
		}
		return p
	}
	for _, c := range []struct {
		what  string
		rule  DescriptorRule
		limit string
		key   string
		want  string
	}{
		{"the file gives the value", DescriptorRule{Domain: "d", Path: path("k", "zero")}, "5 per 1m fixed_window", "any", "d_k_zero_"},
		{"the request gives it", DescriptorRule{Domain: "d", Path: path("remote_address", "")}, "5 per 1s fixed_window", "192.0.2.1", "d_remote_address_192.0.2.1_"},
		{"both", DescriptorRule{Domain: "d", Path: path("a", "1", "b", "", "c", "x*")}, "5 per 1h fixed_window", join("2", "x3"), "d_a_1_b_2_c_x3_"},
		{"an empty value", DescriptorRule{Domain: "d", Path: path("a", "", "b", "")}, "5 per 24h fixed_window", join("", "2"), "d_a__b_2_"},
		{"share_threshold", DescriptorRule{Domain: "d", Path: path("f", "files/*", "u", ""), Shared: []bool{true}}, "5 per 1m fixed_window", "ann", "d_f_files/*_u_ann_"},
		{"an override", DescriptorRule{Domain: "d"}, "5 per 1m fixed_window", join("a", "1", "b", "2"), "d_a_1_b_2_"},
		{"another algorithm", DescriptorRule{Domain: "d", Path: path("a", "")}, "5 per 1m sliding_window", "1", ""},
		{"no whole seconds", DescriptorRule{Domain: "d", Path: path("a", "")}, "5 per 1500ms fixed_window", "1", ""},
		{"a window of the calendar", DescriptorRule{Domain: "d", Path: path("a", "")}, "5 per month", "1", ""},
	} {
		s := &Set{descriptorRules: descriptorsByName([]*Rule{{Name: "plain"}, {Name: "r", Descriptor: &c.rule}})}
		got, ok := s.EnvoyCount(stint.MustLimit("r: "+c.limit), c.key)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", c.what, got, ok, c.want)
		}
		if got, ok := s.EnvoyCount(stint.MustLimit("plain: 5 per 1m fixed_window"), c.key); ok {
			t.Errorf("a rule of another file: %q", got)
		}
	}
	if got, ok := new(Set).EnvoyCount(stint.MustLimit("r: 5 per 1m fixed_window"), "k"); ok {
		t.Errorf("no rules: %q", got)
	}
}
