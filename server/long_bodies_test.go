package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// A body of 40 MB is in memory once, and not at all when it has passed on.
func TestLongBodiesAreKeptOnce(t *testing.T) {
	const size = 40_000_000
	for _, chunked := range []bool{false, true} {
		var m runtime.MemStats
		var before, after uint64
		var s *server.Server
		var taken, rest int64
		s = newServer(t, `rules: [{name: r, key: '"all"', tokens: openai, max_hold: 1%, limits: [100000000 per 24h fixed_window hold]}]`, bounded(config.Instance{InFlight: 10, Bytes: 256 << 20}),
			everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
				runtime.ReadMemStats(&m)
				after, taken = m.TotalAlloc, s.Holds()["bytes"]
				_, _ = io.Copy(io.Discard, r.Body)
				await.So(func() bool { rest = s.Holds()["bytes"]; return rest == 0 })
			})))
		begin, end := `{"stream":true,"messages":["data:image/png;base64,`, `"]}`
		r := httptest.NewRequest("POST", "/v1/chat/completions", io.MultiReader(strings.NewReader(begin), &zeros{size}, strings.NewReader(end)))
		if !chunked {
			r.ContentLength = int64(len(begin) + size + len(end))
		}
		runtime.ReadMemStats(&m)
		before = m.TotalAlloc
		w := httptest.NewRecorder()
		s.Gateway().ServeHTTP(w, r)
		if w.Code != 200 || rest != 0 {
			t.Errorf("chunked %t: %d, %d bytes still taken", chunked, w.Code, rest)
		}
		if t.Logf("chunked %t: %d bytes taken, %d allocated", chunked, taken, after-before); taken < size || taken > size+3<<20 || after-before > size+16<<20 {
			t.Errorf("chunked %t: %d bytes taken, %d allocated, of %d", chunked, taken, after-before, size)
		}
	}
}

// Bodies that do not fit into the memory of bodies are refused until there is room.
func TestLongBodiesFindNoRoom(t *testing.T) {
	came, goOn := make(chan bool), make(chan bool)
	s := newServer(t, `rules: [{name: r, key: '"all"', tokens: openai, max_hold: 1%, limits: [100000000 per 24h fixed_window hold]}]`, bounded(config.Instance{InFlight: 10, Bytes: 64 << 20}),
		everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
			came <- true
			<-goOn
			_, _ = io.Copy(io.Discard, r.Body)
		})))
	send := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.Gateway().ServeHTTP(w, httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(`{"messages":["`), &zeros{20_000_000}, strings.NewReader(`"]}`))))
		return w
	}
	first := make(chan int, 1)
	go func() { first <- send().Code }()
	<-came
	if w := send(); w.Code != 503 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("a second body: %d, %v", w.Code, w.Header())
	}
	goOn <- true
	if code := <-first; code != 200 {
		t.Errorf("the first body: %d", code)
	}
	go func() { first <- send().Code }()
	<-came
	goOn <- true
	if code := <-first; code != 200 || s.Holds()["bytes"] != 0 {
		t.Errorf("a body after that: %d, %d bytes are taken", code, s.Holds()["bytes"])
	}
}

// What is kept of a body that is small until it is decoded finds room, too.
func TestSmallBodiesThatGrowFindRoom(t *testing.T) {
	s := newServer(t, `rules: [{name: r, key: '"all"', tokens: openai, limits: [100000000 per 24h fixed_window hold]}]`, bounded(config.Instance{InFlight: 10, Bytes: 8 << 20}),
		everythingTo(upstream(t, aModel(false, func(*http.Request, []byte) {}))))
	for members, want := range map[int]int{100: 200, 9999: 503} {
		as := sentAs{codings: "gzip"}
		body := as.sent(t, `{`+strings.Repeat(`"a":1,`, members)+`"messages":[]}`)
		w := httptest.NewRecorder()
		if s.Gateway().ServeHTTP(w, as.request("/v1/chat/completions", body, false)); w.Code != want || len(body) > 4<<10 || s.Holds()["bytes"] != 0 {
			t.Errorf("%d members, %d bytes: %d, want %d; %d bytes taken", members, len(body), w.Code, want, s.Holds()["bytes"])
		}
	}
}
