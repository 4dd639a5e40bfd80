package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// envoy parses one file of Envoy's form.
func envoy(t testing.TB, text string) *rules.Set {
	t.Helper()
	s, err := rules.ParseFiles([]rules.File{{Name: "config.yaml", Data: []byte(text), Envoy: true}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// call is a call with one descriptor for each text, such as "user=ann path=/x".
func call(domain string, texts ...string) *rules.Input {
	d := &rules.Descriptors{Domain: domain}
	for _, text := range texts {
		one := rules.Descriptor{Cost: 1}
		for entry := range strings.FieldsSeq(text) {
			key, value, _ := strings.Cut(entry, "=")
			one.Entries = append(one.Entries, rules.Entry{Key: key, Value: value})
		}
		d.List = append(d.List, one)
	}
	return &rules.Input{Cost: 1, Descriptors: d}
}

// callAsks is what a call asks, as "rule key cost terms; …".
func callAsks(t testing.TB, s *rules.Set, in *rules.Input) string {
	t.Helper()
	var m rules.Matches
	if err := s.Asks(in, &m); err != nil {
		t.Fatal(err)
	}
	return shownAsks(&m)
}

func shownAsks(m *rules.Matches) string {
	var all []string
	for i, a := range m.Asks {
		all = append(all, fmt.Sprintf("%s %s %d %q", m.Rules[i].Name, rules.Key(a.Key), a.Cost, a.Limit.Terms()))
	}
	for _, a := range m.GiveBack {
		all = append(all, fmt.Sprintf("back %s %d %q", rules.Key(a.Key), a.Cost, a.Limit.Terms()))
	}
	return strings.Join(all, "; ")
}

const shop = `
domain: shop
descriptors:
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: remote_address
    value: 192.0.2.1
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: path
    value: /api/*
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 100}
  - key: all
    value: "yes"
    rate_limit: {unit: day, requests_per_unit: 5}
`

func TestDescriptorsFindRules(t *testing.T) {
	s := envoy(t, shop)
	for _, test := range []struct{ call, want string }{
		{"remote_address=192.0.2.7", `shop/remote_address 192.0.2.7 1 "10 per 1m fixed_window"`},
		{"remote_address=192.0.2.1", `shop/remote_address:192.0.2.1 all 1 "2 per 1s fixed_window"`},
		{"path=/api/x user=ann", `shop/path:/api/-/user::000000000000 ["/api/x","ann"] 1 "100 per 1h fixed_window"`},
		{"path=/api/x", ""},
		{"path=/api/x user=ann more=1", ""},
		{"remote_address=192.0.2.7 user=ann", ""},
		{"all=yes", `shop/all:yes all 1 "5 per 24h fixed_window"`},
		{"all=no", ""},
		{"other=1", ""},
	} {
		got := callAsks(t, s, call("shop", test.call))
		if i := strings.Index(got, "::"); i > 0 {
			test.want = test.want[:strings.Index(test.want, "::")] + got[i:i+14] + test.want[strings.Index(test.want, "::")+14:]
		}
		if got != test.want {
			t.Errorf("%s asks\n\t%s, want\n\t%s", test.call, got, test.want)
		}
	}
	if got := callAsks(t, s, call("elsewhere", "remote_address=192.0.2.7")); got != "" || s.HasDomain("elsewhere") || !s.HasDomain("shop") {
		t.Errorf("an unknown domain asks %q", got)
	}
}

func TestOverrideWithoutUnit(t *testing.T) {
	in := call("shop", "anything=1")
	in.Descriptors.List[0].Override = &rules.DescriptorLimit{Amount: 5}
	var m rules.Matches
	if err := envoy(t, shop).Asks(in, &m); !errors.Is(err, stint.ErrRequest) {
		t.Errorf("a limit without a unit: %v", err)
	}
	in.Descriptors.List[0].Override.Unit = rules.Minute
	if got, want := callAsks(t, envoy(t, shop), in), `shop::overrides ["anything","1"] 1 "5 per 1m fixed_window"`; got != want {
		t.Errorf("asks %s, want %s", got, want)
	}
}
