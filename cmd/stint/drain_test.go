package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

const drainRules = `
server: {decision_timeout: 20s, degraded_header: true}
rules: [{name: user, key: 'request.headers["x-user"]', limits: [100000 per 1h sliding_log]}]
`

// sender sends requests one after another until nobody listens any more, or it is told
// to go elsewhere.
type sender struct {
	user           string
	client         http.Client
	answered, lost atomic.Int64
	elsewhere      atomic.Bool  // a balancer sends what comes from now on to others
	doubtful       atomic.Int64 // of those answered: a machine that pauses for seconds loses its Redis
}

func (s *sender) run(t *testing.T, url string) {
	for !s.elsewhere.Load() {
		r, err := http.NewRequest("GET", url, nil)
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("X-User", s.user)
		resp, err := s.client.Do(r)
		if err != nil {
			s.lost.Add(1)
			if !listens(url) {
				return
			}
			continue
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || err != nil {
			t.Errorf("%s: %s %s %v", s.user, resp.Status, b, err)
		}
		s.answered.Add(1)
		if resp.Header.Get("Stint-Degraded") != "" {
			s.doubtful.Add(1)
		}
	}
}

func listens(url string) bool {
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err == nil {
		c.Close()
	}
	return err == nil
}

// SIGTERM under load: what is under way is answered, nobody is let in any more, and
// the Redis has charged a unit for each answer and no more. What is not answered was
// not decided.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	came, goOn := make(chan bool), make(chan bool)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-User") == "held" {
			came <- true
			<-goOn
			fmt.Fprint(w, "finished")
		}
	}))
	defer up.Close()
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	file := configured(t, drainRules)
	args := []string{"--config", file, "--store", redis.URL(), "--upstream", up.URL}
	c, s := process(t, append(args, "--admin-listen", "off")...)

	await.Until(t, "it is ready", func() bool { return ready(t, s) == "200 ready" })
	held := make(chan string, 1)
	go func() { held <- request(s.gateway, "held") }()
	<-came
	// A request may come on a connection that was idle just as that is closed, or on a
	// new one just as nobody takes it. Neither is decided.
	once := &sender{user: "once", client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	kept := &sender{user: "kept", client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 9}}}
	var sending sync.WaitGroup
	for _, one := range []*sender{once, kept, once, kept} {
		sending.Go(func() { one.run(t, s.gateway) })
	}
	await.Until(t, "there is load", func() bool { return once.answered.Load() > 50 && kept.answered.Load() > 50 })
	c.signal(t, syscall.SIGTERM)
	sending.Wait()
	await.Until(t, "it listens nowhere", func() bool { return !listens(s.gateway) && !listens(s.check) })
	select {
	case got := <-held:
		t.Errorf("the upstream has not answered, and the client has %s", got)
	default:
	}
	release()
	if got := <-held; got != "200 finished" {
		t.Errorf("under way: %s", got)
	}
	c.endsWell(t)

	after := serving(t, args...)
	charged := func(user string) int64 {
		var left int64
		if _, err := fmt.Sscanf(get(t, "GET", after.gateway, "X-User", user), "200 %d", &left); err != nil {
			t.Fatal(err)
		}
		return 100000 - 1 - left // this one is charged, too
	}
	go func() { <-came }()
	if n := charged("held"); n != 1 {
		t.Errorf("the request under way was charged %d", n)
	}
	for _, one := range []*sender{once, kept} {
		n, answered, doubtful := charged(one.user), one.answered.Load(), one.doubtful.Load()
		if n < answered-doubtful || n > answered {
			t.Errorf("%s: %d were answered, %d of them in doubt, and %d charged", one.user, answered, doubtful, n)
		}
	}
	t.Logf("%d and %d answered, %d and %d not", once.answered.Load(), kept.answered.Load(), once.lost.Load(), kept.lost.Load())
}

// request is the status and body of what a user gets.
func request(url, user string) string {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return err.Error()
	}
	r.Header.Set("X-User", user)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(b))
}

// With a stop_delay, an instance that is told to stop says so and serves on, so that
// nothing is lost where a balancer sends requests elsewhere meanwhile.
func TestServeStopsGently(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer up.Close()
	file := configured(t, strings.Replace(drainRules, "{decision", "{stop_delay: 2s, decision", 1))
	c, s := process(t, "--config", file, "--upstream", up.URL, "--admin-listen", "off")
	await.Until(t, "it is ready", func() bool { return ready(t, s) == "200 ready" })
	one := &sender{user: "one", client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	kept := &sender{user: "kept", client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 9}}}
	var sending sync.WaitGroup
	for _, one := range []*sender{one, kept} {
		sending.Go(func() { one.run(t, s.gateway) })
	}
	await.Until(t, "there is load", func() bool { return one.answered.Load() > 20 && kept.answered.Load() > 20 })
	c.signal(t, syscall.SIGTERM)
	await.Until(t, "it says that it stops", func() bool { return ready(t, s) == "503 stopping" })
	before := one.answered.Load() + kept.answered.Load()
	await.Until(t, "it serves on", func() bool { return one.answered.Load()+kept.answered.Load() > before+20 })
	one.elsewhere.Store(true)
	kept.elsewhere.Store(true)
	sending.Wait()
	c.endsWell(t)
	if n := one.lost.Load() + kept.lost.Load(); n > 0 {
		t.Errorf("%d requests were lost", n)
	}
}
