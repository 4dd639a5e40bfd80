package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// An upstream is believed by its own authority and name, and shown a certificate.
// New files of either are taken over without a restart, and what cannot be read is
// not.
func TestUpstreamTLS(t *testing.T) {
	theirs, ours := newAuthority(t), newAuthority(t)
	shown := theirs.sign(t, "orders", dnsName("orders.internal"))
	pair, err := tls.X509KeyPair(shown.cert, shown.key)
	if err != nil {
		t.Fatal(err)
	}
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	clients := x509.NewCertPool()
	clients.AddCert(ours.cert)
	up.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	up.EnableHTTP2 = true
	up.StartTLS()
	defer up.Close()
	u, err := config.ParseUpstream(up.URL)
	if err != nil {
		t.Fatal(err)
	}

	files := ours.sign(t, "first").write(t, theirs)
	all := config.UpstreamTLS{CA: files.ClientCA, Cert: files.Cert, Key: files.Key, ServerName: "orders.internal"}
	with := func(change func(*config.UpstreamTLS)) *config.UpstreamTLS {
		own := all
		change(&own)
		return &own
	}
	var log logged
	s := newServer(t, generous, routes(
		config.Route{Path: "/", Upstream: u, TLS: &all},
		config.Route{Path: "/no-ca", Upstream: u, TLS: with(func(f *config.UpstreamTLS) { f.CA = "" })},
		config.Route{Path: "/no-name", Upstream: u, TLS: &config.UpstreamTLS{CA: files.ClientCA, Cert: files.Cert, Key: files.Key}},
		config.Route{Path: "/other-name", Upstream: u, TLS: with(func(f *config.UpstreamTLS) { f.ServerName = "users.internal" })},
		config.Route{Path: "/no-cert", Upstream: u, TLS: &config.UpstreamTLS{CA: files.ClientCA, ServerName: "orders.internal"}},
		config.Route{Path: "/nothing", Upstream: u},
	), logTo(&log))
	g := start(t, s)
	wants := func(when, target, want string) {
		t.Helper()
		if got := send(t, g.gateway, "GET", target); got.body != want && !(want == "502" && got.StatusCode == 502) {
			t.Errorf("%s: %s: %s %s", when, target, got.Status, got.body)
		}
	}
	wants("at first", "/", "HTTP/2.0 first")
	wants("at first", "/no-name", "HTTP/2.0 first") // its address is in the certificate, too
	for _, target := range []string{"/no-ca", "/other-name", "/no-cert", "/nothing"} {
		wants("at first", target, "502")
	}
	log.taken()

	second := ours.sign(t, "second")
	put(t, files.Cert, second.cert)
	s.ReloadFiles()
	wants("half of a pair", "/", "HTTP/2.0 first")
	if text := log.taken(); !strings.Contains(text, "certificate not taken") || !strings.Contains(text, "upstream "+u.Host) {
		t.Errorf("half of a pair: %s", text)
	}
	put(t, files.Key, second.key)
	s.ReloadFiles()
	wants("another certificate", "/", "HTTP/2.0 second")
	put(t, files.ClientCA, ours.pem)
	s.ReloadFiles()
	wants("another authority", "/", "502")
	put(t, files.ClientCA, []byte("nothing"))
	s.ReloadFiles()
	put(t, files.ClientCA, append(theirs.pem, ours.pem...))
	s.ReloadFiles()
	wants("both authorities", "/", "HTTP/2.0 second")

	os.Remove(files.Key)
	broken := newServer(t, generous, routes(config.Route{Path: "/", Upstream: u, TLS: &all}))
	if err := broken.Open(); err == nil || !strings.HasPrefix(err.Error(), "upstream "+u.Host+": tls: open "+files.Key) {
		t.Errorf("a file is missing: %v", err)
	}
}

// Where the settings name a proxy, it is asked, and for what the client asked for.
func TestUpstreamProxy(t *testing.T) {
	asked := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.RequestURI
	}))
	defer proxy.Close()
	u := &url.URL{Scheme: "http", Host: "orders.invalid:81"}
	g := start(t, newServer(t, generous, everythingTo(u), func(c *server.Config) { c.Settings.UpstreamProxy = proxy.URL }))
	for _, target := range []string{"/", "/a%2Fb//c;d?e=%zz;f", "//a|b"} {
		if got := send(t, g.gateway, "GET", target); got.StatusCode != 200 {
			t.Fatalf("%s: %s %s", target, got.Status, got.body)
		}
		if got, want := <-asked, "GET http://orders.invalid:81"+target; got != want {
			t.Errorf("the proxy was asked to %s, want %s", got, want)
		}
	}
}

