package server_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// h2conn is a connection of HTTP/2 whose client sends what it likes.
type h2conn struct {
	net.Conn
	*http2.Framer
	ended chan error // that the server has
}

// dialHTTP2 connects by TLS, or by prior knowledge without it.
func dialHTTP2(t testing.TB, addr string, c *tls.Config) *h2conn {
	t.Helper()
	var conn net.Conn
	var err error
	if c == nil {
		conn, err = net.Dial("tcp", addr)
	} else {
		c = c.Clone()
		c.NextProtos = []string{"h2"}
		conn, err = tls.Dial("tcp", addr, c)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	h := &h2conn{conn, http2.NewFramer(conn, conn), make(chan error, 1)}
	h.AllowIllegalWrites = true
	go func() {
		_, err := io.Copy(io.Discard, conn)
		h.ended <- err
	}()
	// On a machine that pauses, the connection may have been too slow by now: then h has ended.
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = h.WriteSettings()
	return h
}

// getRoot is the block of headers of GET https://x/.
var getRoot = []byte("\x82\x87\x84\x41\x01x")

func (h *h2conn) open(stream uint32, ended bool) error {
	return h.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: getRoot, EndStream: ended, EndHeaders: true})
}

// takesHTTP2 is a server with Envoy's gRPC listener.
type takesHTTP2 struct {
	*running
	envoy string
}

// listeners are the listeners that take HTTP/2, and how.
func (g *takesHTTP2) listeners(plain *takesHTTP2, c *tls.Config) map[string]func(testing.TB) *h2conn {
	return map[string]func(testing.TB) *h2conn{
		"gateway, TLS": func(t testing.TB) *h2conn { return dialHTTP2(t, g.gateway, c) },
		"check, TLS":   func(t testing.TB) *h2conn { return dialHTTP2(t, g.check, c) },
		"admin, TLS":   func(t testing.TB) *h2conn { return dialHTTP2(t, g.admin, c) },
		"gateway, h2c": func(t testing.TB) *h2conn { return dialHTTP2(t, plain.gateway, nil) },
		"Envoy, TLS":   func(t testing.TB) *h2conn { return dialHTTP2(t, g.envoy, c) },
		"Envoy, h2c":   func(t testing.TB) *h2conn { return dialHTTP2(t, plain.envoy, nil) },
	}
}

// Who does not end the headers of a request in time, whatever else it sends, and who
// sends frames that carry nothing, is cut off, at every listener that takes HTTP/2.
func TestAttackHTTP2Frames(t *testing.T) {
	ca := newAuthority(t)
	files := ca.sign(t, "server").write(t, nil)
	up := upstream(t, who("up"))
	run := func(secure *config.TLSFiles, changes ...func(*server.Config)) *takesHTTP2 {
		s := newServer(t, many, append(changes, everythingTo(up))...)
		s.SetHeaderTimeout(300 * time.Millisecond)
		e := startEnvoy(t, s, &config.Envoy{Listen: "127.0.0.1:0", TLS: secure})
		return &takesHTTP2{start(t, s), e.Addr("gRPC").String()}
	}
	g, plain := run(&config.TLSFiles{Cert: files.Cert, Key: files.Key}, withTLS(files, files, files)), run(nil)
	stop := time.Now().Add(attack.Time(t, 0))
	for round := 0; round == 0 || time.Now().Before(stop); round++ {
		for name, dial := range g.listeners(plain, ca.trusting(t)) {
			t.Run(fmt.Sprint(name, "/slow headers"), func(t *testing.T) { slowHeaders(t, dial(t)) })
			for kind, flood := range uselessFrames {
				t.Run(fmt.Sprint(name, "/", kind), func(t *testing.T) { frameFlood(t, dial(t), flood) })
			}
		}
	}
	page := send(t, plain.check, "GET", "/metrics").body
	for _, reason := range []string{"slow_headers", "frames"} {
		if strings.Contains(page, `stint_connections_ended_total{reason="`+reason+`"} 0`+"\n") {
			t.Errorf("no connection was ended because of %s", reason)
		}
	}
	plain.answers(t, "floods of frames")
}

