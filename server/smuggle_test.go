package server_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// h2cUpstream is a server that speaks HTTP/2 after Upgrade: h2c. It counts what it
// serves. Like some, it does not ask whether Connection names HTTP2-Settings.
func h2cUpstream(t *testing.T) (*url.URL, *atomic.Int64) {
	served := new(atomic.Int64)
	serve := func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		fmt.Fprintf(w, "%s %s upgrade=%q settings=%q", r.Proto, r.URL.Path, r.Header["Upgrade"], r.Header["Http2-Settings"])
	}
	upgraded := httptest.NewUnstartedServer(http.HandlerFunc(serve))
	upgraded.Config.Protocols = new(http.Protocols)
	upgraded.Config.Protocols.SetUnencryptedHTTP2(true)
	upgraded.Start()
	t.Cleanup(upgraded.Close)
	return upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(strings.ToLower(strings.Join(r.Header["Upgrade"], ",")), "h2c") {
			serve(w, r)
			return
		}
		served.Add(1)
		from, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer from.Close()
		to, err := net.Dial("tcp", upgraded.Listener.Addr().String())
		if err != nil {
			panic(err)
		}
		defer to.Close()
		fmt.Fprint(from, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
		go func() {
			_, _ = io.Copy(to, buffered)
			to.Close()
		}()
		_, _ = io.Copy(from, to)
	}), served
}

// asH2C are the headers of a client that offers HTTP/2 with its first request, as curl
// --http2 and Java's HttpClient do.
func asH2C(t *testing.T) []string {
	var settings bytes.Buffer
	if err := http2.NewFramer(&settings, nil).WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	return []string{"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
		"HTTP2-Settings: " + base64.RawURLEncoding.EncodeToString(settings.Bytes()[9:])}
}

// headerBlock is fields as HTTP/2 sends them. It refers to nothing that was sent before.
func headerBlock(fields []hpack.HeaderField) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range fields {
		_ = encoder.WriteField(f) // to a buffer
	}
	return block.Bytes()
}

// tunnel sends so many requests over a connection that speaks HTTP/2 after an upgrade,
// and returns how many were answered.
func tunnel(c conn, n int) (answered int, err error) {
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return 0, err
	}
	frames := http2.NewFramer(c.Conn, c.Reader)
	if err := frames.WriteSettings(); err != nil {
		return 0, err
	}
	block := headerBlock([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "example.com"}, {Name: ":path", Value: "/login"},
	})
	for i := range n {
		p := http2.HeadersFrameParam{StreamID: uint32(2*i + 3), BlockFragment: block, EndStream: true, EndHeaders: true}
		if err := frames.WriteHeaders(p); err != nil {
			return 0, err
		}
	}
	for answered < n {
		f, err := frames.ReadFrame()
		if err != nil {
			return answered, err
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			answered++
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = frames.WriteSettingsAck()
			}
		case *http2.GoAwayFrame:
			err = errors.New(f.ErrCode.String())
		}
		if err != nil {
			return answered, err
		}
	}
	return answered, nil
}

// The test can fail: what is sent is a tunnel where nobody stands before the upstream.
func TestTunnel(t *testing.T) {
	to, served := h2cUpstream(t)
	c := dial(t, to.Host)
	defer c.Close()
	if got := c.send(t, "GET", "/", asH2C(t)...); got.StatusCode != 101 {
		t.Fatal(got.Status)
	}
	if answered, err := tunnel(c, 200); answered != 200 || served.Load() != 201 {
		t.Errorf("%d were answered, %d served: %v", answered, served.Load(), err)
	}
}

// A client that offers h2c is answered by HTTP/1.1, and what it sends after that in
// HTTP/2 reaches no upstream: each request is counted, or not served.
func TestAttackH2CUpgrade(t *testing.T) {
	for name, headers := range map[string][]string{
		"as curl":               asH2C(t),
		"beside websocket":      {"Connection: Upgrade, HTTP2-Settings", "Upgrade: websocket, h2c", asH2C(t)[2]},
		"before websocket":      {"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c, websocket", asH2C(t)[2]},
		"on lines of their own": {"Connection: upgrade", "Connection: HTTP2-Settings", "Upgrade: h2c", "Upgrade: websocket", asH2C(t)[2]},
		"settings not named":    {"Connection: Upgrade", "Upgrade: h2c", asH2C(t)[2]},
		"in capitals":           {"Connection: UPGRADE, HTTP2-SETTINGS", "Upgrade: H2C", asH2C(t)[2]},
		"upgrade not named":     {"Upgrade: h2c", asH2C(t)[2]},
		"settings alone":        {asH2C(t)[2]},
	} {
		t.Run(name, func(t *testing.T) {
			to, served := h2cUpstream(t)
			g := start(t, newServer(t, `rules: [{name: login, key: client.ip, limits: [2 per 1h]}]`, everythingTo(to)))
			c := dial(t, g.gateway)
			defer c.Close()
			got := c.send(t, "GET", "/", headers...)
			if !strings.HasPrefix(got.body, "HTTP/1.1 / upgrade=") || !strings.HasSuffix(got.body, " settings=[]") || strings.Contains(strings.ToLower(got.body), "h2c") {
				t.Errorf("the upgrade is answered with %s %s", got.Status, got.body)
			}
			answered, err := 0, error(nil)
			if got.StatusCode == http.StatusSwitchingProtocols {
				answered, err = tunnel(c, 200)
			}
			if n := served.Load(); n != 1 {
				t.Errorf("%d requests were served, and 2 are allowed; %d were answered: %v", n, answered, err)
			}
		})
	}
}

