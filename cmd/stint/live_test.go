package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/rules"
)

// TestLive makes the calls in testdata/live.txt, each to an instance that was started for
// it. Before the arguments may stand a line such as STINT_TOKEN=x for the environment, and
// one such as @empty for the state of the instance. Together, the calls use all of the admin
// API that the program uses.
func TestLive(t *testing.T) {
	used := map[string]bool{}
	golden(t, "testdata/live.txt", func(t *testing.T, args []string) (code int, out, errs string) {
		state := "full"
		t.Setenv("STINT_TOKEN", "")
		t.Setenv("STINT_ADMIN", "")
		for ; len(args) > 0; args = args[1:] {
			name, value, env := strings.Cut(args[0], "=")
			if rest, ok := strings.CutPrefix(args[0], "@"); ok {
				state = rest
			} else if env && strings.HasPrefix(name, "STINT_") {
				t.Setenv(name, value)
			} else {
				break
			}
		}
		instance := start(t, state, used)
		if os.Getenv("STINT_ADMIN") == "" {
			t.Setenv("STINT_ADMIN", instance.url)
		}
		code, out, errs = call("", args...)
		for _, secret := range []string{adminToken, readerToken, "geheim-wrong"} {
			if strings.Contains(out+errs, secret) {
				t.Errorf("it tells the token: %s%s", out, errs)
			}
		}
		if said := strings.NewReplacer("\n", "", "\t", "").Replace(out + errs); strings.ContainsFunc(said, controlCharacter) || strings.ContainsRune(said, 0x202e) {
			t.Errorf("it says what a terminal obeys: %q", said)
		}
		return code, instance.settle(out), instance.settle(errs)
	})
	api, err := openapi3.NewLoader().LoadFromFile(filepath.Join(home, "../../docs/admin-api.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range api.Paths.Map() {
		for method := range item.Operations() {
			// What no command uses: a check that needs no server, the
			// sessions of browsers, and the hours of an offender, which the dashboard draws.
			if p := method + " " + path; !used[p] && p != "POST /v1/rules/check" && path != "/v1/session" && p != "GET /v1/offenders/history" {
				t.Errorf("no call leads to %s", p)
			}
		}
	}
}

// calling makes calls to the admin API at an address.
func calling(address string) func(args ...string) (code int, text string) {
	return func(args ...string) (int, string) {
		code, out, errs := call("", append([]string{"--admin=" + address}, args...)...)
		return code, out + errs
	}
}

// want makes a call and says where it does not exit with code and say all words. A status,
// for which the store has 250 ms, is asked for again where a busy machine needs longer.
func want(t *testing.T, do func(...string) (int, string), code int, words []string, args ...string) string {
	t.Helper()
	got, text := do(args...)
	if args[0] == "status" {
		await.So(func() bool { got, text = do(args...); return got == code })
	}
	if got != code {
		t.Errorf("%q: exit %d, want %d", args, got, code)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q: want %q in\n%s", args, w, text)
		}
	}
	return text
}

// Whoever sends a token where others can read it is told so, without the token.
func TestTokenInTheClear(t *testing.T) {
	for address, want := range map[string]bool{
		"http://192.0.2.1:1": true, "http://stint.invalid": true, "http://127.0.0.1.invalid": true,
		"http://127.0.0.1:1": false, "http://[::1]:1": false, "http://localhost:1": false, "https://192.0.2.1:1": false,
	} {
		for _, token := range []string{adminToken, ""} {
			t.Setenv("STINT_TOKEN", token)
			_, out, errs := call("", "status", "--admin", address, "--timeout", "1ms")
			if said := strings.Contains(errs, "stint: warning: the token is sent to "); said != (want && token != "") || strings.Contains(out+errs, adminToken) {
				t.Errorf("%s: %s%s", address, out, errs)
			}
		}
	}
}

// Nobody listens there: the answer is what to look at.
func TestRefusedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	do := calling("http://" + l.Addr().String())
	want(t, do, 1, []string{"connection refused", "--admin", "ssh -L " + port + ":127.0.0.1:" + port, "kubectl port-forward POD " + port}, "status")
}

// An answer that does not come ends the wait, whatever else listens there does not
// pass for the API, and no token follows a redirect.
func TestNotTheAPI(t *testing.T) {
	var followed bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow/v1/status":
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Second):
			}
		case "/html/v1/status":
			fmt.Fprint(w, "<html>\x1b[2J")
		case "/lost/v1/status":
			http.NotFound(w, r)
		case "/moved/v1/status":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case "/null/v1/status":
			fmt.Fprint(w, `{"rules": 5}`)
		case "/elsewhere":
			followed = true
		}
	}))
	defer s.Close()
	for path, words := range map[string][]string{
		"/slow/": {"none within 50ms", "--timeout"},
		"/html":  {"not as the admin API does", "--admin", "GET /html/v1/status"},
		"/lost":  {"404", "not as the admin API does"},
		"/moved": {"302, a redirect to /elsewhere"},
		"/null":  {"cannot be read"},
	} {
		patience := "10s"
		if path == "/slow/" {
			patience = "50ms"
		}
		want(t, calling(s.URL+path), 1, words, "status", "--timeout", patience)
	}
	if followed {
		t.Error("the redirect was followed")
	}
}

