package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// spoken sends bytes as they are, and returns the statuses of what comes back until the
// connection is closed, or for a moment where nobody asks for that.
func spoken(t *testing.T, url, text string) (statuses []int) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return nil
	}
	patience := 300 * time.Millisecond
	if strings.Contains(text, "Connection: close") {
		patience = 10 * time.Second
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		statuses = append(statuses, resp.StatusCode)
	}
}

// seen is an upstream that remembers the requests that it was asked.
type seen struct {
	mu  sync.Mutex
	all []string
}

func (u *seen) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all = append(u.all, fmt.Sprintf("%s %s %s %q", r.Method, r.Host, r.URL, body))
}

func (u *seen) taken() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.all
	u.all = nil
	return all
}

// No header that a client writes makes it another client: not without trusted proxies,
// nor behind one that appends what it saw.
func TestAttackForgedForwarding(t *testing.T) {
	const rule = "\nrules: [{name: one, key: client.ip, limits: [1 per 1h]}]\n"
	forged := func(n int) []string {
		a := fmt.Sprintf("203.0.113.%d", n)
		return []string{"X-Forwarded-For: " + a, "X-Forwarded-For: " + a + ", " + a, "Forwarded: for=" + a, "X-Real-Ip: " + a, "True-Client-Ip: " + a,
			"CF-Connecting-IP: " + a, "X-Client-Ip: " + a, "X-Cluster-Client-Ip: " + a, "X-Original-Forwarded-For: " + a, "x-forwarded-for : " + a,
			"X-Forwarded-For:\t" + a, "X_Forwarded_For: " + a, "Client-Ip: " + a, "Via: 1.1 " + a}
	}
	up := httptest.NewServer(&seen{})
	defer up.Close()
	passed := func(s *served, more string) (n int) {
		for i, h := range forged(0) {
			h = strings.ReplaceAll(h, "113.0", fmt.Sprintf("113.%d", i+1))
			for _, code := range spoken(t, s.gateway, "GET / HTTP/1.1\r\nHost: x\r\n"+h+"\r\n"+more+"Connection: close\r\n\r\n") {
				if code == 200 {
					n++
				}
			}
		}
		return n
	}
	s := serving(t, "--config", configured(t, "server: {routes: [{upstream: "+up.URL+"}]}"+rule))
	if n := passed(s, ""); n != 1 {
		t.Errorf("without proxies, %d passed under a limit of 1", n)
	}
	s = serving(t, "--config", configured(t, "trusted_proxies: [127.0.0.1]\nserver: {routes: [{upstream: "+up.URL+"}]}"+rule))
	if n := passed(s, "X-Forwarded-For: 192.0.2.7\r\n"); n != 1 {
		t.Errorf("behind a proxy that appends 192.0.2.7, %d passed under a limit of 1", n)
	}
}

