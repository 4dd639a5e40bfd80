package server_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

func withTLS(gateway, check, admin *config.TLSFiles) func(*server.Config) {
	return func(c *server.Config) {
		c.Settings.TLS, c.Settings.CheckTLS, c.Settings.Admin.TLS = gateway, check, admin
	}
}

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// taken is what was written since the last call.
func (l *logged) taken() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

func logTo(l *logged) func(*server.Config) {
	return func(c *server.Config) { c.Log = slog.New(slog.NewTextHandler(l, nil)) }
}

// Every listener serves TLS, to clients of HTTP/1.1 and of HTTP/2, and the gateway
// says so to its upstreams whatever the client claims.
func TestTLSEverywhere(t *testing.T) {
	ca := newAuthority(t)
	files := ca.sign(t, "server").write(t, nil)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Forwarded-Proto"), " for ", r.Host)
	})
	g := start(t, newServer(t, generous, everythingTo(up), withTLS(files, files, files)))
	for _, http2 := range []bool{false, true} {
		c := client(t, ca.trusting(t), http2)
		for _, x := range []struct{ method, url, want string }{
			{"GET", "https://" + g.gateway + "/a", "https for " + g.gateway},
			{"POST", "https://" + g.check + "/v1/check", `{"outcome":"allowed"`},
			{"GET", "https://" + g.admin + "/v1/status", `{"program":"`},
		} {
			r, err := http.NewRequest(x.method, x.url, strings.NewReader(`{"client":"192.0.2.1"}`))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Forwarded-Proto", "http")
			r.Header.Set("Content-Type", "application/json")
			resp, err := c.Do(r)
			if err != nil {
				t.Errorf("%s: %v", x.url, err)
				continue
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || !strings.HasPrefix(string(body), x.want) || (resp.ProtoMajor == 2) != http2 {
				t.Errorf("%s, HTTP/2 %v: %s %s %s", x.url, http2, resp.Proto, resp.Status, body)
			}
		}
	}
	for _, addr := range []string{g.gateway, g.check, g.admin} {
		if got := send(t, addr, "GET", "/"); got.StatusCode != 400 {
			t.Errorf("plain HTTP: %s %s", got.Status, got.body)
		}
	}
}

// Who cannot even shake hands cannot fill the log.
func TestFailedHandshakesAreLoggedOnce(t *testing.T) {
	files := newAuthority(t).sign(t, "server").write(t, nil)
	var log logged
	g := start(t, newServer(t, generous, withTLS(nil, nil, files), logTo(&log)))
	for range 20 {
		send(t, g.admin, "GET", "/")
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if text := log.taken(); strings.Count(text, "handshake") != 1 {
		t.Errorf("%s", text)
	}
}

func TestLeastTLSVersion(t *testing.T) {
	ca := newAuthority(t)
	files := ca.sign(t, "server").write(t, nil)
	g := start(t, newServer(t, generous, withTLS(files, files, files)))
	for _, addr := range []string{g.gateway, g.check, g.admin} {
		for version, want := range map[uint16]string{tls.VersionTLS10: "protocol version", tls.VersionTLS11: "protocol version", tls.VersionTLS12: "", tls.VersionTLS13: ""} {
			config := ca.trusting(t)
			config.MinVersion, config.MaxVersion = version, version
			c, err := tls.Dial("tcp", addr, config)
			if err == nil {
				c.Close()
			}
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", tls.VersionName(version), err)
			}
		}
	}
}

// Only who shows a certificate of the authority gets through, at each listener.
func TestMutualTLS(t *testing.T) {
	ca, foreign := newAuthority(t), newAuthority(t)
	files := ca.sign(t, "server").write(t, ca)
	g := start(t, newServer(t, generous, everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) {})), withTLS(files, files, files)))
	for _, url := range []string{"https://" + g.gateway, "https://" + g.check + "/healthz", "https://" + g.admin + "/v1/status"} {
		for _, c := range []struct {
			who    string
			config *tls.Config
			ok     bool
		}{
			{"a client with a certificate", ca.trusting(t, ca.sign(t, "client")), true},
			{"one without", ca.trusting(t), false},
			{"one of another authority", ca.trusting(t, foreign.sign(t, "client")), false},
			{"one whose time is over", ca.trusting(t, ca.sign(t, "client", expiring(time.Now().Add(-time.Minute)))), false},
		} {
			resp, err := client(t, c.config, true).Get(url)
			if err == nil {
				resp.Body.Close()
			}
			if (err == nil) != c.ok || c.ok && resp.StatusCode != 200 {
				t.Errorf("%s: %s: %v %v", url, c.who, resp, err)
			}
		}
	}
}

