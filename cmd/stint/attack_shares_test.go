package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/await"
)

// clientAt is a client with an address of its own on loopback.
func clientAt(t *testing.T, address string, h2 bool) *http.Client {
	tr := &http.Transport{
		DialContext:         (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext,
		MaxIdleConnsPerHost: 100,
	}
	if h2 {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// answered is the status of the answer to a request; 0: there was none.
func answered(c *http.Client, method, url, body string, headers ...string) int {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		panic(err) // the test's mistake
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// unfinished begins so many uploads of which nothing comes, and returns what breaks them
// off.
func unfinished(t *testing.T, n int, address, url string, h2 bool) (end func()) {
	t.Helper()
	var ends []func()
	end = sync.OnceFunc(func() {
		for _, end := range ends {
			end()
		}
	})
	t.Cleanup(end)
	if !h2 {
		host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
		for range n {
			c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, func() { c.Close() })
			fmt.Fprintf(c, "POST /%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n", path, host)
		}
		return end
	}
	var client *http.Client
	var all sync.WaitGroup
	for i := range n {
		if i%250 == 0 { // as many streams as a connection has
			client = clientAt(t, address, true)
		}
		client := client
		body, never := io.Pipe()
		ends = append(ends, func() { never.CloseWithError(io.ErrUnexpectedEOF) })
		all.Go(func() {
			if resp, err := client.Post(url, "", body); err == nil {
				resp.Body.Close()
			}
		})
	}
	ends = append(ends, all.Wait)
	return end
}

// underWay is how many requests are under way that came by a listener.
func (s *served) underWay(t *testing.T, listener string) int {
	t.Helper()
	return int(metric(t, s, fmt.Sprintf("stint_in_flight{listener=%q}", listener)))
}

// One client that begins uploads and does not go on takes three quarters of the room, of
// the listener that it comes by, and nobody else is refused; uploads that do not go on end
// by themselves, and their room is free. So with HTTP/1 and HTTP/2.
func TestAttackUnfinishedUploads(t *testing.T) { // not beside others: its uploads end after seconds
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(up.Close)
	for name, h2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, "--config", configured(t, `
server:
  instance: {in_flight: 64}
  body_timeout: 4s
  routes: [{upstream: "`+up.URL+`"}]
rules: [{name: client, key: client.ip, limits: [100000 per 1s]}]
`))
			attacking := clientAt(t, "127.0.0.2", h2)
			other, asking := clientAt(t, "127.0.0.3", h2), clientAt(t, "127.0.0.3", false)
			for begin, over := time.Now(), attack.Time(t, 0); ; {
				endUploads := unfinished(t, 90, "127.0.0.2", s.gateway+"/", h2)
				endChecks := unfinished(t, 90, "127.0.0.2", s.check+"/v1/check", false)
				await.Until(t, "three quarters are under way", func() bool { return s.underWay(t, "gateway") >= 48 && s.underWay(t, "check") >= 48 })
				if got := answered(attacking, "GET", s.gateway+"/", ""); got != 503 && s.underWay(t, "gateway") >= 48 {
					t.Errorf("the client with three quarters of the room: %d", got)
				}
				for range 10 {
					if got := answered(other, "POST", s.gateway+"/", "whole"); got != 200 {
						t.Fatalf("another client: %d", got)
					}
					if got := answered(asking, "POST", s.check+"/v1/check", `{"client":"192.0.2.1"}`, "Content-Type", "application/json"); got != 200 {
						t.Fatalf("a check of another client: %d", got)
					}
				}
				await.Until(t, "no upload is under way", func() bool { return s.underWay(t, "gateway") == 0 })
				endUploads()
				endChecks()
				if time.Since(begin) > over {
					break
				}
			}
		})
	}
}

// One client that has many requests held, under keys that it invents, leaves places in
// the queue for others.
func TestAttackShapeQueue(t *testing.T) {
	t.Parallel()
	s := serving(t, "--config", configured(t, `
server:
  max_delayed: 100
  routes: [{upstream: "`+hello(t)+`"}]
rules:
  - {name: shaped, key: 'request.headers["x-key"]', limits: [1 per 2s leaky_bucket burst 2], shape: true, match: 'request.path == "/slow"'}
  - {name: others, key: 'request.headers["x-key"]', limits: [10 per 1s leaky_bucket burst 2], shape: true, match: 'request.path == "/fast"'}
`))
	attacker, other := clientAt(t, "127.0.0.2", false), clientAt(t, "127.0.0.3", false)
	var mu sync.Mutex
	statuses := map[int]int{}
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 150 {
		all.Go(func() {
			for range 2 { // the second is held for 2 s
				got := answered(attacker, "GET", s.gateway+"/slow", "", "X-Key", fmt.Sprint(i))
				mu.Lock()
				statuses[got]++
				mu.Unlock()
			}
		})
	}
	await.Until(t, "the queue is full", func() bool { mu.Lock(); defer mu.Unlock(); return statuses[429] >= 50 })
	for i := range 10 {
		for range 2 { // the second is held for 100 ms
			if got := answered(other, "GET", s.gateway+"/fast", "", "X-Key", fmt.Sprint("other ", i)); got != 200 {
				t.Errorf("another client: %d", got)
			}
		}
	}
}
