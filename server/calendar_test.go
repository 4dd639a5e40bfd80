package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"
)

// A budget of a local day through the check API: it is whole again at that place's midnight, and
// explain says when that is. The bubble begins at 2000-01-01 00:00 UTC, 19:00 in Havana.
func TestCalendar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `rules: [{name: quota, key: attrs.user, limits: [{amount: 2, per: day, in: America/Havana}, 7 per month starts 31]}]`)
		o := operator{t, s.Admin()}
		const ann = `{"attrs":{"user":"ann"}}`
		expect(t, outcomes(t, s, ann, 3), "allowed allowed limited")
		o.want(200, "POST", "/v1/explain", ann, `"outcome":"limited"`,
			"2 per day in America/Havana: 2 of 2 used, 0 left; refuses, would allow in 5h0m0s",
			"window from 1999-12-31 00:00 CST to 2000-01-01 00:00 CST, the next to 2000-01-02 00:00 CST",
			`"windows":["1999-12-31T00:00:00-05:00","2000-01-01T00:00:00-05:00","2000-01-02T00:00:00-05:00"]`,
			"window from 1999-12-31 00:00 UTC to 2000-01-31 00:00 UTC, the next to 2000-02-29 00:00 UTC")
		w := check(s, ann)
		if retry, policy := w.Header().Get("Retry-After"), w.Header().Get("RateLimit-Policy"); retry != "18000" || strings.Contains(policy, "w=") {
			t.Errorf("retry after %q, policy %q", retry, policy)
		}
		time.Sleep(5*time.Hour - time.Microsecond)
		expect(t, outcomes(t, s, ann, 1), "limited")
		time.Sleep(time.Microsecond)
		expect(t, outcomes(t, s, ann, 3), "allowed allowed limited")
		// Clocks are set forward at midnight of April 2, which does not exist: the day has 23 hours.
		time.Sleep(time.Until(time.Date(2000, 4, 2, 4, 59, 0, 0, time.UTC)))
		o.want(200, "POST", "/v1/explain", ann, "window from 2000-04-01 00:00 CST to 2000-04-02 01:00 CDT, the next to 2000-04-03 00:00 CDT")
	})
}