// dialTLS is dial for TLS.
func dialTLS(t testing.TB, addr string, config *tls.Config) (conn, *tls.Conn) {
	t.Helper()
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return conn{c, bufio.NewReader(c)}, c
}

// shown is the number of the certificate that a listener shows.
func shown(t testing.TB, addr string, config *tls.Config) int64 {
	t.Helper()
	_, c := dialTLS(t, addr, config)
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// A new certificate is for new connections; what is connected stays so.
func TestCertificateSwap(t *testing.T) {
	ca := newAuthority(t)
	files := ca.sign(t, "one").write(t, nil)
	s := newServer(t, generous, withTLS(nil, files, nil))
	g := start(t, s)
	before := shown(t, g.check, ca.trusting(t))
	old, _ := dialTLS(t, g.check, ca.trusting(t))
	if got := old.send(t, "GET", "/healthz"); got.StatusCode != 200 {
		t.Fatal(got.Status)
	}
	two := ca.sign(t, "two")
	put(t, files.Cert, two.cert)
	put(t, files.Key, two.key)
	s.ReloadFiles()
	if got := old.send(t, "GET", "/healthz"); got.StatusCode != 200 {
		t.Errorf("the old connection: %s", got.Status)
	}
	if now := shown(t, g.check, ca.trusting(t)); now != serials.Load() || now == before {
		t.Errorf("certificate %d, want %d", now, serials.Load())
	}
}

// While files do not go together, those of before serve, and that is told and
// counted; when they do, they are taken.
func TestBadCertificateKeepsOld(t *testing.T) {
	ca := newAuthority(t)
	one, two := ca.sign(t, "one"), ca.sign(t, "two")
	number := serials.Load()
	files := one.write(t, ca)
	log := new(logged)
	s := newServer(t, generous, withTLS(files, nil, nil), logTo(log))
	g := start(t, s)
	own := ca.sign(t, "client")
	for i, c := range []struct{ what, file, text, says string }{
		{"half a pair", files.Cert, string(two.cert), "private key does not match"},
		{"half a certificate", files.Cert, string(one.cert[:len(one.cert)/2]), "ends within a block"},
		{"a chain that is cut off", files.Cert, string(one.cert) + string(ca.pem[:len(ca.pem)/2]), "ends within a block"},
		{"no certificate", files.Cert, "", "no certificate in it"},
		{"half a key", files.Key, string(one.key[:len(one.key)/2]), "key.pem: tls: failed to find any PEM data"},
		{"a certificate as the key", files.Key, string(one.cert), "found a certificate rather than a key"},
		{"no authority", files.ClientCA, "", "ca.pem: no certificate in it"},
		{"half of the authorities", files.ClientCA, string(ca.pem) + string(ca.pem[:len(ca.pem)/2]), "ca.pem: it ends within a block"},
		{"an authority that is no certificate", files.ClientCA, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "ca.pem: x509"},
		{"a file larger than any", files.ClientCA, strings.Repeat(" ", 2<<20), "larger than 1 MiB"},
	} {
		was, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		put(t, c.file, []byte(c.text))
		log.taken()
		s.ReloadFiles()
		if said := log.taken(); !strings.Contains(said, "level=ERROR") || !strings.Contains(said, "listener=gateway") || !strings.Contains(said, c.says) || strings.Contains(said, "PRIVATE") {
			t.Errorf("%s: it says %s", c.what, said)
		}
		if now := shown(t, g.gateway, ca.trusting(t, own)); now != number-1 {
			t.Errorf("%s: certificate %d, want %d", c.what, now, number-1)
		}
		if page := send(t, g.check, "GET", "/metrics").body; !strings.Contains(page, fmt.Sprintf("stint_certificate_reloads_total{result=\"refused\"} %d\n", i+1)) ||
			!strings.Contains(page, "stint_certificate_reloads_total{result=\"taken\"} 0\n") {
			t.Errorf("%s: it is not counted", c.what)
		}
		put(t, c.file, was)
	}
	put(t, files.Cert, two.cert)
	put(t, files.Key, two.key)
	s.ReloadFiles()
	if now := shown(t, g.gateway, ca.trusting(t, own)); now != number {
		t.Errorf("at last: certificate %d, want %d", now, number)
	}
	page := send(t, g.check, "GET", "/metrics").body
	for _, want := range []string{"stint_certificate_reloads_total{result=\"taken\"} 1\n", "stint_certificate_expiry_timestamp_seconds{listener=\"gateway\"} "} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	s.ReloadFiles()
	if now := shown(t, g.gateway, ca.trusting(t, own)); now != number {
		t.Errorf("without a file: certificate %d, want %d", now, number)
	}
}

// Clients of an authority that was removed stay connected and cannot come back, nor
// by resuming what they had.
func TestClientAuthoritySwap(t *testing.T) {
	ca, next := newAuthority(t), newAuthority(t)
	files := ca.sign(t, "server").write(t, ca)
	s := newServer(t, generous, withTLS(nil, files, nil))
	g := start(t, s)
	config := ca.trusting(t, ca.sign(t, "client"))
	config.ClientSessionCache = tls.NewLRUClientSessionCache(10)
	old, _ := dialTLS(t, g.check, config)
	for range 2 { // also what the server sends after the handshake is read then
		if got := old.send(t, "GET", "/healthz"); got.StatusCode != 200 {
			t.Fatal(got.Status)
		}
	}
	if _, c := dialTLS(t, g.check, config); c.ConnectionState().DidResume {
		t.Error("a session was resumed, without the client's certificate")
	}
	put(t, files.ClientCA, next.pem)
	s.ReloadFiles()
	if got := old.send(t, "GET", "/healthz"); got.StatusCode != 200 {
		t.Errorf("the old connection: %s", got.Status)
	}
	get := func(config *tls.Config) error {
		resp, err := client(t, config, false).Get("https://" + g.check + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := get(config); err == nil {
		t.Error("a client of the authority that was removed comes back")
	}
	if err := get(ca.trusting(t, next.sign(t, "client"))); err != nil {
		t.Errorf("a client of the new authority: %v", err)
	}
}

// What expires soon is told when it is read.
func TestExpiryIsLogged(t *testing.T) {
	ca := newAuthority(t)
	day := 24 * time.Hour
	for left, want := range map[time.Duration]string{
		-day:     "a certificate has expired",
		13 * day: "a certificate expires soon",
		15 * day: "",
	} {
		log := new(logged)
		files := ca.sign(t, "one", expiring(time.Now().Add(left))).write(t, nil)
		if err := newServer(t, generous, withTLS(nil, nil, files), logTo(log)).Open(); err != nil {
			t.Fatal(err)
		}
		if said := log.taken(); (said == "") != (want == "") || !strings.Contains(said, want) {
			t.Errorf("%v left: it says %q", left, said)
		}
	}
}

// A certificate that cannot be read keeps it from starting, and nothing listens.
func TestNoCertificateAtStart(t *testing.T) {
	files := &config.TLSFiles{Cert: "nowhere.pem", Key: "nowhere.key"}
	for name, change := range map[string]func(*server.Config){
		"gateway": withTLS(files, nil, nil), "check": withTLS(nil, files, nil), "admin": withTLS(nil, nil, files),
	} {
		l := server.Listeners{Gateway: listen(t), Check: listen(t), Admin: listen(t)}
		err := newServer(t, generous, change).Run(t.Context(), l)
		if err == nil || !strings.HasPrefix(err.Error(), name+": tls: open nowhere.pem: no such file") {
			t.Errorf("%s: %v", name, err)
		}
		if !refuses(l.Gateway.Addr().String()) || !refuses(l.Check.Addr().String()) || !refuses(l.Admin.Addr().String()) {
			t.Errorf("%s: it listens", name)
		}
	}
}