// The HTTP/2 preface after an upgrade to a websocket that the upstream ignored is a
// request like any other.
func TestPrefaceAfterNoUpgrade(t *testing.T) {
	to, served := h2cUpstream(t)
	g := start(t, newServer(t, `rules: [{name: login, key: client.ip, limits: [1 per 1h]}]`, everythingTo(to)))
	c := dial(t, g.gateway)
	defer c.Close()
	if got := c.send(t, "GET", "/", "Connection: Upgrade", "Upgrade: websocket"); got.StatusCode != 200 {
		t.Fatal(got.Status)
	}
	if answered, err := tunnel(c, 20); answered != 0 || served.Load() != 1 {
		t.Errorf("%d were answered, %d served: %v", answered, served.Load(), err)
	}
}

// What an upstream may switch to is what its client asked for and the settings let
// through, and it is told of nothing else.
func TestUpgrades(t *testing.T) {
	for _, test := range []struct {
		name, setting string
		headers       []string
		switches      string // what the upstream says in its 101; empty: it does not switch
		told, want    string
	}{
		{"a websocket", "", []string{"Connection: keep-alive, Upgrade", "Upgrade: WebSocket"}, "websocket", "websocket", "101 websocket"},
		{"two tokens", "", []string{"Connection: Upgrade", "Upgrade: foo/2, websocket"}, "websocket", "websocket", "101 websocket"},
		{"two lines", "", []string{"Connection: Upgrade", "Upgrade: foo", "Upgrade: websocket"}, "websocket", "websocket", "101 websocket"},
		{"h2c in answer to a websocket", "", []string{"Connection: Upgrade", "Upgrade: websocket"}, "h2c", "websocket", "502 "},
		{"a switch unasked for", "", nil, "websocket", "", "502 "},
		{"a switch to nothing", "", []string{"Connection: Upgrade", "Upgrade: foo"}, " ", "", "502 "},
		{"what is not let through", "", []string{"Connection: Upgrade", "Upgrade: foo/2"}, "", "", "200 "},
		{"what the settings name", "[Foo/2]", []string{"Connection: Upgrade", "Upgrade: websocket, foo/2"}, "foo/2", "Foo/2", "101 foo/2"},
		{"nothing", "[]", []string{"Connection: Upgrade", "Upgrade: websocket"}, "", "", "200 "},
		{"upgrade not named", "", []string{"Upgrade: websocket"}, "", "", "200 "},
	} {
		t.Run(test.name, func(t *testing.T) {
			var told atomic.Value
			to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				told.Store(strings.Join(r.Header["Upgrade"], "|"))
				if test.switches == "" {
					return
				}
				c, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					panic(err)
				}
				defer c.Close()
				fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", test.switches)
			})
			changes := []func(*server.Config){everythingTo(to)}
			if test.setting != "" {
				settings, err := config.ReadSettings([]rules.File{{Name: "stint.yaml", Data: []byte("server: {upgrades: " + test.setting + "}")}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				changes = append(changes, func(c *server.Config) { c.Settings.Upgrades = settings.Upgrades })
			}
			g := start(t, newServer(t, generous, changes...))
			got := send(t, g.gateway, "GET", "/", test.headers...)
			if said := fmt.Sprint(got.StatusCode, " ", got.Header.Get("Upgrade")); said != test.want || told.Load() != test.told {
				t.Errorf("answered %q, want %q; the upstream was told %q, want %q", said, test.want, told.Load(), test.told)
			}
		})
	}
}

// An upstream of h2c takes no upgrades, and clients that offer one are served.
func TestUpgradeToH2CUpstream(t *testing.T) {
	to := echoUpstream(t, "h2c")
	g := start(t, newServer(t, generous, everythingTo(to)))
	for _, headers := range [][]string{asH2C(t), {"Connection: Upgrade", "Upgrade: websocket"}} {
		if got := send(t, g.gateway, "GET", "/", headers...); got.StatusCode == 502 || got.StatusCode == 101 {
			t.Errorf("%v: %s", headers, got.Status)
		}
	}
}

