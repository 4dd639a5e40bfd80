package main

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

const killedRules = `
server: {decision_timeout: 2s}
rules:
  - {name: take, match: operation == "take", key: attrs.user, limits: [1500 per 1h sliding_log]}
  - {name: login, match: operation == "login", key: client.ip, limits: [1 per 1s sliding_log], penalty: {ban_after: 3, ban_for: 2s}}
`

// asking asks an instance again and again until it refuses, or done is closed.
type asking struct {
	url              string
	allowed, refused atomic.Int64
	lost             atomic.Int64
}

func (a *asking) run(done chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
		}
		resp, err := http.Post(a.url+"/v1/check", "application/json", strings.NewReader(`{"operation":"take","attrs":{"user":"ann"}}`))
		if err != nil {
			a.lost.Add(1)
			continue
		}
		resp.Body.Close()
		switch resp.StatusCode {
		case 200:
			a.allowed.Add(1)
		case 429:
			a.refused.Add(1)
		default:
			a.lost.Add(1)
		}
	}
}

// An instance that is killed under load takes nothing with it: the others go on, and
// one in its place goes on by the counts and bans of before, in the same second.
// What it leaves in the Redis goes by itself.
func TestServeKilled(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file := configured(t, killedRules)
	common := []string{"--config", file, "--store", redis.URL()}
	victim, at := process(t, common...)
	var all []*asking
	var running sync.WaitGroup
	done := make(chan struct{})
	defer running.Wait()
	stop := sync.OnceFunc(func() { close(done) })
	defer stop()
	for _, url := range []string{at.check, serving(t, common...).check, serving(t, common...).check} {
		a := &asking{url: url}
		all = append(all, a)
		for range 2 {
			running.Go(func() { a.run(done) })
		}
	}
	total := func() (n int64) {
		for _, a := range all {
			n += a.allowed.Load()
		}
		return n
	}
	await.Until(t, "a third is spent", func() bool { return total() > 500 })
	for range 5 {
		checked(t, at, `{"operation":"login","client":"192.0.2.1"}`)
	}
	banned := time.Now()
	victim.kill(t)
	killed := time.Now()
	again, at := process(t, append(common, "--check-listen", strings.TrimPrefix(at.check, "http://"), "--admin-listen", strings.TrimPrefix(at.admin, "http://"))...)
	if code := checked(t, at, `{"operation":"login","client":"192.0.2.1"}`); code != 429 && time.Since(banned) < 2*time.Second {
		t.Errorf("who is banned, at the one that came back: %d", code)
	}
	t.Logf("killed, started and asked within %s", time.Since(killed))
	await.Until(t, "all is spent, and everybody says so", func() bool {
		for _, a := range all {
			if a.refused.Load() == 0 {
				return false
			}
		}
		return true
	})
	// Two calls may have been charged whose answers died with it.
	if n := total(); n > 1500 || n < 1498 {
		t.Errorf("%d of 1500 were admitted", n)
	}
	if lost := all[1].lost.Load() + all[2].lost.Load(); lost > 0 {
		t.Errorf("the others failed %d times", lost)
	}
	await.Until(t, "the ban has ended", func() bool { return checked(t, at, `{"operation":"login","client":"192.0.2.1"}`) == 200 })
	await.Until(t, "the dead one is counted no more", func() bool {
		n, err := redis.Do(t, "ZCARD", "stint:{members}").AsInt64()
		return err == nil && n == 3
	})
	expires(t, redis)

	again.signal(t, syscall.SIGTERM)
	again.endsWell(t)
	stop()
}

// expires wants every key to go by itself, within what rules say.
func expires(t *testing.T, redis *redistest.Server) {
	t.Helper()
	keys, err := redis.Do(t, "KEYS", "*").AsStrSlice()
	if err != nil || len(keys) < 2 {
		t.Fatal(keys, err)
	}
	for _, key := range keys {
		left, err := redis.Do(t, "PTTL", key).AsInt64()
		if err != nil || left == -1 || time.Duration(left)*time.Millisecond > 2*time.Hour {
			t.Errorf("%q stays for %d ms: %v", key, left, err)
		}
	}
}