// However a request is framed, the upstream gets no request that the rules did not see:
// none for a path that they block, and none for another host.
func TestAttackFraming(t *testing.T) {
	t.Parallel()
	u := &seen{}
	up := httptest.NewServer(u)
	defer up.Close()
	s := serving(t, "--config", configured(t, "blocklist: ['request.path.startsWith(\"/admin\")', 'request.host == \"secret\"']\nserver: {routes: [{upstream: "+up.URL+"}]}\nrules: [{name: one, key: client.ip, limits: [1000 per 1h]}]\n"))
	const inner = "GET /admin HTTP/1.1\r\nHost: x\r\n\r\n"
	chunked := func(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }
	for what, c := range map[string]struct {
		text string
		bad  bool // it must be refused, with 400 or another error
	}{
		"CL and TE":             {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner, false},
		"TE and CL":             {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + chunked(inner), false},
		"two lengths":           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: " + fmt.Sprint(len(inner)) + "\r\n\r\n" + inner, true},
		"a list of lengths":     {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0, 35\r\n\r\n" + inner, true},
		"a length with a sign":  {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +0\r\n\r\n" + inner, true},
		"a negative length":     {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n" + inner, true},
		"an endless length":     {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n" + inner, true},
		"TE twice":              {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunked(inner), true},
		"TE of nothing known":   {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n" + chunked(inner), true},
		"TE in a list":          {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n" + chunked(inner), true},
		"TE with a tab":         {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\tchunked\r\n\r\n" + chunked(inner), false},
		"TE with a vertical":    {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n" + chunked(inner), true},
		"a blank before colon":  {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n" + chunked(inner), true},
		"TE in HTTP/1.0":        {"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(inner), false},
		"a bare CR in a header": {"GET / HTTP/1.1\r\nHost: x\r\nA: b\rX: /admin\r\n\r\n", true},
		"a bare CR in the line": {"GET /\r/admin HTTP/1.1\r\nHost: x\r\n\r\n", true},
		"a bare CR as the end":  {"GET / HTTP/1.1\rHost: x\r\r" + inner, true},
		"bare LF":               {"GET / HTTP/1.1\nHost: x\n\n", false},
		"a NUL in a header":     {"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", true},
		"a NUL in a name":       {"GET / HTTP/1.1\r\nHost: x\r\nA\x00: b\r\n\r\n", true},
		"two hosts":             {"GET / HTTP/1.1\r\nHost: x\r\nHost: secret\r\n\r\n", true},
		"no host":               {"GET / HTTP/1.1\r\n\r\n", true},
		"a host of the line":    {"GET http://secret/ HTTP/1.1\r\nHost: x\r\n\r\n", true},
		"a host with a path":    {"GET / HTTP/1.1\r\nHost: x/admin\r\n\r\n", true},
		"a folded host":         {"GET / HTTP/1.1\r\nHost: x\r\n secret\r\n\r\n", true},
		"a folded header":       {"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n GET /admin HTTP/1.1\r\n\r\n", false},
		"a first line folded":   {"GET / HTTP/1.1\r\n Host: secret\r\nHost: x\r\n\r\n", true},
		"a chunk's extension":   {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;a=\"\r\n\r\n" + inner + "\"\r\na\r\n0\r\n\r\n", false},
		"an LF in an extension": {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;\nxx\r\n" + fmt.Sprintf("%x", len(inner)) + "\r\n0\r\n\r\n" + inner, false},
		"a chunk of 2^64":       {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n" + inner, false},
		"a chunk of -1":         {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n" + inner, false},
		"a chunk of 0x":         {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x23\r\n" + inner, false},
		"a trailer":             {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: secret\r\nContent-Length: 5\r\n\r\n", false},
		"a body of GET":         {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: " + fmt.Sprint(len(inner)) + "\r\n\r\n" + inner, false},
		"Connection names them": {"POST / HTTP/1.1\r\nHost: x\r\nConnection: Content-Length, Host\r\nContent-Length: " + fmt.Sprint(len(inner)) + "\r\n\r\n" + inner, false},
		"pipelined":             {"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + inner, false},
	} {
		statuses := spoken(t, s.gateway, c.text)
		reached := u.taken()
		for _, r := range reached {
			if words := strings.Fields(r); strings.HasPrefix(words[2], "/admin") || words[1] == "secret" {
				t.Errorf("%s: the upstream was asked %s", what, r)
			}
		}
		passed := 0
		for _, code := range statuses {
			if code == 200 {
				passed++
			}
		}
		if passed > len(reached) { // more may reach it than are answered: what breaks off in its body
			t.Errorf("%s: %d requests reached the upstream, %d passed: %v", what, len(reached), passed, statuses)
		}
		if c.bad && passed > 0 && what != "a host of the line" {
			t.Errorf("%s: %v, and the upstream saw %q", what, statuses, reached)
		}
	}
	if n := len(spoken(t, s.gateway, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); n != 1 {
		t.Errorf("it does not serve any more")
	}
}

// No page of a browser changes anything by the admin API, whichever name it reaches it
// by, nor does a token for reading.
func TestAttackAdminFromABrowser(t *testing.T) {
	t.Parallel()
	s := serving(t, "--config", configured(t, "rules: [{name: one, key: client.ip, limits: [5 per 1h]}]\n"))
	port := s.admin[strings.LastIndex(s.admin, ":"):]
	const off = `{"enabled":false}`
	for _, c := range []struct{ method, path, host, header, body string }{
		{"PATCH", "/v1/switches", "evil.example" + port, "Content-Type: application/json", off},
		{"PATCH", "/v1/switches", "evil.example" + port, "Content-Type: application/json\r\nOrigin: http://evil.example" + port, off},
		{"PATCH", "/v1/switches", "127.0.0.1" + port, "Content-Type: application/json\r\nOrigin: https://evil.example", off},
		{"PATCH", "/v1/switches", "127.0.0.1" + port, "Content-Type: application/json\r\nOrigin: null", off},
		{"PATCH", "/v1/switches", "127.0.0.1" + port, "Content-Type: text/plain", off},
		{"PATCH", "/v1/switches", "127.0.0.1" + port, "Content-Type: application/x-www-form-urlencoded", off},
		{"PATCH", "/v1/switches", "127.0.0.1" + port, "X: y", off},
		{"POST", "/v1/switches", "127.0.0.1" + port, "X-HTTP-Method-Override: PATCH\r\nContent-Type: application/json", off},
		{"GET", "/v1/switches?enabled=false", "127.0.0.1" + port, "Content-Type: application/json", off},
		{"POST", "/v1/bans", "127.0.0.1" + port, "Content-Type: text/plain", `{"network":"0.0.0.0/0"}`},
		{"POST", "/v1/bans", "127.0.0.1" + port, "Origin: http://127.0.0.1:1\r\nContent-Type: application/json", `{"network":"0.0.0.0/0"}`},
		{"OPTIONS", "/v1/switches", "127.0.0.1" + port, "Origin: https://evil.example\r\nAccess-Control-Request-Method: PATCH", ""},
	} {
		statuses := spoken(t, s.admin, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\nContent-Length: %d\r\n\r\n%s", c.method, c.path, c.host, c.header, len(c.body), c.body))
		if len(statuses) != 1 || statuses[0] < 400 && c.method != "GET" {
			t.Errorf("%+v: %v", c, statuses)
		}
	}
	if now := statusOf(t, s); !now.Rules.Enabled || now.Controls.Number != 0 {
		t.Errorf("something was changed: %+v", now)
	}
}

// rulesBombs are files that are no rules, or would make very much of little.
func rulesBombs() map[string]string {
	laughs := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 12; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	merged := "m0: &m0 {a: 1}\n"
	for i := 1; i < 40; i++ {
		merged += fmt.Sprintf("m%d: &m%d {<<: [*m%d, *m%d]}\n", i, i, i-1, i-1)
	}
	return map[string]string{
		"laughs":       laughs + "rules: *a11\n",
		"merges":       merged + "rules: [*m39]\n",
		"an endless":   "rules: &r [*r]\n",
		"deep lists":   "rules: " + strings.Repeat("[", 100_000),
		"deep maps":    "rules: " + strings.Repeat("{a: ", 100_000),
		"deep blocks":  strings.Repeat("- ", 50_000) + "x",
		"NULs":         strings.Repeat("\x00", 100_000),
		"no UTF-8":     "rules: \xff\xfe\xfa",
		"a long key":   strings.Repeat("k", 1<<20) + ": 1\n",
		"many anchors": strings.Repeat("- &a x\n- *a\n", 50_000),
		"a long line":  "rules: [{name: " + strings.Repeat("x", 3<<20) + "}]",
		"too long":     "#" + strings.Repeat("x", 5<<20),
		"half":         "rules: [{name: login, key: clie",
		"another kind": "%PDF-1.7\n\x89PNG\r\n",
		"expressions":  "rules: [{name: a, key: client.ip, match: '" + strings.Repeat("(", 10_000) + "', limits: [1 per 1s]}]",
		"a regexp":     "rules: [{name: a, key: client.ip, match: 'request.path.matches(\"" + strings.Repeat("(a{1,1000}", 50) + strings.Repeat(")", 50) + "\")', limits: [1 per 1s]}]",
		"documents":    strings.Repeat("---\nrules: []\n", 10_000),
		"empty twice":  "---\n---\n",
	}
}

// A file that is no rules, or a bomb, changes nothing of what decides, ends in no time,
// and is told.
func TestAttackRulesFiles(t *testing.T) {
	const good = "rules: [{name: one, key: client.ip, limits: [1 per 1h]}]\n"
	file := configured(t, good)
	s := serving(t, "--config", file)
	const body = `{"client":"192.0.2.1"}`
	if code := checked(t, s, body); code != 200 {
		t.Fatal(code)
	}
	for what, text := range rulesBombs() {
		other := filepath.Join(t.TempDir(), "bad.yaml")
		put(t, other, text)
		began := time.Now()
		code, _, errs := call("", "rules", "check", other)
		if code != 1 || len(errs) > 64<<10 || time.Since(began) > 5*time.Minute { // no measure: some bombs would take days
			t.Errorf("%s: check: exit %d after %s, %d bytes: %.300s", what, code, time.Since(began), len(errs), errs)
		}
		if !slices.Contains([]string{"laughs", "deep maps", "NULs", "half", "a long line", "too long"}, what) {
			continue // the watcher waits a moment for each
		}
		before := statusOf(t, s).Rules
		put(t, file, text)
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil { // else it would look half a second later
			t.Fatal(err)
		}
		await.Until(t, "it is refused: "+what, func() bool {
			now := statusOf(t, s).Rules
			return now.Refused != nil && (before.Refused == nil || now.Refused.At.After(before.Refused.At))
		})
		if code := checked(t, s, body); code != 429 {
			t.Errorf("%s: %d by the rules of before", what, code)
		}
	}
}

// Three hundred hangups, one upon the other, lose no request and leave nothing behind.
func TestAttackHangups(t *testing.T) {
	file := configured(t, "rules: [{name: one, key: client.ip, limits: [100000 per 1h]}]\n")
	c, s := process(t, "--config", file)
	goroutines := func() float64 { return metric(t, s, "go_goroutines") }
	before := goroutines()
	done := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if code := checked(t, s, `{"client":"192.0.2.1"}`); code != 200 {
				t.Errorf("a request under hangups: %d", code)
			}
		}
	})
	for range 300 {
		c.signal(t, syscall.SIGHUP)
		time.Sleep(time.Millisecond)
	}
	close(done)
	asking.Wait()
	await.Until(t, "what ran for them has ended", func() bool { return goroutines() <= before+5 })
	c.signal(t, syscall.SIGTERM)
	c.endsWell(t)
}

// Whatever becomes of the way to Redis, each request is answered, and none of them is
// an error.
func TestAttackRedisFaults(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	way := redistest.StartProxy(t, redis.Addr)
	s := serving(t, "--store", way.URL(), "--config", configured(t, "server: {decision_timeout: 200ms}\nrules: [{name: one, key: attrs.user, limits: [1000 per 1h], penalty: {ban_after: 5, ban_for: 1h}}]\n"))
	for what, toxic := range map[string]redistest.Toxic{
		"as ever":     {},
		"late":        {Latency: 200 * time.Millisecond, Jitter: 200 * time.Millisecond},
		"narrow":      {Bandwidth: 200},
		"cut":         {Cut: 50},
		"hangs":       {Stall: true},
		"refuses":     {Refuse: true},
		"lies":        {Lie: func(b []byte) []byte { return []byte("+OK\r\n") }},
		"garbage":     {Lie: func(b []byte) []byte { return []byte("\x00\xff*-7\r\n$99999999999\r\n") }},
		"says errors": {Lie: func(b []byte) []byte { return []byte("-READONLY You can't write against a read only replica.\r\n") }},
		"out of room": {Lie: func(b []byte) []byte { return []byte("-OOM command not allowed when used memory > 'maxmemory'.\r\n") }},
		"loads":       {Lie: func(b []byte) []byte { return []byte("-LOADING Redis is loading the dataset in memory\r\n") }},
	} {
		way.Set(toxic)
		if toxic.Cut > 0 || toxic.Refuse {
			way.Reset()
		}
		for i := range 30 {
			if code := checked(t, s, fmt.Sprintf(`{"attrs":{"user":"u%d"}}`, i)); code != 200 {
				t.Errorf("%s: request %d: %d", what, i, code)
			}
		}
	}
	way.Set(redistest.Toxic{})
	way.Reset()
	await.Until(t, "the store decides again", func() bool { return statusOf(t, s).Store.OK })
}
