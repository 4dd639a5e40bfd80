package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server/adminapi"
)

const restartedRules = `
rules: [{name: user, key: attrs.user, limits: [60 per 1h sliding_log]}]
`

// taken is what came of a check.
type taken struct {
	Allowed   bool   `json:"allowed"`
	Remaining int64  `json:"remaining"`
	By        string `json:"by"`
}

func take(t *testing.T, s *served, user string) (got taken) {
	t.Helper()
	resp, err := http.Post(s.check+"/v1/check", "application/json", strings.NewReader(fmt.Sprintf(`{"attrs":{"user":%q}}`, user)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(resp.Status, err)
	}
	return got
}

// spend takes until it is refused, and tells how many were admitted.
func spend(t *testing.T, s *served, user string) (n int64) {
	t.Helper()
	for {
		got := take(t, s, user)
		switch {
		case got.By != "local":
			t.Fatalf("%s: %+v, without the store", user, got)
		case !got.Allowed:
			return n
		}
		n++
	}
}

func statusOf(t *testing.T, s *served) (a adminapi.Status) {
	t.Helper()
	_, out, errs := call("", "status", "--json", "--admin", s.admin)
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	return a
}

// open has the breaker of an instance without its store open, after which nothing
// that it decides is in doubt.
func open(t *testing.T, s *served) {
	t.Helper()
	await.Until(t, "the breaker is open", func() bool { take(t, s, "opener"); return statusOf(t, s).Store.Breaker == "open" })
}

// An instance that is killed while the store is away and started at once, while it
// still is, serves at once, and says so. It has forgotten what it spent, so it begins
// unused: alone or, where instances is given, with its share. What it then admits the
// store is told, once.
func TestServeKilledWithoutStore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, settings string
		again          int64 // that it admits, of 60
	}{
		{"alone", "server: {decision_timeout: 20s}", 60},
		{"by its share", "server: {decision_timeout: 20s, instances: 3}", 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			redis := redistest.Start(t)
			way := redistest.StartProxy(t, redis.Addr)
			file := configured(t, c.settings+restartedRules)
			common := []string{"--config", file, "--store", way.URL()}
			victim, at := process(t, common...)
			fleet := []*served{at, serving(t, common...), serving(t, common...)}
			for _, s := range fleet {
				await.Until(t, "all are counted", func() bool { return statusOf(t, s).Store.Instances == 3 })
			}
			admitted := int64(0)
			for i := range 30 {
				got := take(t, fleet[i%3], "ann")
				if !got.Allowed || got.By != "" {
					t.Fatalf("request %d: %+v", i, got)
				}
				admitted++
			}

			way.Set(redistest.Toxic{Refuse: true})
			way.Reset()
			for i, s := range fleet {
				open(t, s)
				n := spend(t, s, "ann")
				// What each was told last left 32, 31 or 30.
				if n != 10 && n != 11 {
					t.Errorf("instance %d admits %d of the 30 that were left", i, n)
				}
				admitted += n
			}
			victim.kill(t)
			killed := time.Now()
			_, at = process(t, append(common, "--check-listen", strings.TrimPrefix(at.check, "http://"), "--admin-listen", strings.TrimPrefix(at.admin, "http://"))...)
			if text := ready(t, at); text != "200 ready, without the store, without the fleet's documents: bans, lists, switches and pushed rules" {
				t.Errorf("ready: %s", text)
			}
			t.Logf("killed, started and asked within %s", time.Since(killed))
			open(t, at)
			n := spend(t, at, "ann")
			if n != c.again {
				t.Errorf("the one that came back admits %d, want %d", n, c.again)
			}
			// A of docs/reliability.md, which is N × (2 − 1 / 3), and what it begins with.
			if admitted += n; admitted > 100+c.again {
				t.Errorf("%d were admitted, at most %d may be", admitted, 100+c.again)
			}
			for range 7 {
				if got := take(t, at, "bob"); !got.Allowed || got.By != "local" {
					t.Errorf("bob: %+v", got)
				}
			}

			way.Set(redistest.Toxic{})
			fleet[0] = at
			for _, s := range fleet {
				await.Until(t, "the store decides", func() bool {
					now := statusOf(t, s).Store
					return now.OK && now.Breaker == "closed"
				})
			}
			if text := ready(t, at); text != "200 ready" {
				t.Errorf("ready: %s", text)
			}
			// The store has been told of the seven, once: in the order of those asked
			// now, each takes one more.
			for i, s := range fleet {
				if got := take(t, s, "bob"); !got.Allowed || got.By != "" || got.Remaining != 60-7-1-int64(i) {
					t.Errorf("bob, at instance %d: %+v", i, got)
				}
			}
			// Of ann's, what the killed one spent is lost with it; what all others did
			// fits in or fills the limit.
			told := admitted - 10
			for i, s := range fleet {
				got := take(t, s, "ann")
				if left := 60 - told - 1; got.By != "" || got.Allowed != (left >= 0) || got.Remaining > max(0, left+1) {
					t.Errorf("ann, at instance %d, after %d of 60 that the store was told of: %+v", i, told, got)
				}
				told++
			}
		})
	}
}