// The log says which request an upstream failed, in one line that is not long and
// has nothing in it that a terminal would obey.
func TestUpstreamFailedIsLogged(t *testing.T) {
	var log logged
	gone := func() *running {
		return start(t, newServer(t, generous, routes(config.Route{Host: "example.com", Path: "/gone", Upstream: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}), logTo(&log)))
	}
	g := gone()
	if got := send(t, g.gateway, "GET", "/gone/a%20b?token=geheim"); got.StatusCode != 502 {
		t.Fatal(got.Status)
	}
	text := log.taken()
	for _, want := range []string{"upstream failed", "route=example.com/gone", "host=example.com", "path=/gone/a%20b", "127.0.0.1:1"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if strings.Contains(text, "geheim") {
		t.Errorf("the query is in %s", text)
	}
	send(t, gone().gateway, "GET", "/gone/"+strings.Repeat("\u202e\u009b", 5000))
	if text = log.taken(); len(text) > 1500 || strings.ContainsAny(text, "\u202e\u009b") || strings.Count(text, "\n") != 1 {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

// What cannot be passed on as it came is refused rather than changed.
func TestTargetsThatCannotPass(t *testing.T) {
	g := start(t, newServer(t, generous, everythingTo(upstream(t, who("up")))))
	for target, want := range map[string]string{
		"//a|b":           "400 Bad Request: The request's path begins with two slashes and has characters that must be escaped.",
		"*":               "400 Bad Request: The request's target is not a path, or has a #, a space, a control character or a malformed escape.",
		"mailto:x":        "400 Bad Request: The request's target is not a path, or has a #, a space, a control character or a malformed escape.",
		"//a%7Cb":         "up example.com //a%7Cb",
		"/a|b":            "up example.com /a|b",
		"/x?a=1;b=2&%zz":  "up example.com /x?a=1;b=2&%zz",
		"/a%2Fb/..%2fc//": "up example.com /a%2Fb/..%2fc//", // no rule looks at the path
		"/x?":             "up example.com /x?",
		"http://h":        "up h /",
		"http://h?a":      "up h /?a",
		// Whatever the rules look at.
		"/login#x":    "400 Bad Request: The request's target is not a path, or has a #",
		"/x?a#b":      "400 Bad Request: The request's target is not a path, or has a #",
		"/login%00":   "400 Bad Request: The request's target is not a path, or has a #, a space, a control character",
		"/a%1fb":      "400 Bad Request: The request's target is not a path, or has a #, a space, a control character",
		"/%7F":        "400 Bad Request: The request's target is not a path, or has a #, a space, a control character",
		"/x?a=%00%0a": "up example.com /x?a=%00%0a",
	} {
		got := send(t, g.gateway, "GET", target)
		if text := got.problem(t) + got.body; !strings.HasPrefix(text, want) {
			t.Errorf("%s: got %s, want %s", target, text, want)
		}
	}
}

// A target is the same after two hops of HTTP/2.
func TestTargetsOverHTTP2(t *testing.T) {
	clear := new(http.Protocols)
	clear.SetUnencryptedHTTP2(true)
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.RequestURI)
	}))
	up.Config.Protocols = clear
	up.Start()
	defer up.Close()
	u, err := config.ParseUpstream("h2c" + strings.TrimPrefix(up.URL, "http"))
	if err != nil {
		t.Fatal(err)
	}
	g := start(t, newServer(t, generous, everythingTo(u)))
	tr := &http.Transport{Protocols: clear}
	defer tr.CloseIdleConnections()
	for _, target := range []string{"/", "/a%2Fb/..%2fc//d?x=%zz;y", "/a|b?", "/é"} {
		resp, err := tr.RoundTrip(&http.Request{Method: "GET", Header: http.Header{}, URL: &url.URL{Scheme: "http", Host: g.gateway, Opaque: target}})
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.ProtoMajor != 2 || string(body) != "HTTP/2.0 "+target {
			t.Errorf("%s: %s %s %s, %v", target, resp.Proto, resp.Status, body, err)
		}
	}
}
