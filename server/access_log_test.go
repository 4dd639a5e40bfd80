package server_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

func accessTo(l *logged) func(*server.Config) {
	return func(c *server.Config) {
		c.AccessLog, c.Settings.Log.Access = slog.New(slog.NewJSONHandler(l, nil)), true
	}
}

// Each request to the gateway has one line when it has ended, also if it is refused by the
// rules, for lack of room or because it is malformed, if there is no route, if the upstream
// fails or breaks off, and if the connection is upgraded.
func TestAccessLog(t *testing.T) {
	var log logged
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/half":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/chat":
			c, _, _ := http.NewResponseController(w).Hijack()
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
			c.Close()
			return
		case "/hints":
			w.WriteHeader(http.StatusEarlyHints)
		case "/none":
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = io.WriteString(w, "hello")
	})
	dead := httptest.NewServer(http.NotFoundHandler())
	nobody, err := config.ParseUpstream(dead.URL)
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	s := newServer(t, `rules: [{name: login, match: 'request.path == "/login"', key: client.ip, limits: [1 per 1h]}]`,
		routes(config.Route{Path: "/", Upstream: up}, config.Route{Path: "/dead", Upstream: nobody}, config.Route{Host: "other.example", Path: "/x", Upstream: up}),
		accessTo(&log), func(c *server.Config) {
			c.Settings.Routes[0].Host = "example.com"
			c.Settings.Routes[1].Host = "example.com"
		})
	g := start(t, s)
	for _, c := range []struct{ request, want string }{
		{"GET /a?secret=1", "path:/a status:200 bytes:5 outcome:unmatched up decision"},
		{"HEAD /a", "path:/a status:200 bytes:0 outcome:unmatched up decision"},
		{"GET /hints", "path:/hints status:200 bytes:5 outcome:unmatched up decision"},
		{"GET /none", "path:/none status:204 bytes:0 outcome:unmatched up decision"},
		{"GET /login", "path:/login status:200 bytes:5 outcome:allowed rule:login up decision"},
		{"GET /login", "path:/login status:429 bytes:0 outcome:limited rule:login decision"},
		{"GET /dead", "path:/dead status:502 bytes:0 outcome:unmatched up decision"},
		{"GET /half", "path:/half status:200 bytes:4 outcome:unmatched up decision cut"},
		{"GET /chat", "path:/chat status:101 bytes:0 outcome:unmatched up decision"},
		{"GET /a/..;/b", "path:/a/..;/b status:400 bytes:0 outcome:malformed"},
		{"CONNECT example.com:443", "path:example.com:443 status:400 bytes:0 outcome:malformed"},
		{"GET /none-of-it other", "path:/none-of-it status:404 bytes:0 outcome:unmatched decision"},
	} {
		f := strings.Fields(c.request)
		headers := []string{"X-Request-Id: r1"}
		if len(f) > 2 {
			headers = append(headers, "Host: "+f[2]+".example")
		}
		if strings.Contains(c.request, "chat") {
			headers = append(headers, "Connection: Upgrade", "Upgrade: websocket")
		}
		conn := dial(t, g.gateway)
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\n%s\r\nConnection: close\r\n\r\n", f[0], f[1], strings.Join(append([]string{"Host: example.com"}, headers...)[len(f)-2:], "\r\n"))
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
		var all []map[string]any
		await.So(func() bool { all = lines(t, log.taken(), "request"); return len(all) > 0 })
		if len(all) != 1 {
			t.Errorf("%s: %d lines", c.request, len(all))
			continue
		}
		l := all[0]
		if l["method"] != f[0] || l["client"] != "127.0.0.1" || l["proto"] != "HTTP/1.1" || l["request_id"] != "r1" || l["level"] != "INFO" || l["seconds"].(float64) <= 0 {
			t.Errorf("%s: %v", c.request, l)
		}
		got := fmt.Sprintf("path:%v status:%v bytes:%v outcome:%v", l["path"], l["status"], l["bytes"], l["outcome"])
		if l["status"].(float64) >= 400 { // a problem
			got = strings.Replace(got, fmt.Sprintf("bytes:%v", l["bytes"]), "bytes:0", 1)
			if l["bytes"].(float64) < 50 {
				t.Errorf("%s: %v", c.request, l)
			}
		}
		for _, k := range []string{"rule", "upstream", "decision", "cut"} {
			switch v, ok := l[k]; {
			case !ok:
			case k == "rule":
				got += " rule:" + v.(string)
			case k == "upstream":
				got += " up"
			default:
				got += " " + k
			}
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.request, got, c.want)
		}
	}
}

