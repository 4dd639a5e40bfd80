package server_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/stintdev/stint/server/config"
)

// answers is an error of the test if a request of good faith is not answered.
func (g *running) answers(t *testing.T, during string) {
	t.Helper()
	if got := send(t, g.gateway, "GET", "/"); got.StatusCode != 200 {
		t.Errorf("gateway during %s: %s", during, got.Status)
	}
	if got := send(t, g.check, "POST", "/v1/check", "Host: x", "Content-Type: application/json", "Content-Length: 22\r\n\r\n"+`{"client":"192.0.2.1"}`); got.StatusCode != 200 {
		t.Errorf("check during %s: %s %s", during, got.Status, got.body)
	}
}

const many = `rules: [{name: client, key: client.ip, limits: [1000000 per 1m]}]`

// Who sends headers a byte at a time, or does not even shake hands, is cut off
// when its ten seconds are over, and meanwhile others are answered.
func TestSlowlorisIsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes ten seconds")
	}
	t.Parallel()
	files := newAuthority(t).sign(t, "server").write(t, nil)
	g := start(t, newServer(t, many, everythingTo(upstream(t, who("up")))))
	shaking := start(t, newServer(t, many, withTLS(files, files, files)))
	var all []net.Conn
	for _, addr := range []string{g.gateway, g.check, g.admin, shaking.gateway, shaking.check, shaking.admin} {
		for range 20 {
			all = append(all, dial(t, addr).Conn)
		}
	}
	for i, c := range all {
		begin := "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "
		if i >= len(all)/2 {
			begin = "\x16\x03\x01\x02\x00" // of a handshake
		}
		_, _ = io.WriteString(c, begin)
		go func() {
			for { // until it is cut off, and the test closes it
				if _, err := io.WriteString(c, "a"); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
	g.answers(t, "slowloris")
	for i, c := range all {
		// What is read may be a farewell. Its own deadline, 20 s, would be a timeout.
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d was not cut off", i)
		}
		c.Close()
	}
}

// A body without end is answered when it is too large, and not kept.
func TestEndlessBody(t *testing.T) {
	g := start(t, newServer(t, many, everythingTo(upstream(t, who("up")))))
	c := dial(t, g.check)
	defer c.Close()
	fmt.Fprint(c, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk := "10000\r\n" + strings.Repeat(" ", 1<<16) + "\r\n"
	go func() {
		for { // until the server closes the connection
			if _, err := io.WriteString(c, chunk); err != nil {
				return
			}
		}
	}()
	if got := c.answer(t, "POST"); got.StatusCode != 413 || !got.Close {
		t.Errorf("%s %s", got.Status, got.body)
	}
	g.answers(t, "an endless body")
}

// Headers of more than 64 KiB together, few large ones or many small ones, are
// refused with 431 and reach no rule.
func TestHeaderBombs(t *testing.T) {
	g := start(t, newServer(t, many, everythingTo(upstream(t, who("up")))))
	for name, header := range map[string]string{
		"one of 1 MiB":    "X: " + strings.Repeat("a", 1<<20),
		"100,000 of them": strings.TrimSuffix(strings.Repeat("X: a\r\n", 100_000), "\r\n"),
		"a long name":     strings.Repeat("a", 1<<20) + ": x",
	} {
		for _, addr := range []string{g.gateway, g.check, g.admin} {
			c := dial(t, addr)
			go func() { fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", header) }()
			if got := c.answer(t, "GET"); got.StatusCode != 431 {
				t.Errorf("%s: %s", name, got.Status)
			}
			c.Close()
		}
	}
	g.answers(t, "header bombs")
}

// Ten thousand connections that do nothing, or as many as this process may have,
// keep nobody from being answered.
func TestIdleConnections(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 500
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if most := (int(min(files.Cur, 1<<20)) - 1000) / 2; n > most { // both ends are ours
		n = most
	}
	g := start(t, newServer(t, many, everythingTo(upstream(t, who("up")))))
	before := inUse()
	all := make([]net.Conn, 0, n)
	defer func() {
		for _, c := range all {
			c.Close()
		}
	}()
	for i := range n {
		c, err := net.Dial("tcp", []string{g.gateway, g.check}[i%2])
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		all = append(all, c)
	}
	g.answers(t, "idle connections")
	each := (inUse() - before) / int64(n)
	t.Logf("%d idle connections, %d bytes each of heap and stacks, both ends", n, each)
	if each > 64<<10 {
		t.Errorf("%d bytes for each connection", each)
	}
}

// inUse is the memory of heap and stacks without garbage.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// frameWriter writes a frame of HTTP/2.
type frameWriter func(kind, flags byte, stream uint32, payload string)

// resetAtOnce opens a stream with these headers, and resets it.
func resetAtOnce(flags byte, headers string) func(frameWriter, uint32) {
	return func(frame frameWriter, stream uint32) {
		frame(1, flags, stream, headers)
		frame(3, 0, stream, "\x00\x00\x00\x08") // cancelled
	}
}

// rapidly writes what each writes n times, for streams of their own. It returns when the
// server has taken it all, or has had enough of it, which it tells. A nil c is no TLS.
func rapidly(t *testing.T, addr string, c *tls.Config, n int, each func(frameWriter, uint32)) (enough bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if c != nil {
		c = c.Clone()
		c.NextProtos = []string{"h2"}
		c.ServerName = "127.0.0.1"
		conn = tls.Client(conn, c)
	}
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute)) // for machines that are busy
	var b bytes.Buffer
	frame := func(kind, flags byte, stream uint32, payload string) {
		size := len(payload)
		b.Write([]byte{byte(size >> 16), byte(size >> 8), byte(size), kind, flags, byte(stream >> 24), byte(stream >> 16), byte(stream >> 8), byte(stream)})
		b.WriteString(payload)
	}
	b.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frame(4, 0, 0, "") // settings
	ended := make(chan bool, 1)
	go func() { ended <- saysEnough(conn) }()
	for i := range n {
		each(frame, uint32(2*i+1))
		if b.Len() < 1<<12 {
			continue
		}
		if _, err := conn.Write(b.Bytes()); err != nil {
			return <-ended
		}
		b.Reset()
	}
	frame(6, 0, 0, "are you?") // a ping: its answer comes when all else was taken
	_, _ = conn.Write(b.Bytes())
	return <-ended
}

// saysEnough reads frames until a ping is answered, or until the server ends the
// connection.
func saysEnough(conn io.Reader) bool {
	r := bufio.NewReader(conn)
	for {
		var head [9]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return true
		}
		switch {
		case head[3] == 6 && head[4]&1 == 1:
			return false
		case head[3] == 7: // go away
			return true
		}
		if _, err := io.CopyN(io.Discard, r, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			return true
		}
	}
}

