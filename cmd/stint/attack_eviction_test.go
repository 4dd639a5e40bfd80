package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// A client that brings enough keys makes a full Redis drop those of others, under a
// volatile- as under an allkeys- policy: an exhausted and a banned client are served
// again, which shows why each such policy is a finding. With noeviction both stay refused,
// new clients are decided by this instance's share, and the reason is told.
func TestAttackEviction(t *testing.T) {
	for policy, keeps := range map[string]bool{"noeviction": true, "volatile-lru": false, "volatile-ttl": false, "allkeys-lru": false} {
		t.Run(policy, func(t *testing.T) {
			redis := redistest.Start(t, "--maxmemory-policy", policy)
			config := configured(t, `
server: {remembered_denials: 0, decision_timeout: 5s, store: "`+redis.URL()+`"}
rules:
  - {name: exhausted, match: operation == "spend", key: client.ip, limits: [1 per 1h]}
  - name: banned
    match: operation == "offend"
    key: client.ip
    limits: [1 per 1h]
    penalty: {ban_after: 1, ban_for: 1h}
  - {name: flood, match: operation == "flood", key: attrs.key, limits: [1 per 24h]}
`)
			s := serving(t, "--config", config)
			if found := strings.Contains(s.log.String(), "code=ST005"); found == keeps {
				t.Errorf("ST005 is found: %t", found)
			}
			exhausted, banned := `{"client":"192.0.2.1","operation":"spend"}`, `{"client":"192.0.2.2","operation":"offend"}`
			for _, body := range []string{exhausted, banned} {
				if first, second := checked(t, s, body), checked(t, s, body); first != 200 || second != 429 {
					t.Fatalf("%s: %d, %d", body, first, second)
				}
			}
			used, err := strconv.Atoi(redis.Info("memory", "used_memory"))
			if err != nil {
				t.Fatal(err)
			}
			redis.Do(t, "CONFIG", "SET", "maxmemory", strconv.Itoa(used+300_000))
			from := 0
			flood := func() {
				for to := from + 8000; from < to; from += 500 {
					floodKeys(t, s, from, 500)
				}
			}
			flood()
			other := serving(t, "--config", config) // which has learnt nothing
			refused := func() bool { return checked(t, other, exhausted) == 429 && checked(t, other, banned) == 429 }
			kept := refused()
			for n := 0; kept && !keeps && n < 20; n++ { // what an -lru policy drops of keys of one second is chance
				flood()
				kept = refused()
			}
			if kept != keeps {
				t.Errorf("both are still refused: %t, want %t", kept, keeps)
			}
			if code := checked(t, other, `{"operation":"flood","attrs":{"key":"new"}}`); code != 200 {
				t.Errorf("a new key: %d", code)
			}
			if keeps {
				await.Until(t, "the log says why", func() bool { return strings.Contains(s.log.String(), "the server is out of memory (maxmemory)") })
			}
		})
	}
}

// floodKeys checks so many keys that nobody has seen before.
func floodKeys(t *testing.T, s *served, from, n int) {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"operation":"flood","attrs":{"key":"invented %d"}}`, from+i)
	}
	resp, err := http.Post(s.check+"/v1/check", "application/json", strings.NewReader("["+b.String()[1:]+"]"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
}

// A policy that is changed while stint runs is found, and so is its end.
func TestEvictionChanges(t *testing.T) {
	interval := evictionInterval
	evictionInterval = 50 * time.Millisecond
	t.Cleanup(func() { evictionInterval = interval }) // after the program has stopped
	redis := redistest.Start(t)
	s := serving(t, "--limit", "3 per 1h", "--store", redis.URL())
	finding := func() bool { return strings.Contains(metrics(t, s), `stint_findings{code="ST005"} 1`+"\n") }
	if finding() {
		t.Fatal("found at the start")
	}
	for _, c := range []struct{ policy, says string }{
		{"volatile-ttl", "maxmemory-policy volatile-ttl"},
		{"noeviction", "no longer drops counts"},
	} {
		redis.Do(t, "CONFIG", "SET", "maxmemory-policy", c.policy)
		await.Until(t, c.policy, func() bool {
			return finding() == (c.policy != "noeviction") && strings.Contains(s.log.String(), c.says)
		})
	}
}