// With --ca the server is known, and with --cert so is who asks. The token of the
// file goes along.
func TestMutualTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) != 1 || r.Header.Get("Authorization") != "Bearer "+adminToken {
			t.Errorf("%d certificates, %q", len(r.TLS.PeerCertificates), r.Header.Get("Authorization"))
		}
		fmt.Fprint(w, `{"overrides": []}`)
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	defer s.Close()
	dir := t.TempDir()
	file := func(name, text string) string {
		put(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	asPEM := func(kind string, data []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	private, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := file("cert.pem", asPEM("CERTIFICATE", s.Certificate().Raw)), file("key.pem", asPEM("PRIVATE KEY", private))
	token := file("token", adminToken+"\n")
	do := calling(s.URL)
	want(t, do, 0, []string{"no overrides"}, "override", "list", "--ca", cert, "--cert", cert, "--key-file", key, "--token-file", token)
	want(t, do, 1, []string{"certificate required"}, "override", "list", "--ca", cert, "--token-file", token)
	want(t, do, 1, []string{"unknown authority", "--ca FILE"}, "override", "list", "--cert", cert, "--key-file", key)
	want(t, do, 2, []string{"begins with https"}, "override", "list", "--ca", cert, "--admin", "http://127.0.0.1:1")
}

// All that is not shown on a terminal is escaped, and in JSON means what it meant.
func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"":             "",
		"192.0.2.1":    "192.0.2.1",
		"a b":          "a b",
		" a":           `" a"`,
		"-":            `"-"`,
		`["a"]`:        `"[\"a\"]"`,
		"a\x1b[2J":     `"a\x1b[2J"`,
		"a\u009b":      `"a\u009b"`,
		"a\u202eb":     `"a\u202eb"`,
		"a\xffb":       `"a\xffb"`,
		"grün 日本":      "grün 日本",
		"two\nlines\t": `"two\nlines\t"`,
	} {
		if got := shown(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
		data, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var meant, again string
		_, _ = json.Unmarshal(data, &meant), json.Unmarshal(plainJSON(data), &again)
		if again != meant || strings.ContainsFunc(string(plainJSON(data)), controlCharacter) {
			t.Errorf("%q in JSON: %s", text, plainJSON(data))
		}
	}
	if got := string(plainJSON([]byte("\"\xff\U000e0041\""))); got != `"\ufffd\udb40\udc41"` {
		t.Error(got)
	}
	for k, want := range map[rules.Key]string{"": "", "-": `"-"`, "a": "a", "<a>\x00\u009b\u202e\x00": `["<a>","\u009b\u202e"]`} {
		if got := shownKey(k); got != want {
			t.Errorf("%q: %s, want %s", k, got, want)
		}
	}
	r := refusal{answer: adminapi.Error{Detail: "no\x1b", Problems: []adminapi.Problem{{Where: "x\x1b", Text: "y\n"}, {Text: "z\x9b"}}}}
	if got := r.Error(); got != `x\x1b: y\n`+"\n"+`z\x9b`+"\n"+`no\x1b` {
		t.Errorf("%q", got)
	}
}

func TestMicros(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Microsecond:                     "never",
		0:                                     "0s",
		1234 * time.Microsecond:               "1ms",
		12*time.Second + 600*time.Millisecond: "13s",
		90 * time.Second:                      "1m 30s",
		29*time.Minute + 10*time.Second:       "29m",
		59*time.Minute + 40*time.Second:       "1h",
		2*time.Hour + 5*time.Minute:           "2h 5m",
		23*time.Hour + 59*time.Minute + 50*time.Second: "1d",
		76*time.Hour + time.Minute:                     "3d 4h",
	} {
		if got := micros(d.Microseconds()); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if got := micros(1<<63 - 1); got != "106751d 23h" {
		t.Error(got)
	}
}

// What is done to a text is undone by --json alone; see that an answer is printed
// as it came.
func TestJSONAsItCame(t *testing.T) {
	const answer = "{ \"bans\":1,\n  \"by_hand\": [] , \"by_penalty\":[], \"x\": 1.0 }\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) }))
	defer s.Close()
	if code, text := calling(s.URL)("ban", "list", "--json"); code != 0 || text != answer {
		t.Errorf("exit %d, %q", code, text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run(ctx, []string{"status"}, nil, os.Stderr, &strings.Builder{}); code != 1 {
		t.Errorf("interrupted: exit %d", code)
	}
}
