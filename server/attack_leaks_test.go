package server_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// However requests end, by clients that leave, resets, timeouts, refusals, upgrades, upstreams
// that fail and handlers that panic, nothing of what they took stays taken.
func TestAttackNothingLeaks(t *testing.T) {
	const file = `
trusted_proxies: [127.0.0.1]
rules:
  - {name: held, match: request.path.under("/held"), key: '"all"', limits: [40 per 1s leaky_bucket burst 100], shape: true}
  - {name: few, match: request.path == "/few", key: client.ip, limits: [3 per 1s], penalty: {on_status: [404, 502], ban_after: 50, ban_for: 1s}}
  - {name: most, key: client.ip, match: 'request.headers["x-many"] != "1"', limits: [100000 per 1s lease 5%]}
  - {name: tried, mode: shadow, key: client.ip, cost: int(request.query.n), limits: [5 per 1s]}
`
	before := runtime.NumGoroutine()
	unreliableAt := func(h http.Handler) *httptest.Server {
		p := httptest.NewUnstartedServer(h)
		p.Config.ErrorLog = log.New(io.Discard, "", 0)
		p.Start()
		return p
	}
	behind := unreliableAt(http.HandlerFunc(unreliable))
	defer behind.Close()
	up, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	var calm atomic.Bool
	faulty := &limittest.Faulty{Store: new(stint.Memory), Fault: func(n int) limittest.Fault {
		if calm.Load() {
			return limittest.Fault{}
		}
		return [...]limittest.Fault{{}, {}, {Err: limittest.ErrFault}, {Hang: true}}[n/50%4]
	}}
	s := newServer(t, file, over(faulty), everythingTo(up), bounded(config.Instance{InFlight: 60, Bytes: 2 << 20}), patient(100*time.Millisecond), func(c *server.Config) {
		c.Settings.UpstreamTimeout = 200 * time.Millisecond
		c.Settings.MaxDelayed, c.Settings.MaxDelay = 20, 100*time.Millisecond
	})
	s.SetHeaderTimeout(100 * time.Millisecond)
	g := start(t, s)
	program := unreliableAt(s.Wrap(http.HandlerFunc(unreliable)))
	defer program.Close()
	addresses := []string{g.gateway, g.gateway, g.check, g.admin, program.Listener.Addr().String()}
	seen := map[string]int64{} // the most at once
	var all sync.WaitGroup
	end := time.Now().Add(attack.Time(t, 2*time.Second))
	seed := attack.Seed(t)
	for i := range 40 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for time.Now().Before(end) {
				misbehave(random, addresses[random.IntN(len(addresses))])
			}
		})
	}
	for time.Now().Before(end) {
		for name, n := range s.Holds() {
			seen[name] = max(seen[name], n)
		}
		time.Sleep(time.Millisecond)
	}
	all.Wait()
	calm.Store(true)
	free := func() bool {
		for _, n := range s.Holds() {
			if n != 0 {
				return false
			}
		}
		return true
	}
	if !await.So(free) {
		t.Errorf("taken when all have left: %v\n%s", s.Holds(), stacks())
	}
	program.Close()
	// The idle connections to the upstream are as many as were in use at once.
	behind.CloseClientConnections()
	if !await.So(func() bool { return runtime.NumGoroutine() < before+30 }) { // what serves
		t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks())
	}
	if got := send(t, g.gateway, "GET", "/"); got.StatusCode != 200 {
		t.Errorf("after all: %s %s", got.Status, got.body)
	}
	t.Logf("on the way: %v", seen)
}

func stacks() []byte {
	all := make([]byte, 1<<20)
	return all[:runtime.Stack(all, true)]
}