// Nobody opens a tunnel by CONNECT, in whatever protocol.
func TestConnectRefused(t *testing.T) {
	to, served := h2cUpstream(t)
	g := start(t, newServer(t, generous, everythingTo(to)))
	for _, target := range []string{to.Host, "/login", "http://example.com/login", "*"} {
		for _, method := range []string{"CONNECT", "connect"} {
			if got := send(t, g.gateway, method, target); got.StatusCode != 400 {
				t.Errorf("%s %s: %s", method, target, got.Status)
			}
		}
	}
	for name, fields := range map[string][]hpack.HeaderField{
		"CONNECT":          {{Name: ":method", Value: "CONNECT"}, {Name: ":authority", Value: to.Host}},
		"extended CONNECT": {{Name: ":method", Value: "CONNECT"}, {Name: ":protocol", Value: "websocket"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/login"}, {Name: ":authority", Value: "example.com"}},
		"an upgrade":       {{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/login"}, {Name: ":authority", Value: "example.com"}, {Name: "connection", Value: "upgrade"}, {Name: "upgrade", Value: "websocket"}},
	} {
		if status := overHTTP2(t, g.gateway, fields); status == "200" || status == "101" {
			t.Errorf("%s over HTTP/2: %s", name, status)
		}
	}
	if n := served.Load(); n != 0 {
		t.Errorf("the upstream served %d", n)
	}
}

// overHTTP2 is the :status of the answer to one request over HTTP/2 without TLS; where
// the stream or the connection was broken off, it says that.
func overHTTP2(t *testing.T, addr string, fields []hpack.HeaderField) string {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	said, err := askHTTP2(c.Conn, fields, "")
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// askHTTP2 sends a request, well-formed or not, and waits for the end of its answer.
func askHTTP2(c net.Conn, fields []hpack.HeaderField, body string) (said string, err error) {
	var out bytes.Buffer
	frames := http2.NewFramer(&out, c)
	frames.AllowIllegalWrites = true
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	out.WriteString(http2.ClientPreface)
	_ = frames.WriteSettings()
	_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headerBlock(fields), EndStream: body == "", EndHeaders: true})
	if body != "" {
		_ = frames.WriteData(1, true, []byte(body))
	}
	_, _ = c.Write(out.Bytes())
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			return said, err
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if said = f.PseudoValue("status"); f.StreamEnded() {
				return said, nil
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return said, nil
			}
		case *http2.RSTStreamFrame:
			return cmp.Or(said, f.ErrCode.String()), nil
		case *http2.GoAwayFrame:
			return cmp.Or(said, f.ErrCode.String()), nil
		}
	}
}

// The proxies of examples/ pass websockets on, and nothing else.
func TestUpgradeByProxies(t *testing.T) {
	for _, p := range realProxies {
		if p.binary == "nginx" { // which passes on none
			continue
		}
		t.Run(p.binary, func(t *testing.T) {
			stint := start(t, newServer(t, "trusted_proxies: [127.0.0.1/32]\n"+generous))
			addr := p.start(t, stint.check, upstream(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Sec-Websocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
				w.Header().Set("Connection", "Upgrade")
				w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
				w.WriteHeader(http.StatusSwitchingProtocols)
			}).Host)
			got := send(t, addr, "GET", "/chat", "Connection: Upgrade", "Upgrade: WebSocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
			if got.StatusCode != 101 || !strings.EqualFold(got.Header.Get("Upgrade"), "websocket") {
				t.Errorf("%s %v", got.Status, got.Header)
			}
		})
	}
}

// The proxies of examples/ pass no upgrade to h2c on, either, which would be a tunnel
// past what they ask Stint.
func TestAttackH2CUpgradeByProxies(t *testing.T) {
	for _, p := range realProxies {
		t.Run(p.binary, func(t *testing.T) {
			to, served := h2cUpstream(t)
			stint := start(t, newServer(t, "trusted_proxies: [127.0.0.1/32]\n"+generous))
			addr := p.start(t, stint.check, to.Host)
			for _, headers := range [][]string{asH2C(t), {"Connection: Upgrade", "Upgrade: websocket, h2c"}, {"Connection: Upgrade", "Upgrade: h2c", "Upgrade: websocket"}} {
				before := served.Load()
				c := dial(t, addr)
				defer c.Close()
				got := c.send(t, "GET", "/", headers...)
				if got.StatusCode == http.StatusSwitchingProtocols {
					answered, err := tunnel(c, 20)
					t.Errorf("%q: %d answered in a tunnel: %v", headers, answered, err)
				}
				// HAProxy refuses a websocket without its key.
				if n := served.Load() - before; (n != 1 || got.StatusCode != 200) && (n != 0 || got.StatusCode != 400) {
					t.Errorf("%q: %s, %d served", headers, got.Status, n)
				}
			}
		})
	}
}
