package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// What requests hold is shown, explained and released. Resetting a key leaves it.
func TestKeyHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stint.Memory)
		s := newServer(t, `
tiers: {gold: attrs.plan == "gold"}
rules:
  - name: ask
    match: operation == "ask"
    key: attrs.user
    cost: cost
    limits: [60 per 1m, 1000 per 1h fixed_window hold, 2 in_flight]
    tiers: {gold: {times: 10}}
  - {name: calls, match: operation == "call", key: attrs.user, limits: [60 per 1m]}
`, over(store))
		o := operator{t, s.Admin()}
		const ann = `{"rule":"ask","key":"ann"`
		hold := func(plan string) string {
			return readAnswer[answered](t, callCheck(s, "/v1/check", `{"operation":"ask","cost":300,"hold":"40s","attrs":{"user":"ann","plan":"`+plan+`"}}`)).Hold
		}
		first := hold("")
		time.Sleep(10 * time.Second)
		second, gold := hold(""), hold("gold")
		held, err := store.Held(t.Context(), "ann", []*stint.Limit{stint.MustLimit("ask: 2 in_flight")})
		if err != nil || len(held) != 2 {
			t.Fatal(held, err)
		}
		oldest, newest := held[0], held[1]
		if oldest.Left > newest.Left {
			oldest, newest = newest, oldest
		}
		row := func(h stint.Hold, units, age, left int) string {
			return fmt.Sprintf(`{"hold":"%s","units":%d,"age_us":%d,"left_us":%d}`, h.ID, units, age*1_000_000, left*1_000_000)
		}
		o.want(200, "POST", "/v1/keys/show", ann+`}`,
			`"limit":"1000 per 1h fixed_window hold","capacity":1000,"used":0,"held":600,"remaining":400,"reset_after_us":40000000,"holds":[`+row(oldest, 300, 10, 30)+","+row(newest, 300, 0, 40)+`]}`,
			`"limit":"2 in_flight","capacity":2,"used":0,"held":2,"remaining":0,"reset_after_us":40000000,"holds":[`+row(oldest, 1, 10, 30)+","+row(newest, 1, 0, 40)+`]}`)
		o.want(200, "POST", "/v1/keys/show", ann+`,"tier":"gold"}`, `"capacity":10000,"used":0,"held":300,"remaining":9700`)
		o.want(200, "POST", "/v1/keys/show", ann+`}`, `{"tier":"gold","limit":"10000 per 1h fixed_window hold","capacity":10000,"used":0,"held":300,`)
		o.want(200, "POST", "/v1/explain", `{"operation":"ask","cost":500,"attrs":{"user":"ann"}}`, `"outcome":"limited"`,
			`"busy":true`, "1000 per 1h fixed_window hold: 0 of 1000 used, 600 held by requests in flight, 400 left; refuses until requests in flight end, and asks clients to try again in 1s")
		o.want(200, "POST", "/v1/keys/reset", ann+`}`, `"held":600`)
		// A refund is of tokens, not of requests.
		says(t, s, "/v1/check", `{"operation":"ask","cost":350,"charge":true,"attrs":{"user":"ann"}}`, 200, "charged: ask 59 left, 0 held, 1 charged; ask 50 left, 600 held, 350 charged; ask 0 left, 2 held")
		o.want(200, "POST", "/v1/keys/refund", ann+`,"cost":350}`, `"limit":"60 per 1m","capacity":60,"used":1,`, `"used":0,"held":600`)
		o.want(200, "POST", "/v1/keys/reset", ann+`}`, `"capacity":60,"used":0,`)

		o.want(400, "POST", "/v1/keys/release", ann+`}`, "either hold or all")
		o.want(400, "POST", "/v1/keys/release", ann+`,"all":true,"hold":"`+oldest.ID.String()+`"}`, "either hold or all")
		o.want(422, "POST", "/v1/keys/release", ann+`,"hold":"job-17"}`, "24 hexadecimal digits")
		o.want(404, "POST", "/v1/keys/release", ann+`,"hold":"`+stint.NewHoldID().String()+`"}`, "Nothing is held")
		o.want(404, "POST", "/v1/keys/release", `{"rule":"calls","key":"ann","all":true}`, "Nothing is held")
		o.want(200, "POST", "/v1/keys/release", ann+`,"hold":"`+oldest.ID.String()+`","reason":"the job is dead"}`, `"released":1,`, `"held":300`)
		// It is gone for its client, who cannot bring it back either.
		says(t, s, "/v1/renew", `{"hold":"`+first+`","again":true}`, 200, "unknown: ask 700 left, 300 held; ask 1 left, 1 held")
		says(t, s, "/v1/settle", `{"hold":"`+first+`","cost":300}`, 200, "unknown: ask 700 left, 300 held; ask 1 left, 1 held")
		// All are those of every tier.
		o.want(200, "POST", "/v1/keys/release", ann+`,"all":true}`, `"released":2,`, `"remaining":1000,"reset_after_us":0}`)
		says(t, s, "/v1/settle", `{"hold":"`+second+`"}`, 200, "unknown: ask 1000 left, 0 held; ask 2 left, 0 held")
		says(t, s, "/v1/settle", `{"hold":"`+gold+`"}`, 200, "unknown: ask 10000 left, 0 held; ask 20 left, 0 held")
		trail := o.want(200, "GET", "/v1/audit", "", `"action":"release"`, `"reason":"the job is dead"`)
		if strings.Contains(trail, `\"holds\"`) {
			t.Errorf("the audit lists holds: %s", trail)
		}
	})
}
