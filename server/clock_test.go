package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
)

// clockedAPI asks the rule api as a user of the tier gold.
const clockedAPI = `{"operation":"api","client":"198.51.100.9","attrs":{"user":"bob","plan":"gold"}}`

// Two hours that the clock of one instance is ahead, and of another behind, change
// nothing: what is changed at run time begins and ends at once everywhere, by the clock
// of the Redis, and what one of them writes leaves out nothing that holds.
func TestAttackFastClock(t *testing.T) {
	redis := redistest.Start(t)
	join := func(ahead time.Duration) (operator, *server.Server) {
		store := openRedis(t, redis.URL())
		s := newServer(t, adminRules, over(store), func(c *server.Config) { c.Documents = store.Documents() })
		s.SetClock(func() time.Time { return time.Now().Add(ahead) })
		s.Follow(t.Context())
		return operator{t, s.Admin()}, s
	}
	right, one := join(0)
	fast, two := join(2 * time.Hour)
	slow, three := join(-2 * time.Hour)
	operators, servers := []operator{right, fast, slow}, []*server.Server{one, two, three}

	for i, o := range operators {
		host := string(rune('1' + i))
		for _, body := range []string{
			`{"rule":"login","key":"192.0.2.` + host + `","for":"1h"}`,
			`{"network":"203.0.113.` + host + `","for":"1h"}`,
			`{"network":"203.0.112.` + host + `"}`,
		} {
			o.want(201, "POST", "/v1/bans", body)
		}
		o.want(201, "POST", "/v1/overrides", `{"rule":"api","key":["ann`+host+`","x"],"times":5,"for":"1h"}`)
		o.want(201, "POST", "/v1/lists/safelist", `{"network":"198.51.100.`+host+`","for":"1h"}`)
		o.want(201, "POST", "/v1/lists/blocklist", `{"match":"attrs.user == \"eve`+host+`\"","for":"1h"}`)
		o.want(404, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.9"}`)
	}
	fast.want(201, "POST", "/v1/overrides", `{"rule":"api","tier":"gold","times":7,"for":"1h"}`)
	const changes = 3*7 + 1
	numbers := func(n int64) func() bool {
		return func() bool {
			for _, o := range operators {
				var j struct{ Controls struct{ Number int64 } }
				if json.Unmarshal([]byte(o.want(200, "GET", "/v1/status", "")), &j) != nil || j.Controls.Number < n {
					return false
				}
			}
			return true
		}
	}
	await.Until(t, "everybody has seen it", numbers(changes))

	// Whatever is written by any of them leaves in what holds.
	for _, o := range operators {
		o.want(200, "PATCH", "/v1/switches", `{"rules":{"login":"enforce"}}`)
	}
	await.Until(t, "everybody has seen it", numbers(changes+3))
	for i, o := range operators {
		bans := o.want(200, "GET", "/v1/bans", "")
		overrides := o.want(200, "GET", "/v1/overrides", "")
		lists := o.want(200, "GET", "/v1/lists/safelist", "") + o.want(200, "GET", "/v1/lists/blocklist", "")
		for what, n := range map[string]int{bans: 9, overrides: 4, lists: 6} {
			if have := strings.Count(what, `"id"`); have != n {
				t.Errorf("instance %d has %d entries, want %d: %s", i, have, n, what)
			}
		}
		var made struct {
			ByHand []struct{ At, Until time.Time } `json:"by_hand"`
		}
		if err := json.Unmarshal([]byte(bans), &made); err != nil {
			t.Fatal(err)
		}
		for _, b := range made.ByHand {
			if apart := time.Since(b.At).Abs(); apart > time.Minute || !b.Until.IsZero() && (time.Until(b.Until)-time.Hour).Abs() > time.Minute {
				t.Errorf("instance %d: a ban of %s until %s", i, b.At, b.Until)
			}
		}
		for _, host := range []string{"1", "2", "3"} {
			s := servers[i]
			expect(t, outcome(t, s, `{"operation":"login","client":"192.0.2.`+host+`"}`), "banned")
			expect(t, outcome(t, s, `{"client":"203.0.113.`+host+`"}`), "banned")
			expect(t, outcome(t, s, `{"client":"203.0.112.`+host+`"}`), "banned")
			expect(t, outcomes(t, s, `{"operation":"login","client":"198.51.100.`+host+`"}`, 3), "allowed allowed allowed")
			expect(t, outcome(t, s, `{"operation":"api","client":"192.0.2.77","attrs":{"user":"eve`+host+`"}}`), "blocked")
			o.want(200, "POST", "/v1/keys/show", `{"rule":"api","key":["ann`+host+`","x"]}`, `"capacity":50`)
		}
		if answer := check(servers[i], clockedAPI).Body.String(); !strings.Contains(answer, `"limit_text":"700 per 1m`) {
			t.Errorf("instance %d: the tier's override does not hold: %s", i, answer)
		}
	}

	// What is made for a moment ends in the same one everywhere, and not before.
	began := time.Now()
	for i, o := range operators {
		host := string(rune('1' + i))
		o.want(201, "POST", "/v1/bans", `{"network":"192.0.2.20`+host+`","for":"1s"}`)
		expect(t, outcome(t, servers[i], `{"client":"192.0.2.20`+host+`"}`), "banned")
	}
	for _, host := range []string{"1", "2", "3"} {
		for _, s := range servers {
			await.Until(t, "a ban ends", func() bool {
				return time.Since(began) > 900*time.Millisecond && outcome(t, s, `{"client":"192.0.2.20`+host+`"}`) != "banned"
			})
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("bans of a second lasted %s", took)
	}
	fast.want(200, "GET", "/v1/status", "", `"clock_ahead_us":7`)
	slow.want(200, "GET", "/v1/status", "", `"clock_ahead_us":-7`)
}

// A clock of the store that is set forward ends what it says has ended, and gives it
// back when it is set right, also if something was written in between.
func TestStoreClockSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newAway(t)
		var shift atomic.Int64
		a, one := f.join(func(c *server.Config) { c.Documents = &clockedShelf{f.shelf, &shift} })
		a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1","for":"1h"}`)
		f.down(true)
		time.Sleep(20 * time.Minute)
		expect(t, outcome(t, one, login), "banned")
		f.down(false)
		shift.Store(int64(time.Hour))
		time.Sleep(15 * time.Second)
		expect(t, outcome(t, one, login), "allowed")
		a.want(200, "PATCH", "/v1/switches", `{"rules":{"api":"off"}}`)
		shift.Store(0)
		time.Sleep(15 * time.Second)
		expect(t, outcome(t, one, login), "banned")
		a.want(200, "GET", "/v1/status", "", `"clock_ahead_us":0`)
		time.Sleep(40 * time.Minute)
		expect(t, outcome(t, one, login), "allowed")
	})
}

// clockedShelf is a shelf whose clock is ahead by so many nanoseconds.
type clockedShelf struct {
	*shelf
	ahead *atomic.Int64
}

func (c *clockedShelf) Now(ctx context.Context) (time.Time, error) {
	now, err := c.shelf.Now(ctx)
	return now.Add(time.Duration(c.ahead.Load())), err
}
