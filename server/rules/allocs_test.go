//go:build !race

package rules_test

import (
	"fmt"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// What Asks allocates does not grow with the number of rules: the text of the
// address, and one word for each variable used to hand it to CEL.
func TestAllocations(t *testing.T) {
	for _, n := range []int{1, 100} {
		s, in := benchSet(t, n), benchInput()
		var out rules.Plan
		got := testing.AllocsPerRun(200, func() {
			if err := s.Asks(in, &out); err != nil {
				t.Fatal(err)
			}
		})
		if got > 5 {
			t.Errorf("%d rules: %v allocations, want at most 5", n, got)
		}
	}
}

// Rules share a key's evaluation: twenty with one key allocate little more than one does.
func TestAllocationsOfSharedKeys(t *testing.T) {
	const rule = "  - {name: r%d, key: 'sha256(client.ip + request.host)', limits: [5 per 1m]}\n"
	allocations := func(n int) float64 {
		file := "rules:\n"
		for i := range n {
			file += fmt.Sprintf(rule, i)
		}
		s := parse(t, file)
		var out rules.Plan
		return testing.AllocsPerRun(200, func() {
			if err := s.Asks(benchInput(), &out); err != nil || len(out.Asks) != n {
				t.Fatal(err, len(out.Asks))
			}
		})
	}
	if one, many := allocations(1), allocations(20); many > one+2 {
		t.Errorf("%v allocations, of one rule %v", many, one)
	}
}

// Controls that do not hit allocate nothing, nor do tiers but for the words that
// their conditions use, nor overrides, nor bans.
func TestAllocationsWithControls(t *testing.T) {
	file := parse(t, `
tiers: {gold: 'true', silver: 'false'}
rules:
  - {name: plain, key: client.ip, limits: [5 per 1m]}
  - {name: tiered, key: client.ip, limits: [5 per 1m], tiers: {silver: {times: 2}, gold: {times: 3}}}`)
	allocations := func(s *rules.Set) float64 {
		var out rules.Plan
		return testing.AllocsPerRun(200, func() {
			if err := s.Asks(benchInput(), &out); err != nil {
				t.Fatal(err)
			}
		})
	}
	plain := allocations(file)
	for _, controls := range []string{
		`{"bans":[{"id":"1","network":"10.0.0.0/8","until":"2100-01-01T00:00:00Z"},{"id":"2","rule":"plain","key":"192.0.2.1"}]}`,
		`{"safelist":[{"id":"1","network":"10.0.0.0/8"},{"id":"2","match":"false"}],"overrides":[{"id":"3","rule":"plain","key":"192.0.2.1","times":2}]}`,
		`{"overrides":[{"id":"1","rule":"plain","key":"203.0.113.7","times":2,"until":"2100-01-01T00:00:00Z"},{"id":"2","rule":"plain","tier":"gold","times":2}]}`,
	} {
		if got := allocations(with(t, file, controls)); got != plain {
			t.Errorf("%s: %v allocations, without it %v", controls, got, plain)
		}
	}
}

// A call of Envoy's service allocates nothing, but for the keys of several values.
func TestAllocationsOfCalls(t *testing.T) {
	s := envoy(t, manyDescriptors(1000))
	many := make([]string, 20)
	for i := range many {
		many[i] = "remote_address=192.0.2.1"
	}
	for _, test := range []struct {
		in   *rules.Input
		most float64
	}{
		{call("d", "remote_address=192.0.2.1"), 0},
		{call("d", many...), 0},
		{call("d", "path=/v1/7 user=ann"), 0},
		{call("d", "path=/v2/7"), 0},
		{call("e", "path=/v1/7"), 0},
		{call("d", "path=/v1/9x user=ann"), 2},
	} {
		var out rules.Plan
		got := testing.AllocsPerRun(200, func() {
			if err := s.Asks(test.in, &out); err != nil {
				t.Fatal(err)
			}
		})
		if got > test.most {
			t.Errorf("%v: %v allocations, want at most %v", test.in.Descriptors, got, test.most)
		}
	}
}
