package server_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// withToken has the proxy show Stint a token, in the way that its file tells of.
func (p realProxy) withToken(token string) *realProxy {
	plain := p.replace
	p.replace = func(dir, port string) []string {
		return append(plain(dir, port), `proxy_set_header Stint-Token       ""`, `proxy_set_header Stint-Token       "`+token+`"`)
	}
	p.env = []string{"STINT_TOKEN=" + token}
	return &p
}

// Where Stint wants a token, the files of examples/ say how proxies show it; without
// it, they let nothing pass. The token of a client is none of theirs.
func TestRealProxiesShowTheirToken(t *testing.T) {
	t.Parallel()
	const file = `
trusted_proxies: [127.0.0.1/32]
rules: [{name: client, match: '!("stint-token" in request.headers)', key: client.ip, limits: [3 per 1h]}]
`
	for _, p := range realProxies {
		t.Run(p.binary, func(t *testing.T) {
			app := &application{}
			up := upstream(t, app.ServeHTTP)
			stint := start(t, newServer(t, file, asByDefault, func(c *server.Config) {
				c.Settings.CheckListen = ":8082"
				c.Settings.Check.Tokens = []config.Token{{Name: "proxy", File: inFile(t, secret("proxy"))}}
			}))
			addr := p.withToken(secret("proxy")).start(t, stint.check, up.Host)
			got := sendFrom(t, "127.0.0.2", addr, "GET", "/", "", "Stint-Token: x", "Authorization: Bearer x", "Origin: https://shop.example")
			if got.StatusCode != 200 || got.Header.Get("X-RateLimit-Remaining") != "2" || len(app.take()) != 1 {
				t.Errorf("with it: %s %v %s", got.Status, got.Header, got.body)
			}
			without := p.start(t, stint.check, up.Host)
			for _, headers := range [][]string{nil, {"Stint-Token: " + secret("proxy")}} {
				if got := sendFrom(t, "127.0.0.2", without, "GET", "/", "", headers...); got.StatusCode != 403 || len(app.take()) != 0 {
					t.Errorf("without it: %s %v %s", got.Status, got.Header, got.body)
				}
			}
		})
	}
}

// flood is a request that is too much of something.
type flood struct {
	name, text string
}

// floods are requests about a method, whose sizes lie around the bounds of proxies and
// of Stint.
func floods() []flood {
	var all []flood
	add := func(name, target string, headers ...string) {
		all = append(all, flood{name, "GET " + target + " HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n" + strings.Join(headers, "") + "\r\n"})
	}
	lines := func(n, size int, name string) []string {
		some := make([]string, n)
		for i := range some {
			some[i] = fmt.Sprintf(name+": %s\r\n", i, strings.Repeat("v", size))
		}
		return some
	}
	for _, room := range roomsOfHAProxy {
		for n := max(0, room-8); n <= room+1; n++ {
			add(fmt.Sprintf("%d headers", n), "/", lines(n, 1, "X-%d")...)
			add(fmt.Sprintf("%d lines of one header", n), "/", lines(n, 1, "X-Api-Key: %d")...)
		}
	}
	for _, n := range []int{1000, 5000, 20000} {
		add(fmt.Sprintf("%d headers", n), "/", lines(n, 1, "X-%d")...)
	}
	for _, size := range []int{4 << 10, 7 << 10, 15 << 10, 16 << 10, 31 << 10, 64 << 10, 68 << 10, 70 << 10, 300 << 10} {
		for less := 0; less < 2000; less += 1000 { // for what proxies keep room for
			size := size - less
			add(fmt.Sprintf("a header of %d bytes", size), "/", lines(1, size, "X-%d")...)
			add(fmt.Sprintf("eight headers of %d bytes together", size), "/", lines(8, size/8, "X-%d")...)
			add(fmt.Sprintf("a path of %d bytes", size), "/"+strings.Repeat("a", size))
			add(fmt.Sprintf("a query of %d bytes", size), "/?q="+strings.Repeat("a", size))
			add(fmt.Sprintf("a host of %d bytes", size), "http://"+strings.Repeat("h", size)+"/")
		}
	}
	return all
}

