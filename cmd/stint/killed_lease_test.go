package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// What an instance that is killed had leased of a fixed window is lost until the window
// ends, and it is no more than its part of the share: of 10 % and two instances, 2.5 %.
func TestAttackKilledLease(t *testing.T) {
	t.Parallel()
	const (
		amount = 4000
		live   = 2
		part   = amount / 10 / 2 / live
		each   = 8 // callers of an instance
	)
	redis := redistest.Start(t)
	file := configured(t, `
server: {decision_timeout: 2s}
rules:
  - {name: take, key: attrs.user, limits: [4000 per 1h fixed_window lease 10%]}
`)
	common := []string{"--config", file, "--store", redis.URL()}
	victim, dying := process(t, common...)
	_, staying := process(t, common...)
	await.Until(t, "each counts both", func() bool {
		return metric(t, dying, "stint_instances") == live && metric(t, staying, "stint_instances") == live
	})

	var admitted, leased, lost atomic.Int64
	var refusedSince atomic.Int64 // unix ns; 0: the last answer allowed
	var running sync.WaitGroup
	done := make(chan struct{})
	defer running.Wait()
	defer close(done)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: each}}
	ask := func(at *served) (goOn bool) {
		resp, err := client.Post(at.check+"/v1/check", "application/json", strings.NewReader(`{"attrs":{"user":"ann"}}`))
		if err != nil {
			lost.Add(1)
			return at != dying
		}
		defer resp.Body.Close()
		var answer struct {
			Allowed bool   `json:"allowed"`
			By      string `json:"by"`
		}
		var body bytes.Buffer
		if _, err := body.ReadFrom(resp.Body); err != nil || json.Unmarshal(body.Bytes(), &answer) != nil {
			lost.Add(1) // it died while it answered
			return at != dying
		}
		switch {
		case answer.Allowed:
			admitted.Add(1)
			refusedSince.Store(0)
			if at == dying && strings.Contains(body.String(), `"lease"`) {
				leased.Add(1)
			}
		case resp.StatusCode != http.StatusTooManyRequests:
			t.Errorf("%d %s", resp.StatusCode, body.String())
		default:
			refusedSince.CompareAndSwap(0, time.Now().UnixNano())
		}
		return true
	}
	for _, at := range []*served{dying, staying} {
		for range each {
			running.Go(func() {
				for ask(at) {
					select {
					case <-done:
						return
					case <-time.After(time.Millisecond):
					}
				}
			})
		}
	}
	await.Until(t, "a third is spent, some of it from leases", func() bool { return admitted.Load() > amount/3 && leased.Load() > 0 })
	victim.kill(t)
	// What the other one holds and does not need is refunded within a second or two.
	await.Until(t, "everybody is refused for 2 s", func() bool {
		since := refusedSince.Load()
		return since != 0 && time.Now().UnixNano()-since > int64(2*time.Second)
	})
	n, unheard := admitted.Load(), lost.Load()
	t.Logf("%d of %d admitted, %d by leases of the one that was killed; %d calls died with it; the bound is %d", n, amount, leased.Load(), unheard, part)
	if n > amount || n < amount-part-unheard {
		t.Errorf("%d of %d were admitted: want no less than %d, and %d calls of which nobody heard", n, amount, amount-part, unheard)
	}
}
