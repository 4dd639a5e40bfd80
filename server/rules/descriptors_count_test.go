package rules_test

import (
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// The names are those that envoyproxy/ratelimit writes to Redis for the same call: the domain, and
// each key and value of the request, or the pattern where share_threshold counts all its values.
func TestEnvoyCount(t *testing.T) {
	s, err := rules.ParseFiles([]rules.File{
		{Name: "own.yaml", Data: []byte("rules: [{name: own, key: request.path, limits: [5 per 1m fixed_window]}]")},
		{Name: "d.yaml", Envoy: true, Data: []byte(`
domain: d
descriptors:
  - {key: k, value: zero, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 5}}
  - key: a
    value: "1"
    descriptors:
      - key: b
        descriptors:
          - {key: c, value: x*, rate_limit: {unit: hour, requests_per_unit: 5}}
  - key: f
    value: files/*
    share_threshold: true
    descriptors: [{key: u, rate_limit: {unit: day, requests_per_unit: 5}}]
  - {key: month, rate_limit: {unit: month, requests_per_unit: 5, time_zone: UTC}}
  - {key: bucket, rate_limit: {unit: minute, requests_per_unit: 5, algorithm: token_bucket}}
  - {key: held, rate_limit: {unit: minute, requests_per_unit: 5, hold: 10s}}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", stint.MaxKey+1)
	for _, c := range []struct{ entries, want string }{
		{"k=zero", "d_k_zero_"},
		{"remote_address=192.0.2.1", "d_remote_address_192.0.2.1_"},
		{"remote_address=", "d_remote_address__"},
		{"a=1 b=2 c=x3", "d_a_1_b_2_c_x3_"},
		{"a=1 b= c=x", "d_a_1_b__c_x_"},
		{"f=files/1 u=ann", "d_f_files/*_u_ann_"},
		{"override x=1 y=2", "d_x_1_y_2_"},
		{"override x=", "d_x__"},
		{"month=1", ""},
		{"bucket=1", ""},
		{"held=1", ""},
		{"remote_address=" + long, ""},
	} {
		var d rules.Descriptor
		text, override := strings.CutPrefix(c.entries, "override ")
		if override {
			d.Override = &rules.DescriptorLimit{Amount: 3, Unit: rules.Minute}
		}
		for _, pair := range strings.Fields(text) {
			key, value, _ := strings.Cut(pair, "=")
			d.Entries = append(d.Entries, rules.Entry{Key: key, Value: value})
		}
		d.Cost = 1
		var m rules.Plan
		if err := s.Asks(&rules.Input{Descriptors: &rules.Descriptors{Domain: "d", List: []rules.Descriptor{d}}}, &m); err != nil || len(m.Asks) != 1 {
			t.Fatalf("%s: %v, %v", c.entries, m.Asks, err)
		}
		got, ok := s.EnvoyCount(m.Asks[0].Limit, m.Asks[0].Key)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%.60s: %q, %v, want %q", c.entries, got, ok, c.want)
		}
	}
	if got, ok := s.EnvoyCount(s.Rules[0].Limits[0], "k"); ok {
		t.Errorf("a rule of another file: %q", got)
	}
}