// slowHeaders sends a piece of a block of headers now and then.
func slowHeaders(t *testing.T, h *h2conn) {
	begun := time.Now()
	err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: getRoot})
	for err == nil && time.Since(begun) < 5*time.Second {
		err = h.WriteContinuation(1, false, []byte("\x00\x01a\x01b"))
		select {
		case <-h.ended:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	if time.Since(begun) >= 5*time.Second {
		t.Error("a block of headers stays open")
	}
}

// uselessFrames send one frame that brings nothing, the n-th, after a stream was opened
// as number 1.
var uselessFrames = map[string]func(h *h2conn, n uint32) error{
	"empty DATA":    func(h *h2conn, _ uint32) error { return h.WriteData(1, false, nil) },
	"padded DATA":   func(h *h2conn, _ uint32) error { return h.WriteDataPadded(1, false, nil, make([]byte, 200)) },
	"SETTINGS":      func(h *h2conn, _ uint32) error { return h.WriteSettings() },
	"PING":          func(h *h2conn, _ uint32) error { return h.WritePing(false, [8]byte{}) },
	"PING ack":      func(h *h2conn, _ uint32) error { return h.WritePing(true, [8]byte{}) },
	"PRIORITY":      func(h *h2conn, n uint32) error { return h.WritePriority(2*n+3, http2.PriorityParam{Weight: byte(n)}) },
	"WINDOW_UPDATE": func(h *h2conn, _ uint32) error { return h.WriteWindowUpdate(0, 1) },
	"RST_STREAM":    func(h *h2conn, _ uint32) error { return h.WriteRSTStream(1, http2.ErrCodeCancel) },
	"unknown":       func(h *h2conn, _ uint32) error { return h.WriteRawFrame(0xfb, 0, 0, nil) },
	"empty HEADERS": func(h *h2conn, n uint32) error {
		return h.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*n + 3, EndStream: true, EndHeaders: true})
	},
	"malformed HEADERS": func(h *h2conn, n uint32) error {
		return h.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*n + 3, BlockFragment: []byte("\x82\x82\x82\x82"), EndStream: true, EndHeaders: true})
	},
	"empty CONTINUATION": func(h *h2conn, n uint32) error {
		if n == 0 {
			if err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: getRoot}); err != nil {
				return err
			}
		}
		return h.WriteContinuation(3, false, nil)
	},
}

// frameFlood sends frames until the server has had enough, which is to be soon.
func frameFlood(t *testing.T, h *h2conn, flood func(*h2conn, uint32) error) {
	const most = 50_000
	_ = h.open(1, false)
	for n := range uint32(most) {
		if flood(h, n) != nil {
			return
		}
		select {
		case <-h.ended:
			return
		default:
		}
	}
	select {
	case <-h.ended:
	case <-time.After(5 * time.Second):
		t.Errorf("%d frames were borne", most)
	}
}