// Nor does grpc-go, which serves Envoy: it takes resets for as long as they come. So the
// connection is ended when most of its calls are given up. A connection whose calls are
// answered goes on, although as many are given up.
func TestRapidResetOfGRPC(t *testing.T) {
	s := newServer(t, generous)
	g := start(t, s)
	address := startEnvoy(t, s, &config.Envoy{Listen: "127.0.0.1:0"}).Addr("gRPC").String()
	call := string(headerBlock([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "x"},
		{Name: ":path", Value: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}))
	givenUp := resetAtOnce(4, call)
	answered := func(frame frameWriter, stream uint32) {
		if stream%4 == 1 {
			givenUp(frame, stream)
			return
		}
		frame(1, 4, stream, call)
		frame(0, 1, stream, "\x00\x00\x00\x00\x00") // a message without a domain
	}
	if rapidly(t, address, nil, 9_000, givenUp) {
		t.Error("9,000 calls that were given up ended the connection")
	}
	if rapidly(t, address, nil, 24_000, answered) {
		t.Error("calls that were given up ended a connection that had as many answers")
	}
	if !rapidly(t, address, nil, 300_000, givenUp) {
		t.Error("300,000 calls that were given up are borne")
	}
	if page := send(t, g.check, "GET", "/metrics").body; !strings.Contains(page, `stint_connections_ended_total{reason="resets"} 1`+"\n") {
		t.Error("the end of the connection is not counted")
	}
}

// HTTP/2's rapid reset neither piles up requests nor memory: net/http runs 250
// streams of a connection at once, and ends a connection that has a thousand more
// waiting.
func TestRapidReset(t *testing.T) {
	streams := 100_000
	if testing.Short() {
		streams = 3_000
	}
	ca := newAuthority(t)
	files := ca.sign(t, "server").write(t, nil)
	wait := newGate()
	wait.came = make(chan bool, 10*streams)
	up := upstream(t, wait.ServeHTTP)
	g := start(t, newServer(t, many, everythingTo(up), withTLS(files, nil, nil), bounded(config.Instance{InFlight: 5000})))
	before, goroutines := inUse(), runtime.NumGoroutine()
	const conns = 4
	for range conns {
		enough := rapidly(t, g.gateway, ca.trusting(t), streams, resetAtOnce(5, string(getRoot)))
		t.Logf("%d streams; the server had enough: %t; then %d goroutines", streams, enough, runtime.NumGoroutine())
		if n := runtime.NumGoroutine() - goroutines; n > 10*250*conns { // a few for each stream under way, here and at the upstream
			t.Errorf("%d goroutines more", n)
		}
	}
	page := send(t, g.check, "GET", "/metrics").body
	if _, n, _ := strings.Cut(page, `stint_decisions_total{outcome="allowed",rule="client"} `); strings.HasPrefix(n, "0") || n == "" {
		t.Error("no stream came to be decided, so nothing is shown")
	} else {
		t.Log(strings.SplitN(n, "\n", 2)[0], "were decided")
	}
	close(wait.goOn)
	resp, err := client(t, ca.trusting(t), true).Get("https://" + g.gateway)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
	if grown := inUse() - before; grown > 64<<20 {
		t.Errorf("%d MiB more", grown>>20)
	}
}
