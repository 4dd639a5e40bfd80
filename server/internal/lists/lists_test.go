package lists_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/claims"
	"github.com/stintdev/stint/server/internal/lists"
	"github.com/stintdev/stint/server/rules"
)

// reader is a Reader of one list, "bad", and what it logs.
type reader struct {
	*lists.Reader
	t   *testing.T
	log bytes.Buffer
}

func newReader(t *testing.T, l config.List, client *http.Client) *reader {
	l.Name = "bad"
	r := &reader{t: t}
	r.Reader = lists.New([]config.List{l}, client, slog.New(slog.NewTextHandler(&r.log, nil)), rules.NewLists("bad"))
	return r
}

// has fails the test if the list does not have so many networks, or its finding does not contain text; "":
// there must be none.
func (r *reader) has(networks int, text string) {
	r.t.Helper()
	want := fmt.Sprintf("# HELP stint_list_networks Networks of a list.\n# TYPE stint_list_networks gauge\nstint_list_networks{list=\"bad\"} %d\n", networks)
	if err := testutil.CollectAndCompare(r.Reader, strings.NewReader(want), "stint_list_networks"); err != nil {
		r.t.Error(err)
	}
	all := r.Findings()
	switch {
	case text == "" && len(all) > 0:
		r.t.Error(all)
	case text != "" && (len(all) != 1 || all[0].Code != "ST036" || !strings.Contains(all[0].String(), text)):
		r.t.Errorf("%v, want %s", all, text)
	}
}

// age is how long ago the source had the networks in force.
func (r *reader) age() time.Duration {
	r.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.Reader)
	families, err := registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "stint_list_age_seconds" {
			return time.Duration(f.GetMetric()[0].GetGauge().GetValue() * float64(time.Second))
		}
	}
	r.t.Fatal("no age")
	return 0
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file is read again when it changes. One that is wrong leaves the networks that it had, and a finding.
func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.cidr")
	r := newReader(t, config.List{File: path}, nil)
	if err := r.Open(); err == nil || !strings.Contains(err.Error(), `list "bad": `) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	put(t, path, "192.0.2.0/24\n198.51.100.7\nx")
	if err := r.Open(); err == nil || !strings.Contains(err.Error(), path+`:3: "x"`) {
		t.Errorf("with a wrong one: %v", err)
	}
	put(t, path, "192.0.2.0/24\n198.51.100.7\n")
	if err := r.Open(); err != nil {
		t.Fatal(err)
	}
	r.has(2, "")
	step := func(what string, asked, changed bool, wrong string) {
		t.Helper()
		is, err := r.Reload(asked)
		if is != changed || (err != nil) != (wrong != "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %t, %v", what, is, err)
		}
	}
	step("as before", false, false, "")
	put(t, path, "192.0.2.0/24\n203.0.113.0/33")
	step("wrong", false, false, path+`:2: "203.0.113.0/33"`)
	r.has(2, path+":2: warning ST036: the list \"bad\" cannot be read since ")
	step("wrong as before", false, false, "")
	r.has(2, "(2) stay in force")
	step("wrong, and asked", true, false, path+":2: ")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	step("gone", false, false, "no such file")
	step("gone as before", false, false, "")
	r.has(2, "no such file")
	put(t, path, "192.0.2.0/24\n")
	step("right again", false, true, "")
	r.has(1, "")
	if err := os.Truncate(path, 64<<20+1); err != nil {
		t.Fatal(err)
	}
	step("too large", false, false, path+": larger than 64 MiB")
	r.has(1, "larger than 64 MiB")
}

