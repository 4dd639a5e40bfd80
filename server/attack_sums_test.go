package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint/server"
)

// The descriptors of a call that count the same cannot add up to less than one of them, whether they
// take, give back or are charged when they are refused.
func TestAttackSumsOfDescriptors(t *testing.T) {
	onStores(t, func(t *testing.T, store func(*server.Config)) {
		s := newCalls(t, `
domain: d
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: kept, rate_limit: {unit: year, requests_per_unit: 5, charge_refused: false}}
  - {key: held, rate_limit: {unit: year, requests_per_unit: 5, hold: true}}
  - {key: none, rate_limit: {unit: year, requests_per_unit: 0}}
`, "{}", store)
		call := func(key string, hits []uint64, more string) string {
			var all []string
			for _, n := range hits {
				all = append(all, fmt.Sprintf(`{"entries":[{"key":%q,"value":"x"}],"hits_addend":%d%s}`, key, n, more))
			}
			return `"domain":"d","descriptors":[` + strings.Join(all, ",") + "]"
		}
		const most = 1<<63 - 1
		many := make([]uint64, 500)
		for i := range many {
			many[i] = 1 << 52
		}
		for name, sum := range map[string][]uint64{
			"to 0": {1 << 62, 1 << 62, 1 << 62, 1 << 62}, "to 1": {most, most, 3}, "below 0": {most, most}, "one": {most}, "of many": many,
		} {
			for _, key := range []string{"a", "kept", "held", "none"} {
				for _, with := range []string{"", `"hold":"30s",`} {
					if a := readAnswer[answered](t, callCheck(s, "/v1/check", "{"+with+call(key, sum, "")+"}")); a.Outcome != "limited" {
						t.Errorf("%s %s %s: %+v", name, key, with, a)
					}
				}
			}
			says(t, s, "/v1/check", "{"+call("kept", []uint64{0}, "")+"}", 200, "allowed: d/kept 5 left, 0 held")
			says(t, s, "/v1/check", "{"+call("a", []uint64{0}, "")+"}", 429, "limited: d/a 0 left, 0 held, 5 used")
			callCheck(s, "/v1/check", "{"+call("a", sum, `,"is_negative_hits":true`)+"}")
			says(t, s, "/v1/check", "{"+call("a", []uint64{1}, "")+"}", 200, "allowed: d/a 4 left, 0 held, 1 used")
			callCheck(s, "/v1/check", `{"charge":true,`+call("a", sum, "")+"}")
			says(t, s, "/v1/check", "{"+call("a", []uint64{0}, "")+"}", 429, "limited: d/a 0 left, 0 held, 5 used")
		}
	})
}
