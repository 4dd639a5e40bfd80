package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
)

// firstRequest is a request to what a first file limits. Without a method it is GET, and POST with a
// body; without a path, of /.
type firstRequest struct {
	client, method, path, body string
	headers                    []string // lines
}

// guarded is a server with the file of a use.
type guarded struct {
	*testing.T
	http.Handler
}

// onFirst runs a test of the file of a use, as init writes it, on the clock of a bubble. The test asks
// the application, behind the server's rules.
func onFirst(t *testing.T, use string, application http.HandlerFunc, test func(l guarded)) {
	t.Helper()
	onFirstServer(t, use, func(t *testing.T, s *server.Server) { test(guarded{t, s.Wrap(application)}) })
}

func onFirstServer(t *testing.T, use string, test func(t *testing.T, s *server.Server)) {
	t.Helper()
	path, _ := written(t, use)
	synctest.Test(t, func(t *testing.T) {
		s, err := server.Load(path, server.Config{NoFollow: true, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s)
	})
}

func (l guarded) ask(q firstRequest) *httptest.ResponseRecorder {
	l.Helper()
	var body io.Reader
	if q.body != "" {
		q.method, body = cmp.Or(q.method, http.MethodPost), strings.NewReader(q.body)
	}
	q.method = cmp.Or(q.method, http.MethodGet)
	if q.path == "" {
		q.path = "/"
	}
	r := httptest.NewRequest(q.method, q.path, body)
	r.RemoteAddr = q.client + ":1234"
	for _, line := range q.headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	return w
}

// want asks, and wants a status.
func (l guarded) want(status int, q firstRequest) string {
	l.Helper()
	w := l.ask(q)
	if w.Code != status {
		l.Errorf("%+v: %d, want %d\n%s", q, w.Code, status, w.Body)
	}
	return w.Body.String()
}

// passes wants so many requests to pass, and the next to be refused.
func (l guarded) passes(n int, q firstRequest) {
	l.Helper()
	for i := range n {
		if w := l.ask(q); w.Code != http.StatusOK {
			l.Fatalf("%+v: %d passed, want %d: %d\n%s", q, i, n, w.Code, w.Body)
		}
	}
	l.want(http.StatusTooManyRequests, q)
}

func TestInitAPIKeys(t *testing.T) {
	api := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("X-Api-Key"), "wrong") {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	onFirst(t, "api-keys", api, func(l guarded) {
		l.passes(60, firstRequest{client: "192.0.2.1", headers: []string{"X-Api-Key: free"}})
		l.want(429, firstRequest{client: "192.0.2.2", headers: []string{"Authorization: Bearer free"}}) // the same key
		l.passes(60, firstRequest{client: "192.0.2.1", headers: []string{"X-Api-Key: unknown"}})
		l.passes(600, firstRequest{client: "192.0.2.1", headers: []string{"X-Api-Key: demo-pro-key"}})
		l.passes(6000, firstRequest{client: "192.0.2.1", headers: []string{"X-Api-Key: demo-partner-key"}})
		l.passes(30, firstRequest{client: "192.0.2.1"})
		if said := l.want(429, firstRequest{client: "192.0.2.1", headers: []string{"X-Api-Key: free"}}); !strings.Contains(said, "Your plan allows 60 per 1m.") {
			l.Error(said)
		}
		time.Sleep(time.Minute)
		l.passes(60, firstRequest{client: "192.0.2.1", headers: []string{"X-Api-Key: free"}})
	})
	onFirst(t, "api-keys", api, func(l guarded) {
		for i := range 20 {
			l.want(401, firstRequest{client: "192.0.2.1", headers: []string{fmt.Sprint("X-Api-Key: wrong-", i)}})
		}
		good := firstRequest{client: "192.0.2.1", headers: []string{"X-Api-Key: good"}}
		l.want(429, good)
		l.want(200, firstRequest{client: "192.0.2.2", headers: good.headers})
		time.Sleep(15 * time.Minute)
		l.want(200, good)
	})
}

func TestInitLogin(t *testing.T) {
	application := func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "wrong") {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	attempt := func(client, email, password string) firstRequest {
		return firstRequest{client: client, path: "/login", body: fmt.Sprintf(`{"email":%q,"password":%q}`, email, password)}
	}
	onFirst(t, "login", application, func(l guarded) {
		for i := range 5 {
			l.want(401, attempt("192.0.2.1", fmt.Sprint(i, "@example.com"), "wrong"))
		}
		right := attempt("192.0.2.1", "ann@example.com", "right")
		if said := l.want(429, right); !strings.Contains(said, "Too many wrong passwords. Try again in 15m.") {
			l.Error(said)
		}
		l.want(200, firstRequest{client: "192.0.2.1"}) // it may read
		l.want(200, attempt("192.0.2.2", "ann@example.com", "right"))
		time.Sleep(15 * time.Minute)
		l.want(200, right)
		for range 5 {
			l.want(401, firstRequest{client: "192.0.2.1", path: "/LOGIN/", body: "email=ann&password=wrong"}) // a form
		}
		time.Sleep(15 * time.Minute)
		l.want(429, right) // the second ban is longer
	})
	onFirst(t, "login", application, func(l guarded) {
		l.passes(20, firstRequest{client: "192.0.2.1", path: "/login", body: "email=ann&password=right"})
	})
	onFirst(t, "login", application, func(l guarded) {
		for i := range 20 {
			l.want(401, attempt(fmt.Sprint("192.0.2.", i), "ann@example.com", "wrong"))
		}
		if said := l.want(429, attempt("192.0.2.99", "Ann@Example.com", "right")); !strings.Contains(said, "Too many attempts for this account.") {
			l.Error(said)
		}
		l.want(200, attempt("192.0.2.99", "bob@example.com", "right"))
	})
}

func TestInitLLM(t *testing.T) {
	running := make(chan bool)
	model := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "slow") {
			<-running
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"usage":{"prompt_tokens":1000,"completion_tokens":19700,"total_tokens":20700}}`)
	}
	chat := func(key, content string) firstRequest {
		return firstRequest{client: "192.0.2.1", path: "/v1/chat/completions", headers: []string{"Authorization: Bearer " + key},
			body: fmt.Sprintf(`{"model":"m","max_tokens":20000,"messages":[{"role":"user","content":%q}]}`, content)}
	}
	onFirst(t, "llm", model, func(l guarded) {
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) // a window of a minute begins
		l.passes(2, chat("one", "hello"))                                         // 1000 + 5 × 19700 tokens each
		l.want(200, chat("two", "hello"))
		l.want(200, firstRequest{client: "192.0.2.1", path: "/v1/models", headers: []string{"Authorization: Bearer one"}}) // costs none
		l.want(403, firstRequest{client: "192.0.2.1", path: "/v1/batches", headers: []string{"Authorization: Bearer one"}, body: "{}"})
		l.passes(60, firstRequest{client: "192.0.2.1", path: "/v1/models", headers: []string{"Authorization: Bearer three"}})
		l.passes(30, firstRequest{client: "192.0.2.1", path: "/v1/models"})
		for range 48 {
			time.Sleep(time.Minute)
			l.want(200, chat("one", "hello"))
		}
		time.Sleep(time.Hour)
		l.want(429, chat("one", "hello")) // there is no room for another in the budget of the month
		now := time.Now().UTC()
		time.Sleep(time.Until(time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)))
		l.want(200, chat("one", "hello"))
	})
	onFirst(t, "llm", model, func(l guarded) {
		running = make(chan bool)
		var all sync.WaitGroup
		small := chat("one", "slow")
		small.body = strings.Replace(small.body, "20000", "10", 1)
		for range 4 {
			all.Go(func() { l.want(200, small) })
		}
		synctest.Wait()
		l.want(429, small)
		close(running)
		all.Wait()
	})
}

func TestInitWebhooks(t *testing.T) {
	var mu sync.Mutex
	came := map[string][]time.Duration{}
	began := time.Time{}
	onFirst(t, "webhooks", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		came[r.URL.Path] = append(came[r.URL.Path], time.Since(began))
		if r.Header.Get("X-Hub-Signature-256") == "forged" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}, func(l guarded) {
		delivery := firstRequest{client: "192.0.2.1", path: "/webhooks/github", body: "{}"}
		began = time.Now()
		statuses := map[int]int{}
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() {
				w := l.ask(delivery)
				mu.Lock()
				defer mu.Unlock()
				statuses[w.Code]++
			})
		}
		synctest.Wait()
		l.want(200, firstRequest{client: "192.0.2.1", path: "/webhooks/stripe", body: "{}"}) // another sender does not wait
		all.Wait()
		if want := map[int]int{200: 50, 429: 10}; !maps.Equal(statuses, want) {
			l.Errorf("%v, want %v", statuses, want)
		}
		var want []time.Duration
		for i := range time.Duration(50) {
			want = append(want, i*100*time.Millisecond)
		}
		if !slices.Equal(came["/webhooks/github"], want) || !slices.Equal(came["/webhooks/stripe"], want[:1]) {
			l.Errorf("they came after %v", came)
		}
		for range 10 {
			l.want(401, firstRequest{client: "192.0.2.2", path: "/webhooks/github", body: "{}", headers: []string{"X-Hub-Signature-256: forged"}})
		}
		l.want(429, firstRequest{client: "192.0.2.2", path: "/webhooks/github", body: "{}"})
		l.want(200, delivery)
		time.Sleep(5 * time.Minute)
		l.want(200, firstRequest{client: "192.0.2.2", path: "/webhooks/github", body: "{}"})
		l.passes(60, firstRequest{client: "192.0.2.1", path: "/webhooks/unknown", body: "{}"})
	})
}

func TestInitCrawlers(t *testing.T) {
	page := func(client, agent string) firstRequest {
		return firstRequest{client: client, headers: []string{"User-Agent: " + agent}}
	}
	onFirst(t, "crawlers", func(http.ResponseWriter, *http.Request) {}, func(l guarded) {
		l.passes(600, page("192.0.2.1", "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"))
		l.passes(30, page("192.0.2.2", "examplebot/1.0"))
		l.passes(30, page("192.0.2.3", "curl/8.0"))
		l.passes(30, firstRequest{client: "192.0.2.4"}) // no User-Agent
		const google, bing = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "Mozilla/5.0 (compatible; bingbot/2.0)"
		l.passes(300, page("66.249.66.1", google))
		l.passes(300, page("[2001:4860:4801:10::1]", google))
		l.passes(300, page("157.55.39.1", bing))
		l.passes(30, page("192.0.2.5", google)) // it is none
		l.passes(30, page("66.249.66.2", bing))
		for i := range 60 {
			l.want(200, page(fmt.Sprint("198.51.100.", i), "Mozilla/5.0 (compatible; GPTBot/1.2)"))
		}
		l.want(429, page("203.0.113.1", "CCBot/2.0")) // they share a limit
	})
}

func TestInitNginx(t *testing.T) {
	onFirstServer(t, "nginx", func(t *testing.T, s *server.Server) {
		l := guarded{t, s.Check()}
		question := func(client, method, uri string) firstRequest { // as examples/nginx.conf asks
			return firstRequest{client: "127.0.0.1", path: "http://localhost/v1/authorize", headers: []string{
				"X-Original-Method: " + method, "X-Original-URI: " + uri, "X-Original-Host: shop.example", "X-Forwarded-For: " + client}}
		}
		l.passes(300, question("192.0.2.1", "GET", "/"))
		l.want(200, question("192.0.2.2", "GET", "/"))
		login := question("192.0.2.2", "POST", "/login")
		l.passes(5, login)
		for range 4 {
			l.want(429, login)
		}
		time.Sleep(2 * time.Minute)
		l.want(429, login) // a ban
		l.want(200, question("192.0.2.2", "GET", "/login"))
		l.want(200, question("192.0.2.3", "POST", "/login"))
		time.Sleep(13 * time.Minute)
		l.want(200, login)
		other := question("192.0.2.3", "GET", "/")
		other.client = "192.0.2.9" // who is no proxy may not ask
		l.want(403, other)
	})
}

// A minute of the clock may begin while this test runs, and no window of the login's limit.
func TestInitEnvoy(t *testing.T) {
	path, _ := written(t, "envoy")
	s := serving(t, "--envoy", filepath.Dir(path), "--envoy-listen", "127.0.0.1:0")
	a := answeringBeside(t, s)
	a.asks(t, "OK 299", "shop", "remote_address=192.0.2.1")
	a.asks(t, "OK 599", "shop", "user=ann")
	for left := range 5 {
		a.asks(t, fmt.Sprint("OK ", 4-left), "shop", "route=login", "remote_address=192.0.2.1")
	}
	for range 5 {
		a.asks(t, "OVER_LIMIT 0", "shop", "route=login", "remote_address=192.0.2.1")
	}
	a.asks(t, "OK 4", "shop", "route=login", "remote_address=192.0.2.2")
	if code, out, errs := call("", "ban", "list", "--admin", s.admin); code != 0 || !strings.Contains(out, "192.0.2.1") || strings.Contains(out, "192.0.2.2") {
		t.Errorf("stint ban list: exit %d, %s%s", code, out, errs)
	}
}
