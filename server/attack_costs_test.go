package server_test

import (
	"encoding/base64"
	"fmt"
	"math"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
)

// Whatever a caller of the check API says that something did cost, the store charges no more than
// the debt allows, and goes on.
func TestAttackHugeCosts(t *testing.T) {
	redis := redistest.Start(t)
	shared := openRedis(t, redis.URL())
	for _, store := range []stint.Store{new(stint.Memory), shared} {
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
	}
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
