package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/attack"
)

const floodRules = `
server: {memory: 256MiB, routes: [{path: /, upstream: "http://127.0.0.1:1"}]}
rules:
  - {name: key, key: attrs.k, limits: [1 per 1h], penalty: {ban_after: 1, ban_for: 1h}}
`

// flood is one client that attacks until ctx is done; n is its number.
type flood struct {
	name    string
	clients int
	attack  func(ctx context.Context, s *served, n int)
}

var floods = []flood{
	{"slowloris: headers of a byte each 50 ms", 1000, func(ctx context.Context, s *served, _ int) {
		hold(ctx, s.gateway, "GET / HTTP/1.1\r\nHost: x\r\nX: ", "a", 50*time.Millisecond)
	}},
	{"headers: 60 KiB in 4,000 lines", 100, func(ctx context.Context, s *served, _ int) {
		send := "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("x-aaaaaa: bb\r\n", 4000)
		hold(ctx, s.check, send, "c", 50*time.Millisecond)
	}},
	{"bodies: checks of 2 MiB that never end", 200, func(ctx context.Context, s *served, _ int) {
		head := fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", 2<<20)
		hold(ctx, s.check, head+strings.Repeat(" ", 2<<20-1000), " ", 50*time.Millisecond)
	}},
	{"keys: each new, 4,000 bytes long, and banned", 8, func(ctx context.Context, s *served, n int) {
		for i := 0; ctx.Err() == nil; i++ {
			key := fmt.Sprintf("%d-%d-%s", n, i, strings.Repeat("k", 4000))
			body := strings.Repeat(`{"attrs":{"k":"`+key+`"}},`, 2)
			resp, err := http.Post(s.check+"/v1/check", "application/json", strings.NewReader("["+body[:len(body)-1]+"]"))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
	}},
	{"connections: that say nothing", 2000, func(ctx context.Context, s *served, _ int) {
		hold(ctx, s.gateway, "", "", time.Second)
	}},
}

// hold connects, sends first, and then more now and then, and connects again when it is cut
// off.
func hold(ctx context.Context, url, first, more string, pause time.Duration) {
	for ctx.Err() == nil {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
		if err == nil {
			end := context.AfterFunc(ctx, func() { c.Close() })
			go func() {
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}()
			for _, err = io.WriteString(c, first); err == nil && ctx.Err() == nil; _, err = io.WriteString(c, more) {
				time.Sleep(pause)
			}
			end()
			c.Close()
		}
		time.Sleep(pause)
	}
}

// However a client floods an instance, it stays within its memory, and others are answered
// meanwhile. STINT_ATTACK is how long all floods last together.
func TestAttackFloods(t *testing.T) {
	if attack.RaceDetector { // the instances are this program, too
		t.Skip("the race detector takes several times the memory")
	}
	each := time.Duration(len(floods))
	lasts := attack.Time(t, each*200*time.Millisecond) / each
	const most = 256 // MiB
	config := configured(t, floodRules)
	var table strings.Builder
	fmt.Fprintf(&table, "%s each against `stint serve` with `memory: 256MiB` and a store in memory, %s, resident memory in MiB:\n\n| flood | clients | before | at most | after | answered meanwhile, of 20 |\n| --- | --: | --: | --: | --: | --: |\n", lasts, runtime.Version())
	for _, f := range floods {
		c, s := process(t, "--config", config)
		resident := func() int {
			kib, _ := ofProcess(t, c.pid(), "VmRSS")
			return kib >> 10
		}
		before := resident()
		ctx, cancel := context.WithTimeout(context.Background(), lasts)
		var clients sync.WaitGroup
		for n := range f.clients {
			clients.Go(func() { f.attack(ctx, s, n) })
		}
		peak, answered := before, 0
		for n := range 20 {
			time.Sleep(lasts / 20)
			peak = max(peak, resident())
			if answers(s, n) {
				answered++
			}
		}
		cancel()
		clients.Wait()
		time.Sleep(min(lasts/5, 5*time.Second))
		after := resident()
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %d | %d |\n", f.name, f.clients, before, peak, after, answered)
		if peak > most {
			t.Errorf("%s: %d MiB, want at most %d", f.name, peak, most)
		}
		if answered == 0 {
			t.Errorf("%s: nobody else was answered", f.name)
		}
		c.kill(t)
	}
	t.Log("\n" + table.String())
}

// answers tells whether a short check of somebody else is decided.
func answers(s *served, n int) bool {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(s.check+"/v1/check", "application/json", strings.NewReader(fmt.Sprintf(`{"attrs":{"k":"other%d"}}`, n)))
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
