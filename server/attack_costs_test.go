package server_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
)

// Whatever a caller of the check API says that something did cost, the store charges no more than
// the debt allows, and goes on.
func TestAttackHugeCosts(t *testing.T) {
	eachStore(t, func(t *testing.T, store holdingStore) {
		for i, limit := range []string{"1000 per 24h fixed_window", "1000 per 24h token_bucket", "1000 per 24h sliding_window", "1000 per 24h sliding_log", "1000 per day fixed_window"} {
			s := newServer(t, fmt.Sprintf("rules: [{name: r%d, key: attrs.user, limits: [%s hold]}, {name: s%d, key: attrs.user, cost: '1', limits: [4 in_flight]}]", i, limit, i), over(store))
			for _, cost := range []int64{math.MaxInt64, 1 << 53, 1<<53 + 1, 1<<52 - 1, 1 << 52} {
				for _, end := range []string{"settle", "charge"} {
					user := fmt.Sprintf("%s %d", end, cost)
					taken := callCheck(s, "/v1/check", fmt.Sprintf(`{"hold":"60s","cost":5,"attrs":{"user":%q}}`, user))
					hold := readAnswer[answered](t, taken).Hold
					if hold == "" {
						t.Fatal(taken.Body)
					}
					path, body := "/v1/settle", fmt.Sprintf(`{"hold":%q,"cost":%d}`, hold, cost)
					if end == "charge" {
						path, body = "/v1/check", fmt.Sprintf(`{"charge":true,"cost":%d,"attrs":{"user":%q}}`, cost, user)
					}
					w := callCheck(s, path, body)
					a := readAnswer[answered](t, w)
					if w.Code != 200 || a.Decisions[0].Remaining != 0 || a.Decisions[0].Charged < 1000 {
						t.Errorf("%T %s: %s: %d %s", store, limit, user, w.Code, w.Body)
					}
				}
			}
		}
	})
}

// A hold in which a text was forged is refused, and one of another rule or key settles what it
// names and nothing else.
func TestAttackForgedHolds(t *testing.T) {
	var m stint.Memory
	s := newServer(t, holding, over(&m))
	hold := readAnswer[answered](t, callCheck(s, "/v1/check", `{"hold":"60s","cost":5,"attrs":{"user":"ann"}}`)).Hold
	data, err := base64.RawURLEncoding.DecodeString(hold)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		for bit := range 8 {
			forged := append([]byte(nil), data...)
			forged[i] ^= 1 << bit
			text := base64.RawURLEncoding.EncodeToString(forged)
			for path, body := range map[string]string{"/v1/settle": `{"hold":%q,"cost":900}`, "/v1/renew": `{"hold":%q}`} {
				w := callCheck(s, path, fmt.Sprintf(body, text))
				if w.Code != 200 && w.Code != 400 {
					t.Fatalf("byte %d, bit %d: %s %d %s", i, bit, path, w.Code, w.Body)
				}
			}
		}
	}
}

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

// forgedHold is a hold of n limits that nobody has taken.
func forgedHold(n int) string {
	b := append([]byte{1}, make([]byte, 12)...)
	rand.Read(b[1:])
	b = binary.AppendUvarint(b, 1_000_000)
	b = binary.AppendUvarint(b, uint64(n))
	for i := range n {
		key := ""
		if i == 0 {
			key = rand.Text()
		}
		limit := fmt.Sprintf("r%d: 1 in_flight", i)
		b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
		b = append(binary.AppendUvarint(b, uint64(len(limit))), limit...)
		b = append(b, 1, 0)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// One request cannot settle any number of limits, though a hold can have hundreds in few bytes.
func TestAttackSettleManyLimits(t *testing.T) {
	s := newServer(t, `rules: [{name: r, key: client.ip, limits: [1000000 per 1h]}]`)
	for _, c := range []struct {
		path          string
		holds, status int
	}{{"/v1/settle", 20, 200}, {"/v1/settle", 21, 413}, {"/v1/renew", 20, 200}, {"/v1/renew", 100, 413}} {
		list := make([]string, c.holds)
		for i := range list {
			list[i] = `{"hold":"` + forgedHold(500) + `"}`
		}
		if w := callCheck(s, c.path, "["+strings.Join(list, ",")+"]"); w.Code != c.status {
			t.Errorf("%s of %d holds: %d %.200s", c.path, c.holds, w.Code, w.Body)
		}
	}
}
