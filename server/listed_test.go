package server_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// A server starts without a list whose server is down, but not without a file. What is wrong with a list is a
// finding, and is logged once.
func TestListsOfNetworks(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	path := filepath.Join(t.TempDir(), "bad.cidr")
	var log bytes.Buffer
	const file = `
safelist: ['client.ip in list("bots")']
blocklist: ['client.ip in list("bad")']
rules: [{name: staff, match: 'client.ip in list("staff") && operation == "login"', key: client.ip, limits: [0 per 1h]}]`
	staff := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"prefixes": [{"ipv4Prefix": "203.0.113.0/24"}, {"ipv6Prefix": "2001:db8::/48"}]}`)
	}))
	defer staff.Close()
	s := newServer(t, file, func(c *server.Config) {
		c.Settings.Lists = []config.List{
			{Name: "bad", File: path},
			{Name: "bots", URL: "http://" + closed.Addr().String() + "/bots.json", Reload: time.Hour},
			{Name: "staff", URL: staff.URL, Pointer: "/prefixes", Reload: time.Hour},
		}
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	if err := s.Open(); err == nil || !strings.Contains(err.Error(), `list "bad": `) {
		t.Fatalf("without the file: %v", err)
	}
	put(t, path, []byte("192.0.2.0/24\n"))
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	findings := func(want ...string) {
		t.Helper()
		all := s.Findings()
		for i, f := range all {
			if i < len(want) && (f.Code != "ST036" || !strings.Contains(f.String(), want[i])) {
				t.Errorf("%s, want %s", f, want[i])
			}
		}
		if len(all) != len(want) {
			t.Error(all)
		}
	}
	decides := func(want map[string]int) {
		t.Helper()
		for client, status := range want {
			if w := check(s, fmt.Sprintf(`{"client":%q,"operation":"login"}`, client)); w.Code != status {
				t.Errorf("%s: %d, want %d: %s", client, w.Code, status, w.Body)
			}
		}
	}
	decides(map[string]int{"192.0.2.255": 403, "192.0.3.1": 200, "198.51.100.7": 200, "203.0.113.9": 429, "2001:db8:0:1::": 429})
	const refused = "connection refused; it is empty, and so matches nobody"
	findings(refused)
	put(t, path, []byte("192.0.2.0/24\n192.0.2\n"))
	s.ReloadFiles()
	findings(path+":2: warning ST036: ", refused)
	decides(map[string]int{"192.0.2.255": 403, "198.51.100.7": 200})
	w := httptest.NewRecorder()
	s.Probes().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	page := w.Body.String()
	for _, want := range []string{"\nstint_list_networks{list=\"bad\"} 1\n", "\nstint_list_networks{list=\"bots\"} 0\n", "\nstint_findings{code=\"ST036\"} 2\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	put(t, path, []byte("192.0.2.0/24\n198.51.100.7\n"))
	s.ReloadFiles()
	findings(refused)
	decides(map[string]int{"192.0.2.255": 403, "198.51.100.7": 403, "198.51.100.8": 200})
	for _, want := range []string{"lists not taken; the previous ones stay in force", "msg=\"lists taken\"", "msg=\"list not taken; the networks in force stay\" list=bots"} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%d times %s in %s", n, want, &log)
		}
	}
}
