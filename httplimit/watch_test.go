package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// allowAndTell lets everything pass and tells statuses.
func allowAndTell(tell func(context.Context, int)) httplimit.Decide {
	return always(httplimit.Answer{Unlimited: true, OnStatus: tell}, nil)
}

// The status is told once, before the client can have seen any of the response.
func TestOnStatus(t *testing.T) {
	for _, c := range []struct {
		about   string
		handler http.HandlerFunc
		want    []int
	}{
		{"nothing written", func(http.ResponseWriter, *http.Request) {}, []int{200}},
		{"a header", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, []int{404}},
		{"a body", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") }, []int{200}},
		{"two headers", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); w.WriteHeader(500) }, []int{401}},
		{"early hints", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(401) }, []int{401}},
		{"a flush", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(404) }, []int{200}},
		{"a flush by a controller", func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}, []int{200}},
		{"a copy", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("x")) }, []int{200}},
	} {
		t.Run(c.about, func(t *testing.T) {
			var told []int
			var header *httptest.ResponseRecorder
			h := httplimit.Middleware{Decide: allowAndTell(func(ctx context.Context, status int) {
				told = append(told, status)
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > time.Second {
					t.Error("the context does not end")
				}
				if header.Flushed || header.Body.Len() > 0 {
					t.Error("told after the client could see it")
				}
			})}.Wrap(c.handler)
			header = httptest.NewRecorder()
			h.ServeHTTP(header, get())
			if !slices.Equal(told, c.want) {
				t.Errorf("told %v, want %v", told, c.want)
			}
		})
	}
}

// What is refused, what panics and what is hijacked has no status of the handler's.
func TestOnStatusOfNothing(t *testing.T) {
	never := func(context.Context, int) { t.Error("told") }
	serve(httplimit.Middleware{Decide: always(httplimit.Answer{OnStatus: never}, nil)}, get())
	func() {
		defer func() { _ = recover() }()
		httplimit.Middleware{Decide: allowAndTell(never)}.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		})).ServeHTTP(httptest.NewRecorder(), get())
	}()
	s := httptest.NewServer(httplimit.Middleware{Decide: allowAndTell(never)}.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = buffer.WriteString("HTTP/1.1 204 No Content\r\n\r\n")
		_ = buffer.Flush()
	})))
	defer s.Close()
	if resp := do(t, s, "GET", "/"); resp.StatusCode != 204 {
		t.Error(resp.Status)
	}
}

// Who wants the ResponseWriter as it came gets it where nobody is told.
func TestNoHookNoWrapper(t *testing.T) {
	w := httptest.NewRecorder()
	httplimit.Middleware{Decide: always(httplimit.Answer{Unlimited: true}, nil)}.Wrap(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
		if got != http.ResponseWriter(w) {
			t.Errorf("got %T", got)
		}
	})).ServeHTTP(w, get())
}

// With the hook, deadlines, full duplex and 101 still reach the server.
func TestOnStatusOverTheWire(t *testing.T) {
	told := make(chan int, 1)
	s := httptest.NewServer(httplimit.Middleware{Decide: allowAndTell(func(_ context.Context, status int) { told <- status })}.Wrap(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			if err := errors.Join(c.SetWriteDeadline(time.Now().Add(time.Minute)), c.EnableFullDuplex()); err != nil {
				t.Error(err)
			}
			for range 2 {
				fmt.Fprintln(w, "part")
				if err := c.Flush(); err != nil {
					t.Error(err)
				}
				<-r.Context().Done()
			}
		})))
	defer s.Close()
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "part\n" {
		t.Errorf("%q, %v: nothing is flushed", line, err)
	}
	if status := <-told; status != 200 {
		t.Error(status)
	}
}

func newPenalty(t testing.TB, s stint.PenaltySpec) *stint.Penalty {
	t.Helper()
	p, err := stint.NewPenalty(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Responses lead to a ban of the key that got them, and of no other.
func TestWatch(t *testing.T) {
	p := newPenalty(t, stint.PenaltySpec{BanAfter: 2, BanFor: time.Hour})
	limiter := new(stint.Limiter)
	status := 0
	h := httplimit.Middleware{Decide: httplimit.Watch(httplimit.By(limiter, stint.MustLimit("100 per 1h"), httplimit.Header("X-User"), stint.AnonymousAllow),
		limiter, httplimit.Header("X-User"), p, 401, 403)}.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	for i, c := range []struct {
		user         string
		status, want int
		remaining    string
	}{
		{"a", 401, 401, "99"}, {"a", 404, 404, "98"}, {"b", 403, 403, "99"}, {"a", 403, 403, "97"},
		{"a", 200, 429, ""}, {"a", 200, 429, ""}, {"b", 200, 200, "98"}, {"", 401, 401, ""}, {"", 401, 401, ""}, {"", 401, 401, ""},
	} {
		r := get()
		r.Header.Set("X-User", c.user)
		status = c.status
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || w.Header().Get("X-Ratelimit-Remaining") != c.remaining {
			t.Errorf("request %d: %d, remaining %q; want %d, %q", i, w.Code, w.Header().Get("X-Ratelimit-Remaining"), c.want, c.remaining)
		}
	}
}

// Two watches of one request each count, under their own penalties.
func TestWatchTwice(t *testing.T) {
	limiter := new(stint.Limiter)
	everyone := func(*http.Request) string { return "all" }
	logins := newPenalty(t, stint.PenaltySpec{Name: "logins", BanAfter: 2, BanFor: time.Hour})
	holes := newPenalty(t, stint.PenaltySpec{Name: "holes", BanAfter: 1, BanFor: time.Minute})
	h := httplimit.Middleware{Decide: httplimit.Watch(httplimit.Watch(nil, limiter, everyone, logins, 401), limiter, everyone, holes, 404)}
	status := 401
	handler := h.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	var got []int
	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, get())
		got = append(got, w.Code)
	}
	if found, err := limiter.Pardon(t.Context(), "all", logins); !found || err != nil {
		t.Fatal(found, err)
	}
	status = 404
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, get())
		got = append(got, w.Code)
	}
	if !slices.Equal(got, []int{401, 401, 429, 404, 429}) {
		t.Error(got)
	}
}

func TestWatchMistakes(t *testing.T) {
	p, key := newPenalty(t, stint.PenaltySpec{WarnAfter: 1}), httplimit.Header("X")
	for i, f := range []func(){
		func() { httplimit.Watch(nil, nil, nil, p, 401) },
		func() { httplimit.Watch(nil, nil, key, nil, 401) },
		func() { httplimit.Watch(nil, nil, key, p) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("mistake %d does not panic", i)
				}
			}()
			f()
		}()
	}
}