// Clients that send and fetch much, and tell of each piece that they have read it, are
// not cut off: those of Go, gRPC, curl and Node.
func TestHTTP2ClientsAreServed(t *testing.T) {
	t.Parallel()
	const size = 24 << 20
	body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, _ := io.Copy(sum, r.Body)
		w.Header().Set("X-Length", fmt.Sprint(n))
		if r.Method == "GET" {
			for at := 0; at < size; at += 1 << 10 { // many small frames
				_, _ = w.Write(body[at:][:1<<10])
			}
		}
	})
	ca := newAuthority(t)
	files := ca.sign(t, "server").write(t, nil)
	g := start(t, newServer(t, many, everythingTo(up), withTLS(files, nil, nil)))
	plain := start(t, newServer(t, many, everythingTo(up)))
	times := 2
	if testing.Short() {
		times = 1
	}
	fetch := func(t *testing.T, c *http.Client, url string) {
		t.Helper()
		for range times {
			resp, err := c.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil || resp.ProtoMajor != 2 {
				t.Errorf("%s: %d bytes, %v", resp.Proto, n, err)
			}
			resp.Body.Close()
			if resp, err = c.Post(url, "", bytes.NewReader(body)); err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.Header.Get("X-Length") != fmt.Sprint(size) {
				t.Errorf("%s of %d bytes arrived", resp.Header.Get("X-Length"), size)
			}
		}
	}
	t.Run("Go, TLS", func(t *testing.T) { fetch(t, client(t, ca.trusting(t), true), "https://"+g.gateway) })
	t.Run("Go, h2c", func(t *testing.T) {
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(true)
		defer tr.CloseIdleConnections()
		fetch(t, &http.Client{Transport: tr}, "http://"+plain.gateway)
	})
	t.Run("many cancelled", func(t *testing.T) {
		h := dialHTTP2(t, plain.gateway, nil)
		for n := range uint32(500) {
			if h.open(2*n+1, true) != nil || h.WriteRSTStream(2*n+1, http2.ErrCodeCancel) != nil {
				t.Fatalf("ended after %d requests", n)
			}
		}
	})
	t.Run("refused before their bodies", func(t *testing.T) {
		limited := start(t, newServer(t, `rules: [{name: all, key: client.ip, limits: [1 per 24h fixed_window]}]`, everythingTo(up)))
		conn, err := net.Dial("tcp", limited.gateway)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(conn, http2.ClientPreface)
		h := http2.NewFramer(conn, conn)
		_ = h.WriteSettings()
		call := headerBlock([]hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/"}, {Name: ":authority", Value: "x"},
			{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
		})
		refuse := func(stream uint32) error {
			if err := h.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: call, EndHeaders: true}); err != nil {
				return err
			}
			for {
				switch f, err := h.ReadFrame(); {
				case err != nil:
					return err
				case f.Header().StreamID == stream && f.Header().Type == http2.FrameRSTStream:
					return nil
				}
			}
		}
		_ = h.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: getRoot, EndStream: true, EndHeaders: true})
		for answered := false; !answered; { // or the next request may come first, and is allowed
			f, err := h.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			answered = f.Header().StreamID == 1 && f.Header().Type == http2.FrameHeaders
		}
		for n := range uint32(3000) {
			if err := refuse(2*n + 3); err != nil {
				t.Fatalf("ended after %d requests: %v", n, err)
			}
		}
	})
	t.Run("curl", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "body")
		if err := os.WriteFile(file, body, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--data-binary", "@" + file}, {}} {
			args = append(args, "-s", "-S", "--http2-prior-knowledge", "-o", os.DevNull, "-w", "%{http_version} %{http_code} %{size_download} %{size_upload}", "http://"+plain.gateway+"/")
			out, err := tool(t, "curl", args...)
			if want := []string{fmt.Sprintf("2 200 %d 0", size), fmt.Sprintf("2 200 0 %d", size)}; err != nil || out != want[0] && out != want[1] {
				t.Errorf("%s, %v", out, err)
			}
		}
	})
	t.Run("Node", func(t *testing.T) {
		out, err := tool(t, "node", "-e", `
			const c = require('http2').connect('http://`+plain.gateway+`')
			let n = 0, open = 20
			for (let i = open; i > 0; i--) {
				const r = c.request({':path': '/'})
				r.on('data', d => { n += d.length })
				r.on('end', () => { if (--open == 0) { console.log(n); c.close() } })
			}
			c.on('error', e => console.log(String(e)))`)
		if strings.TrimSpace(out) != fmt.Sprint(20*size) || err != nil {
			t.Errorf("%s, %v", out, err)
		}
	})
}

// tool runs a program, if it is there.
func tool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(name, " is not there")
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	return string(out), err
}
