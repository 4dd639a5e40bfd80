package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/live"
)

const liveRules = `
safelist: ['operation == "health"']
rules:
  - {name: login, match: 'operation == "login"', key: client.ip, limits: [3 per 1h fixed_window], penalty: {ban_after: 2, ban_for: 1h}}
  - {name: trial, mode: shadow, match: 'operation == "login"', key: client.ip, limits: [1 per 1h fixed_window]}
`

// stream is an open stream of events.
type stream struct {
	*bufio.Reader
	close func()
}

func openStream(t testing.TB, url string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("status %d, %v: %s", resp.StatusCode, resp.Header, body)
	}
	return &stream{bufio.NewReader(resp.Body), cancel}
}

// next reads an event, and returns its length.
func (s *stream) next(t testing.TB) (l adminapi.Live, bytes int) {
	t.Helper()
	for {
		line, err := s.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		bytes += len(line)
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &l); err != nil {
				t.Fatal(err)
			}
			return l, bytes + 1
		}
	}
}

func getJSON[T any](t testing.TB, h http.Handler, target string) (v T, code int) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Host = "localhost"
	h.ServeHTTP(w, r)
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
	}
	return v, w.Code
}

// decideMany makes n requests with an operation and a client.
func decideMany(t testing.TB, s *server.Server, n int, operation, client string) {
	t.Helper()
	for range n {
		in := from(client)
		in.Operation = operation
		if _, err := s.Decide(t.Context(), in, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
}

// What a server decides is in the series and instances of its admin API, second by second. The
// clock is synthetic.
func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, liveRules)
		ctx, stop := context.WithCancel(t.Context())
		s.Follow(ctx)
		time.Sleep(100 * time.Millisecond)
		decideMany(t, s, 6, "login", "192.0.2.1") // 3 pass, 1 limited, then a ban
		decideMany(t, s, 4, "health", "192.0.2.1")
		decideMany(t, s, 5, "other", "192.0.2.1")
		time.Sleep(10 * time.Second)
		sum := func(target string) map[string]float64 {
			all, code := getJSON[adminapi.Series](t, s.Admin(), target)
			if code != http.StatusOK || all.Step != 5 {
				t.Fatalf("%s: status %d, %+v", target, code, all)
			}
			sums := map[string]float64{}
			for outcome, rates := range all.Outcomes {
				for _, rate := range rates {
					sums[outcome] += rate * float64(all.Step)
				}
			}
			return sums
		}
		near := func(got map[string]float64, want map[string]float64) {
			t.Helper()
			for outcome, n := range want {
				if d := got[outcome] - n; d > 0.01 || d < -0.01 {
					t.Errorf("%s: %v, want %v", outcome, got[outcome], n)
				}
			}
		}
		near(sum("/v1/series"), map[string]float64{"allowed": 3, "limited": 1, "warned": 0, "banned": 2, "safe": 4, "unmatched": 5, "undecided": 0})
		near(sum("/v1/series?rule=login"), map[string]float64{"allowed": 3, "limited": 1, "banned": 2, "shadow": 0})
		near(sum("/v1/series?rule=trial"), map[string]float64{"allowed": 0, "shadow": 5})
		if _, code := getJSON[adminapi.Series](t, s.Admin(), "/v1/series?rule=none"); code != http.StatusNotFound {
			t.Errorf("a rule that there is not: %d", code)
		}
		all, _ := getJSON[adminapi.Series](t, s.Admin(), "/v1/series")
		if len(all.P50) != 2 || len(all.Outcomes["allowed"]) != 2 || all.Until.After(time.Now()) {
			t.Errorf("after 10 s: %+v", all)
		}
		time.Sleep(time.Hour)
		if all, _ = getJSON[adminapi.Series](t, s.Admin(), "/v1/series"); len(all.Outcomes["allowed"]) != live.Steps-1 {
			t.Errorf("after an hour: %d steps", len(all.Outcomes["allowed"]))
		}
		near(sum("/v1/series"), map[string]float64{"allowed": 0, "safe": 0})
		near(sum("/v1/series?rule=login"), map[string]float64{"allowed": 0, "banned": 0})
		instances, _ := getJSON[adminapi.Instances](t, s.Admin(), "/v1/instances")
		if len(instances.Instances) != 1 || !instances.Instances[0].Self || instances.Instances[0].Version != s.Rules().Version {
			t.Errorf("%+v", instances)
		}
		stop()
		s.Close()
		synctest.Wait()
	})
}