// randomFlood is one of headers and a target of any size.
func randomFlood(random *rand.Rand) flood {
	var b strings.Builder
	fmt.Fprintf(&b, "GET /%s?%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n",
		strings.Repeat("a", random.IntN(1<<random.IntN(17))), strings.Repeat("q", random.IntN(1<<random.IntN(17))), strings.Repeat("h", 1+random.IntN(1<<random.IntN(14))))
	size, names := 1<<random.IntN(14), 1+random.IntN(500)
	n := random.IntN(1 << random.IntN(11))
	for range n {
		fmt.Fprintf(&b, "X-%d: %s\r\n", random.IntN(names), strings.Repeat("v", random.IntN(size)))
		if b.Len() > 1<<20 {
			break
		}
	}
	b.WriteString("\r\n")
	return flood{fmt.Sprintf("%d headers, of %d names, up to %d bytes each", n, names, size), b.String()}
}

// sendRaw sends bytes from a client's address on loopback, and returns the status of
// the answer; 0: there was none.
func sendRaw(t *testing.T, client, addr, text string) int {
	t.Helper()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(client), 0)), Timeout: 5 * time.Second}
	c, err := dialer.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("the proxy is gone: %v", err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = io.WriteString(c, text) }() // proxies answer before they have read all
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// roomsOfHAProxy are the first the default of tune.http.maxhdr, and others.
var roomsOfHAProxy = []int{101, 12, 20, 50, 400}

// roomier are realProxies, and those with other bounds: with more room, so that more
// comes through to Stint, and with less, so that less can be added to what comes.
func roomier() []realProxy {
	var all []realProxy
	for _, p := range realProxies {
		p.name = p.binary
		all = append(all, p)
		switch p.binary {
		case "nginx":
			all = append(all, p.with("room", "listen 8080", "large_client_header_buffers 8 256k; listen 8080"))
		case "haproxy":
			for _, n := range roomsOfHAProxy[1:] {
				all = append(all, p.with(fmt.Sprint("maxhdr ", n), "global\n", fmt.Sprintf("global\n  tune.http.maxhdr %d\n", n)))
			}
			all = append(all, p.with("room", "global\n", "global\n  tune.http.maxhdr 32767\n  tune.bufsize 262144\n"))
		}
	}
	return all
}

// with has its files changed, before they are changed to run in a test.
func (p realProxy) with(name string, swaps ...string) realProxy {
	p.name, p.swaps = p.name+", "+name, swaps
	return p
}

// A client whose limit is used up comes past no proxy by a request that is too much
// for the proxy, or for Stint, and ends none of them.
func TestAttackProxyFloods(t *testing.T) {
	t.Parallel()
	const file = `
trusted_proxies: [127.0.0.1/32]
rules: [{name: client, key: client.ip, limits: [1 per 24h]}]
`
	proxies, random := roomier(), rand.New(rand.NewPCG(1, 2))
	lasts := attack.Time(t, 0) / time.Duration(len(proxies)) // 0: one round
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			app := &application{}
			up := upstream(t, app.ServeHTTP)
			stint := start(t, newServer(t, file, asByDefault))
			addr := p.start(t, stint.check, up.Host)
			alive := func(client string) {
				t.Helper()
				if got := sendFrom(t, client, addr, "GET", "/", ""); got.StatusCode != 200 || len(app.take()) != 1 {
					t.Fatalf("another client: %s %s", got.Status, got.body)
				}
			}
			alive("127.0.0.2")
			answers := map[int]int{}
			all := floods()
			for begin := time.Now(); ; {
				for _, f := range all {
					status := sendRaw(t, "127.0.0.2", addr, f.text)
					if seen := app.take(); len(seen) > 0 {
						t.Fatalf("%s: %d, and the application saw it", f.name, status)
					}
					answers[status]++
					if status != 0 && (status < 400 || status == 404) {
						t.Errorf("%s: %d", f.name, status)
					}
				}
				if time.Since(begin) >= lasts {
					break
				}
				for i := range all {
					all[i] = randomFlood(random)
				}
			}
			alive("127.0.0.3")
			if answers[429] == 0 || answers[0] == len(all) {
				t.Errorf("answers %v: none is Stint's", answers)
			}
			t.Logf("answers %v", answers)
		})
	}
}