// unreliable is a handler that does one of what handlers do.
func unreliable(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	if up := r.Header.Get("Upgrade"); up != "" && r.URL.Path != "/" {
		conn, _, err := rc.Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		switch r.URL.Path {
		case "/few":
			up = "other"
		case "/panic":
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Length: 5\r\n\r\nhello", up)
		_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
		_, _ = io.Copy(conn, conn)
		return
	}
	switch r.URL.Path {
	case "/panic":
		panic(http.ErrAbortHandler)
	case "/wrong":
		panic("a handler's mistake")
	case "/hang":
		select {
		case <-r.Context().Done():
		case <-time.After(300 * time.Millisecond):
		}
	case "/early":
		w.WriteHeader(http.StatusAccepted)
		_ = rc.Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	case "/few":
		w.WriteHeader(http.StatusNotFound)
	case "/long":
		for range 100 {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	case "/hints":
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-End")
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("X-End", "yes")
	case "/cut":
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
		_ = rc.Flush()
		panic(http.ErrAbortHandler)
	default:
		_, _ = io.Copy(w, r.Body)
	}
}

var whereto = strings.Fields("/ / /panic /wrong /hang /early /few /long /hints /cut /held /held/x /?n=1 /?n=x /x/..;/few /v1/check /v1/authorize /v1/rules/check /login%00")

// misbehave is one client.
func misbehave(random *rand.Rand, addr string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer c.Close()
	if random.IntN(3) == 0 {
		_ = c.(*net.TCPConn).SetLinger(0) // it ends by a reset
	}
	_ = c.SetDeadline(time.Now().Add(time.Duration(random.IntN(400)) * time.Millisecond))
	if random.IntN(3) == 0 {
		misbehaveHTTP2(random, c)
		return
	}
	for range 1 + random.IntN(3) {
		request := oneOf(random, "GET", "POST", "POST", "HEAD", "OPTIONS", "post") + " " + oneOf(random, whereto...) + " HTTP/1.1\r\nHost: localhost\r\n"
		if random.IntN(4) == 0 {
			request = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		}
		for range random.IntN(3) {
			request += oneOf(random, "Connection: Upgrade\r\nUpgrade: websocket\r\n", "Connection: Upgrade, X-Many\r\nUpgrade: h2c, websocket\r\n", "Expect: 100-continue\r\n", "X-Many: 1\r\n", "X-Many: 0\r\nX_Many: 1\r\n",
				"Content-Type: application/json\r\n", "X-Original-Uri: /held\r\nX-Original-Method: GET\r\nX-Forwarded-For: 192.0.2.1\r\n", strings.Repeat("x:\r\n", 3000), "Connection: close\r\n", "Te: trailers\r\nTrailer: X-A\r\n")
		}
		request += oneOf(random, "\r\n", "\r\n", "Content-Length: 5\r\n\r\nhello", "Content-Length: 500000\r\n\r\n"+strings.Repeat(" ", 100_000), "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-A: b\r\n\r\n",
			"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz", "Content-Length: 3\r\n\r\n", "Content-Length: 12\r\n\r\n{\"cost\":  1}", "Content-Length: 40000\r\n\r\n"+strings.Repeat(" ", 40_000), "")
		if random.IntN(6) == 0 {
			request = request[:random.IntN(len(request))]
		}
		if _, err := io.WriteString(c, request); err != nil {
			return
		}
		if random.IntN(2) == 0 {
			_, _ = io.CopyN(io.Discard, c, 1+random.Int64N(100_000))
		}
	}
}

func oneOf(random *rand.Rand, of ...string) string { return of[random.IntN(len(of))] }

func misbehaveHTTP2(random *rand.Rand, c net.Conn) {
	_, _ = io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	go func() { _, _ = io.Copy(io.Discard, c) }()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := range uint32(1 + random.IntN(20)) {
		stream := 2*i + 1
		block.Reset()
		for _, h := range [][2]string{{":method", oneOf(random, "GET", "POST")}, {":scheme", "http"}, {":path", oneOf(random, whereto...)}, {":authority", "localhost"}, {"cookie", "a=b"}, {"cookie", "c=d"}, {"x-many", oneOf(random, "0", "1")}} {
			_ = encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: random.IntN(2) == 0, EndHeaders: random.IntN(30) > 0})
		switch random.IntN(4) {
		case 0:
			_ = f.WriteRSTStream(stream, http2.ErrCodeCancel)
		case 1:
			_ = f.WriteData(stream, random.IntN(2) == 0, make([]byte, random.IntN(16<<10)))
		}
		if random.IntN(3) == 0 {
			time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
		}
	}
	time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
}