// A stream has an event each second of at most 2 kB, goes on after the timeouts of its listener,
// and ends at once when the server stops.
func TestLiveStream(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	many.WriteString("rules:\n")
	for i := range 40 {
		fmt.Fprintf(&many, "  - {name: %s%d, match: operation == \"%d\", key: client.ip, limits: [3 per 1h]}\n", strings.Repeat("long-name-", 6), i, i)
	}
	s := newServer(t, many.String())
	h := httptest.NewUnstartedServer(s.Admin())
	h.Config.ReadTimeout, h.Config.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond
	h.Start()
	defer h.Close()
	from := openStream(t, h.URL+"/v1/live")
	first, _ := from.next(t)
	started := time.Now()
	for i := range 3 {
		for rule := range 40 {
			decideMany(t, s, 4, fmt.Sprint(rule), fmt.Sprint("192.0.2.", i))
		}
		now, bytes := from.next(t)
		if bytes > 2000 {
			t.Errorf("an event of %d bytes", bytes)
		}
		if !now.At.After(first.At) || now.Decides != "store" || now.Version != s.Rules().Version {
			t.Errorf("%+v", now)
		}
		if len(now.Rules) == 0 && i > 0 || now.Outcomes["limited"] == 0 && i > 0 {
			t.Errorf("event %d: %+v", i, now)
		}
	}
	if took := time.Since(started); took < 2*time.Second {
		t.Errorf("3 events in %v", took)
	}
	s.Close()
	for {
		if _, err := from.ReadString('\n'); err != nil {
			if err != io.EOF {
				t.Error(err)
			}
			break
		}
	}
}

// A stream does not hold up a stop: a server with streams stops as fast as one without.
func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	s := newServer(t, liveRules, func(c *server.Config) { c.Settings.StopTimeout = time.Minute })
	on := start(t, s)
	streams := []*stream{openStream(t, "http://"+on.admin+"/v1/live"), openStream(t, "http://"+on.admin+"/v1/live?rule=login")}
	for i, from := range streams {
		if now, _ := from.next(t); (now.Rule != nil) != (i == 1) {
			t.Errorf("%+v", now)
		}
	}
	done := make(chan error, 1)
	go func() { done <- on.stop() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("streams hold up the stop")
	}
}

// A caller has at most 75 of the 100 streams. One that has ended makes room for another.
func TestMostStreams(t *testing.T) {
	t.Parallel()
	s := newServer(t, liveRules)
	h := httptest.NewServer(s.Admin())
	defer h.Close()
	defer s.Close() // before h waits for its handlers
	var all []*stream
	for range live.MaxStreams * 3 / 4 {
		all = append(all, openStream(t, h.URL+"/v1/live"))
	}
	status := func() int {
		resp, err := http.Get(h.URL + "/v1/live")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := status(); got != http.StatusServiceUnavailable {
		t.Errorf("one more: %d", got)
	}
	all[0].close()
	await.Until(t, "the place of a stream that has ended is free", func() bool { return status() == http.StatusOK })
}

func putToken(t testing.TB, file, token string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A stream ends when its caller's token does, and one without a token does not begin.
func TestStreamOfToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := dir + "/token"
	token, other := strings.Repeat("a", 40), strings.Repeat("b", 40)
	putToken(t, file, token)
	s := newServer(t, liveRules, func(c *server.Config) {
		c.Settings.Admin.Tokens = []config.Token{{Name: "page", File: file, Scope: config.ReadScope}}
	})
	on := start(t, s)
	ask := func() *http.Response {
		r, err := http.NewRequest(http.MethodGet, "http://"+on.admin+"/v1/live", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	open := ask()
	if open.StatusCode != http.StatusOK {
		t.Fatal(open.Status)
	}
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, open.Body); ended <- err }()
	putToken(t, file, other)
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the stream goes on without its token")
	}
	if refused := ask(); refused.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token that is known: %s", refused.Status)
	}
}

// Three servers over one Redis show the numbers of all three.
func TestLiveFleet(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var all []*server.Server
	for range 3 {
		store := openRedis(t, redis.URL())
		s := newServer(t, liveRules, over(store), func(c *server.Config) {
			c.Documents = store.Documents()
			c.Settings.Store = redis.URL()
			c.Settings.DecisionTimeout = 5 * time.Second
		})
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		s.Follow(ctx)
		all = append(all, s)
	}
	for _, s := range all {
		await.Until(t, "all know of all", func() bool { now := s.FleetTotals(); return now.Instances == 3 && now.Whole })
	}
	time.Sleep(5 * time.Second) // until what they counted before is in all totals
	before := make([]live.Totals, len(all))
	for i, s := range all {
		before[i] = s.FleetTotals()
		decideMany(t, s, 10, "login", fmt.Sprint("192.0.2.", i))
	}
	for i, s := range all {
		await.Until(t, "the totals are those of all", func() bool {
			now, was := s.FleetTotals().Rules["login"], before[i].Rules["login"]
			return now[live.Allowed]-was[live.Allowed] == 9 && now.Decided()-was.Decided() == 30
		})
		if now := s.FleetTotals(); now.Bans != 3 || now.Rules["trial"][live.Shadow] != 27 {
			t.Errorf("instance %d: %d bans, %v", i, now.Bans, now.Rules["trial"])
		}
		if instances, _ := getJSON[adminapi.Instances](t, s.Admin(), "/v1/instances"); len(instances.Instances) != 3 {
			t.Errorf("instance %d: %+v", i, instances)
		}
	}
}

// Reading the counters costs no request anything, and an instance with many rules little.
func BenchmarkLive(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			var file strings.Builder
			file.WriteString("rules:\n")
			for i := range n {
				fmt.Fprintf(&file, "  - {name: rule%d, key: client.ip, limits: [3 per 1h]}\n", i)
			}
			s := newServer(b, file.String())
			b.ReportAllocs()
			for b.Loop() {
				s.ReadCounters()
			}
		})
	}
}
