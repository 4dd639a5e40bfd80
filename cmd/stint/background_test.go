package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// ready is what /readyz says.
func ready(t *testing.T, s *served) string {
	t.Helper()
	resp, err := http.Get(s.check + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(bodyOf(t, resp)))
}

// One that starts before its Redis serves at once, by itself, and says why, once.
// When the Redis comes, that decides, and the fleet's rules are taken over.
func TestServeBeforeItsStore(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1)
	f.do(0, nil, "rules", "push", f.write("pushed.yaml", limited(2, "")))
	f.awaitRules(1)
	f.redis.Stop(t)
	began := time.Now()
	s := f.join()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s to start", took)
	}
	if code := checked(t, s, `{"operation":"upload","attrs":{"user":"ann"}}`); code != 200 {
		t.Errorf("without the store: %d", code)
	}
	if text := ready(t, s); text != "200 ready, without the store, without the fleet's documents: bans, lists, switches and pushed rules" {
		t.Errorf("ready: %s", text)
	}
	denying := serving(t, "--config", f.write("deny.yaml", "rules: [{name: a, key: client.ip, limits: [1 per 1h], on_store_error: deny}]"), "--store", f.redis.URL())
	if text := ready(t, denying); text != "503 rule a needs the store (on_store_error: deny), which does not decide; `stint status` says why" {
		t.Errorf("ready, where a rule denies: %s", text)
	}
	if text := denying.log.String(); !strings.Contains(text, `level=WARN msg="not ready" why="rule a needs the store`) || !strings.Contains(text, "error=\"redislimit: nothing was charged: connect to ") {
		t.Errorf("the log does not say why it is not ready:\n%s", text)
	}
	if now := f.status(1); now.Store.OK || now.Store.Breaker == "" || now.Store.Instances != 1 || now.Rules.Source != "file" {
		t.Errorf("%+v", now)
	}

	f.redis.Restart(t)
	back := time.Now()
	await.Until(t, "the store decides, by the fleet's rules", func() bool {
		now := f.status(1)
		return now.Store.OK && now.Store.Breaker == "closed" && now.Rules.Source == "fleet" && now.Store.Instances >= 2
	})
	t.Logf("it took %s", time.Since(back))
	f.checks(`{"client":"192.0.2.1"}`, 200, 200, 429, 429)
	if text := ready(t, s); text != "200 ready" {
		t.Errorf("ready: %s", text)
	}
	await.Until(t, "the log says that it is ready again", func() bool { return strings.Contains(denying.log.String(), `msg="ready again"`) })
	told := map[string]int{}
	for line := range strings.Lines(s.log.String()) {
		if _, why, ok := strings.Cut(line, "the store cannot be used yet"); ok {
			told[why]++
		}
	}
	if len(told) == 0 {
		t.Errorf("nobody is told why:\n%s", s.log)
	}
	for why, n := range told {
		if n > 1 {
			t.Errorf("%d times: %s", n, why)
		}
	}
}

// What is wrong with a store is told apart, in the log and by stint status, and
// requests are decided all the same.
func TestServeReasons(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		url  func(*testing.T, *redistest.Server) string
		want string
	}{
		"wrong password": {[]string{"--requirepass", "geheim"}, func(_ *testing.T, r *redistest.Server) string {
			return strings.Replace(r.URL(), "://", "://:falsch@", 1)
		}, "the server does not accept this user and password"},
		"no password": {[]string{"--requirepass", "geheim"}, nil, "the server requires a password"},
		"too old":     {nil, tooOld, "the server is Redis 5.0."},
		"replica":     {[]string{"--replicaof", "127.0.0.1", "1"}, nil, "the server is a replica"},
		"full":        {[]string{"--maxmemory", "1"}, nil, "the server is out of memory"},
		"not there": {nil, func(*testing.T, *redistest.Server) string { return "redis://127.0.0.1:1" },
			"connect to 127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t, c.args...)
			url := redis.URL()
			if c.url != nil {
				url = c.url(t, redis)
			}
			told := decidesWithout(t, url, c.want)
			if strings.Contains(told, "geheim") || strings.Contains(told, "falsch") {
				t.Errorf("a password is told:\n%s", told)
			}
		})
	}
}

// decidesWithout runs stint serve with a store that cannot be used, and asserts that it
// decides by itself and that its log and stint status say why. It returns both.
func decidesWithout(t *testing.T, store, why string) string {
	t.Helper()
	s := serving(t, "--limit", "2 per 1h", "--store", store)
	for i, want := range []int{200, 200, 429} {
		if code := checked(t, s, `{"client":"192.0.2.1"}`); code != want {
			t.Errorf("check %d: %d, want %d", i, code, want)
		}
	}
	var out, errs string
	if !await.So(func() bool {
		// On a busy machine the requests may have been given up before the store said why.
		checked(t, s, `{"client":"192.0.2.2"}`)
		_, out, errs = call("", "status", "--admin", s.admin)
		return strings.Contains(out, "DOES NOT ANSWER") && strings.Contains(out, why)
	}) {
		t.Errorf("status does not say %q:\n%s%s", why, out, errs)
	}
	await.Until(t, fmt.Sprintf("the log says %q:\n%s", why, s.log), func() bool { return strings.Contains(s.log.String(), why) })
	return s.log.String() + out + errs
}

// tooOld makes a server say that it is a Redis 5.
func tooOld(t *testing.T, r *redistest.Server) string {
	p := redistest.StartProxy(t, r.Addr)
	p.Set(redistest.Toxic{Lie: func(b []byte) []byte {
		text := strings.Replace(string(b), "valkey_version:", "another_thing:", 1)
		if i := strings.Index(text, "redis_version:"); i >= 0 {
			text = text[:i] + "redis_version:5.0" + text[i+len("redis_version:5.0"):]
		}
		return []byte(text)
	}})
	return p.URL()
}
