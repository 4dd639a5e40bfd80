package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
)

// A pod that is told to end is not ready at once, serves what still comes until the balancers know, and finishes
// what is in flight: not one request is lost.
func TestPodStop(t *testing.T) {
	t.Parallel()
	const inFlight, delay = 200, 4 * time.Second
	const early = delay / 2 // the other half is left for a machine that is busy
	var arrived atomic.Int64
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			arrived.Add(1)
			<-held
		}
		fmt.Fprint(w, "done")
	}))
	defer upstream.Close()
	defer release()
	b := withRedis(t, startRedis(t), "gateway", "replicas=1", fmt.Sprintf("stop.delaySeconds=%d", int(delay.Seconds())))
	b.outside["shop:80"] = authority(upstream.URL)
	p := install(t, b).pods[0]
	gateway := "http://" + p.address(t, "http")
	from := func(i int64) string { return fmt.Sprintf("X-Forwarded-For: 198.51.%d.%d", i/250, i%250+1) } // each is its own client

	answers := make(chan error, inFlight)
	for i := range inFlight {
		go func() { answers <- served(send(p.client, "GET", gateway+"/slow", "", from(int64(i)))) }()
	}
	await.Until(t, "all are in flight", func() bool { return arrived.Load() == inFlight })

	// Others come, on connections that are there and on new ones, until they are not taken any more.
	var clients atomic.Int64
	clients.Store(inFlight)
	began := make(chan time.Time, 2)
	var more sync.WaitGroup
	fresh := &http.Client{Transport: &http.Transport{DialContext: p.container.Dial, DisableKeepAlives: true}}
	for _, c := range []*http.Client{p.client, fresh} {
		more.Go(func() {
			for {
				at := time.Now()
				if err := served(send(c, "GET", gateway+"/", "", from(clients.Add(1)))); err != nil {
					began <- at
					return
				}
			}
		})
	}
	await.Until(t, "others come", func() bool { return clients.Load() > inFlight+10 })
	told := time.Now()
	ended := p.terminate(t)
	await.Until(t, "it is not ready", func() bool {
		at := time.Now()
		got, err := p.probe(t, p.main().ReadinessProbe)
		if err == nil && got.code == http.StatusOK && at.Sub(told) > early {
			t.Errorf("it is ready %s after the signal", at.Sub(told))
			return true
		}
		return err == nil && got.code == http.StatusServiceUnavailable
	})
	more.Wait()
	for range 2 {
		if at := (<-began).Sub(told); at < early {
			t.Errorf("a request %s after the signal was lost", at)
		}
	}
	t.Logf("%d others came", clients.Load()-inFlight)

	release()
	for range inFlight {
		if err := <-answers; err != nil {
			t.Errorf("in flight: %v", err)
		}
	}
	if code := ended(); code != 0 {
		t.Errorf("exit %d\n%s", code, p.Log())
	}
}

// served is nil if the answer is the upstream's.
func served(got answer, err error) error {
	if err == nil && (got != answer{200, "done"}) {
		err = fmt.Errorf("%v", got)
	}
	return err
}