// A line names the outcome, also where no limit decided.
func TestAccessLogOutcomes(t *testing.T) {
	var log logged
	s := newServer(t, `
safelist: ['request.path == "/safe"']
blocklist: ['request.path == "/blocked"']
rules:
  - {name: login, match: 'request.path == "/login"', key: client.ip, limits: [1 per 24h]}
  - {name: deny, match: 'request.path == "/deny"', key: client.ip, limits: [1 per 24h], on_store_error: deny}
  - {name: sized, match: 'request.path == "/sized"', key: client.ip, cost: int(request.headers.size), limits: [1 per 24h]}
`, accessTo(&log), over(&failsAbout{key: "192.0.2.66"}), unhurried)
	o := operator{t, s.Admin()}
	o.want(201, "POST", "/v1/bans", `{"network":"198.51.100.0/24"}`)
	o.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.9"}`)
	for _, c := range []struct{ path, client, want string }{
		{"/safe", "192.0.2.1", "safe"},
		{"/blocked", "192.0.2.1", "blocked"},
		{"/", "192.0.2.1", "unmatched"},
		{"/login", "192.0.2.1", "allowed"},
		{"/login", "192.0.2.1", "limited"},
		{"/login", "192.0.2.9", "banned"},
		{"/login", "198.51.100.1", "banned"},
		{"/", "198.51.100.1", "banned"}, // the network, by no rule
		{"/safe", "198.51.100.1", "safe"},
		{"/deny", "192.0.2.66", "undecided"},
		{"/sized", "192.0.2.1", "malformed"},
	} {
		r := httptest.NewRequest("GET", c.path, nil)
		r.RemoteAddr = c.client + ":1"
		r.Header.Set("Size", "many")
		s.Gateway().ServeHTTP(httptest.NewRecorder(), r)
		if line := log.taken(); !strings.Contains(line, `"outcome":"`+c.want+`"`) {
			t.Errorf("%s from %s: %s, want %s", c.path, c.client, line, c.want)
		}
	}
}

// The line of a refusal, the access log and the answer have one ID.
func TestAccessJoins(t *testing.T) {
	var log logged
	s := newServer(t, loggedRules, everythingTo(upstream(t, asTold)), logJSON(&log), accessTo(&log))
	g := s.Gateway()
	for range 2 {
		log.taken()
		w := httptest.NewRecorder()
		g.ServeHTTP(final{w}, httptest.NewRequest("GET", "/pair", nil))
		text, id := log.taken(), w.Header().Get("Stint-Decision")
		requests, refused := lines(t, text, "request"), lines(t, text, "refused")
		switch {
		case len(requests) != 1:
			t.Fatal(text)
		case w.Code == 200 && (id != "" || len(refused) != 0 || requests[0]["decision"] == nil):
			t.Errorf("answered with %q, logged %s", id, text)
		case w.Code == 429 && (id == "" || requests[0]["decision"] != id || len(refused) != 1 || refused[0]["decision"] != id):
			t.Errorf("answered with %q, logged %s", id, text)
		}
	}
}

// What has no room is logged, too: by the limit of the instance, and by its requests in flight.
func TestAccessLogOfOverload(t *testing.T) {
	var log logged
	var g http.Handler
	ask := func(path string) { g.ServeHTTP(final{httptest.NewRecorder()}, httptest.NewRequest("GET", path, nil)) }
	s := newServer(t, "rules: []", everythingTo(upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			ask("/second") // while the first is in flight
		}
	})), logJSON(&log), accessTo(&log), bounded(config.Instance{Limit: stint.MustLimit("1 per 1h"), InFlight: 1}))
	g = s.Gateway()
	ask("/first")
	ask("/third")
	var got []string
	text := log.taken()
	for _, l := range lines(t, text, "request") {
		got = append(got, fmt.Sprint(l["path"], " ", l["status"], " ", l["outcome"]))
	}
	if want := "/second 503 overloaded, /first 200 unmatched, /third 503 overloaded"; strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
	overloaded := lines(t, text, "this instance is overloaded, and refuses requests")
	if len(overloaded) != 2 || overloaded[0]["reason"] != "in_flight" || overloaded[1]["reason"] != "limit" {
		t.Errorf("%v", overloaded)
	}
}

// Without the setting there is no access log, and it costs nothing: the handlers are the same.
func TestNoAccessLog(t *testing.T) {
	var log logged
	s := newServer(t, generous, everythingTo(upstream(t, asTold)), logJSON(&log))
	s.Gateway().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if text := log.taken(); text != "" {
		t.Error(text)
	}
}

// Lines of the access log that nobody reads are dropped before others are.
func TestAccessLinesAreDroppedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &stuck{gate: make(chan struct{})}
		w := server.NewLogWriter(to)
		log, access := w.Loggers(config.Log{JSON: true})
		for range 20_000 {
			access.Info("request", "path", strings.Repeat("x", 200))
		}
		dropped := w.Dropped()
		if dropped == 0 {
			t.Fatal("all lines fit")
		}
		for range 100 {
			log.Info("audit")
		}
		if w.Dropped() != dropped {
			t.Errorf("%d other lines were dropped", w.Dropped()-dropped)
		}
		close(to.gate)
		w.Close(time.Minute)
		to.mu.Lock()
		defer to.mu.Unlock()
		text := to.text.String()
		missing := 0.0
		for _, l := range lines(t, text, "log lines are missing here, because the log's reader was too slow") { // in JSON, too
			missing += l["lines"].(float64)
		}
		if n := len(lines(t, text, "audit")); n != 100 || missing != float64(dropped) {
			t.Errorf("%d lines, %v missing of %d", n, missing, dropped)
		}
	})
}

// What the access log costs a request to the gateway, beside none.
func BenchmarkAccessLog(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprint(on), func(b *testing.B) {
			s := newServer(b, `rules: [{name: one, key: client.ip, limits: [1 per 1h]}]`, func(c *server.Config) {
				c.AccessLog, c.Settings.Log.Access = slog.New(slog.NewTextHandler(io.Discard, nil)), on
			})
			g := s.Gateway()
			r := httptest.NewRequest("GET", "/", nil)
			b.ReportAllocs()
			for b.Loop() {
				g.ServeHTTP(&discard{header: http.Header{}}, r)
			}
		})
	}
}