// A list that is fetched is taken when it changes; see what its server sees.
func TestFetches(t *testing.T) {
	var answer func(w http.ResponseWriter, r *http.Request)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, r) }))
	defer s.Close()
	settings := config.Default()
	settings.UpstreamProxy = ""
	r := newReader(t, config.List{URL: s.URL + "/bots.json?key=geheim", Pointer: "/p", Reload: time.Hour}, claims.NewClient(&settings))
	status := func(code int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	text := func(text, etag string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", etag)
			w.Header().Set("Last-Modified", "Tue, 24 Nov 2026 15:46:03 GMT")
			_, _ = io.WriteString(w, text)
		}
	}
	ifNone := func(etag string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != etag || r.Header.Get("If-Modified-Since") != "Tue, 24 Nov 2026 15:46:03 GMT" {
				t.Errorf("asked with %v, want %s", r.Header, etag)
			}
			w.WriteHeader(http.StatusNotModified)
		}
	}
	for _, step := range []struct {
		what     string
		answer   func(http.ResponseWriter, *http.Request)
		networks int
		finding  string
	}{
		{"an error", status(500), 0, s.URL + "/bots.json: status 500 Internal Server Error; it is empty, and so matches nobody"},
		{"not modified, unasked", status(304), 0, "status 304"},
		{"a list", text(`{"p": ["192.0.2.0/24", "198.51.100.7"]}`, `"1"`), 2, ""},
		{"the same", ifNone(`"1"`), 2, ""},
		{"an error again", status(503), 2, "status 503 Service Unavailable; its networks of "},
		{"the same again", ifNone(`"1"`), 2, ""},
		{"a page", text("<html>", `"2"`), 2, "/bots.json: the JSON cannot be read"},
		{"a wrong list", text(`{"p": ["192.0.2.0/33"]}`, `"3"`), 2, s.URL + "/bots.json: /p/0: warning ST036: "},
		{"nor is that remembered", ifNone(`"1"`), 2, ""},
		{"another list", text(`{"p": ["192.0.2.0/24"]}`, `"4"`), 1, ""},
		{"the same, with another tag", text(`{"p": ["192.0.2.0/24"]}`, `"5"`), 1, ""},
		{"which is used", ifNone(`"5"`), 1, ""},
		{"broken off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"p": []}`)
		}, 1, "unexpected EOF"},
		{"too long", func(w http.ResponseWriter, _ *http.Request) {
			blanks := bytes.Repeat([]byte(" "), 1<<20)
			for range 65 {
				_, _ = w.Write(blanks)
			}
		}, 1, "/bots.json: larger than 64 MiB"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/bots.json" {
				http.Redirect(w, r, "/other", http.StatusFound)
				return
			}
			if from := r.Header.Get("Referer"); from != "" {
				t.Errorf("redirected from %s", from)
			}
			text(`{"p": []}`, `"6"`)(w, r)
		}, 0, ""},
		{"too many redirects", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }, 0, "more than 3 redirects"},
	} {
		t.Run(step.what, func(t *testing.T) {
			r.t, answer = t, step.answer
			if err := r.Open(); err != nil { // which fetches once
				t.Error(err)
			}
			r.has(step.networks, step.finding)
		})
	}
	if text := r.log.String(); strings.Contains(text, "geheim") || !strings.Contains(text, "/bots.json") {
		t.Error(text)
	}
}

// No redirect leads from https to http.
func TestRedirectToHTTP(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	defer plain.Close()
	s := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer s.Close()
	settings := config.Default()
	client := claims.NewClient(&settings)
	client.Transport = s.Client().Transport
	r := newReader(t, config.List{URL: s.URL, Reload: time.Hour}, client)
	if err := r.Open(); err != nil {
		t.Error(err)
	}
	r.has(0, "a redirect from https to http")
}

// roundTripper answers requests in a bubble, where there is no network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func respond(status int, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// A start waits 5 seconds for a server that does not answer, then the list is empty until it does.
func TestOpenDoesNotWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, config.List{URL: "https://example.com/", Reload: time.Hour}, &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		start := time.Now()
		if err := r.Open(); err != nil || time.Since(start) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		r.has(0, "context deadline exceeded; it is empty, and so matches nobody")
	})
}

// A fetch while the server runs takes a minute at most.
func TestFetchTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, config.List{URL: "https://example.com/", Reload: time.Hour}, &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		go r.Run(t.Context())
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		r.has(0, "")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r.has(0, "https://example.com/: context deadline exceeded")
	})
}

// A list is fetched once a period, give or take a tenth. After a failure it is fetched sooner, and less often
// with each further failure.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		reload time.Duration
		opened bool
		waits  []time.Duration // until each request; the 3rd to 9th fail
	}{
		{10 * time.Minute, true, []time.Duration{0, 10 * time.Minute, 10 * time.Minute,
			time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute,
			10 * time.Minute, 10 * time.Minute}},
		{time.Minute, false, []time.Duration{0, time.Minute, time.Minute, time.Minute, time.Minute}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var at []time.Duration
			requests := func() []time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(at)
			}
			start := time.Now()
			r := newReader(t, config.List{URL: "https://example.com/", Reload: c.reload}, &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(start))
				if n := len(at); n >= 3 && n <= 9 {
					return respond(500, "")
				}
				return respond(200, "192.0.2.1\n")
			})})
			if c.opened {
				if err := r.Open(); err != nil {
					t.Fatal(err)
				}
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				r.Run(t.Context())
			}()
			failed := false
			for len(requests()) < len(c.waits) {
				time.Sleep(time.Second)
				synctest.Wait()
				if at := requests(); len(at) == 5 && !failed {
					failed = true
					r.has(1, "status 500; its networks of ")
					if got, want := r.age(), time.Since(start)-at[1]; got.Round(time.Millisecond) != want.Round(time.Millisecond) {
						t.Errorf("age %s, want %s", got, want)
					}
				}
			}
			at = requests()
			for i, wait := range c.waits[1:] {
				if got := at[i+1] - at[i]; got < wait*9/10 || got > wait*11/10 {
					t.Errorf("reload %s: request %d after %s, want %s", c.reload, i+2, got, wait)
				}
			}
			if len(c.waits) > 9 {
				r.has(1, "")
			}
		})
	}
}
