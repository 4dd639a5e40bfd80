package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint/internal/redistest"
)

// To explain a request and to show a key writes nothing, in no kind of Redis, under
// no algorithm, neither before nor after the first count.
func TestExplainWritesNothing(t *testing.T) {
	t.Parallel()
	const file = `
rules:
  - {name: all, key: client.ip, limits: [9 per 1h, 9 per 1h leaky_bucket, 9 per year fixed_window, 9 per 1h sliding_log, 9 per 1h sliding_window], penalty: {ban_after: 3, ban_for: 1h}}
  - {name: user, key: attrs.user, limits: [2 per 1h], penalty: {ban_after: 3, ban_for: 1h}}
`
	const asked = `{"client":"192.0.2.1","attrs":{"user":"u"}}`
	for _, servers := range [][]*redistest.Server{{redistest.Start(t)}, redistest.StartCluster(t, 3)} {
		url := servers[0].URL()
		if len(servers) > 1 {
			url = strings.Replace(url, "redis://", "redis+cluster://", 1)
		}
		store := openRedis(t, url)
		s := newServer(t, file, over(store))
		o := operator{t, s.Admin()}
		for i := range 6 {
			before := dump(t, servers)
			for range 3 {
				o.want(200, "POST", "/v1/explain", asked)
				o.want(200, "POST", "/v1/keys/show", `{"rule":"all","key":"192.0.2.1"}`)
				o.want(200, "POST", "/v1/keys/show", `{"rule":"user","key":"u"}`)
				o.want(200, "GET", "/v1/bans", "")
				o.want(200, "GET", "/v1/status", "")
			}
			if after := dump(t, servers); after != before {
				t.Errorf("%d servers, after %d requests:\n%s\nbecame\n%s", len(servers), i, before, after)
			}
			outcome(t, s, asked)
		}
	}
}

// dump is every key of the servers that counts for anybody, with what lies there.
func dump(t *testing.T, servers []*redistest.Server) string {
	var all []string
	for _, s := range servers {
		keys, err := s.Do(t, "KEYS", "*").AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if strings.Contains(key, "{6:readyz}") || strings.HasSuffix(key, ":{members}") {
				continue // a limit of its own, of which the status spends for a second
			}
			value, err := s.Do(t, "DUMP", key).ToString()
			if rueidis.IsRedisNil(err) {
				continue // it has just expired
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%q %x", key, value))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
