package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// unreadable is a body that must not be read.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// One request above MaxInFlight is refused before Decide is asked and its body is
// read, and there is room again however those before it ended: answered, refused,
// undecided, or in a panic.
func TestMaxInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const problem = `{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The server is overloaded and accepts no more requests right now.","outcome":"overloaded","retry_after":1}`
		var asked atomic.Int64
		goOn := make(chan bool)
		h := httplimit.Middleware{MaxInFlight: 2, Decide: func(r *http.Request, _ time.Duration) (httplimit.Answer, error) {
			asked.Add(1)
			switch r.URL.Path {
			case "/refused":
				return httplimit.Answer{}, nil
			case "/undecided":
				return httplimit.Answer{}, io.ErrUnexpectedEOF
			}
			return httplimit.Answer{Unlimited: true}, nil
		}}.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/wait":
				<-goOn
			case "/panic":
				panic(http.ErrAbortHandler)
			}
		}))
		status := func(path string) int {
			defer func() { _ = recover() }()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			return w.Code
		}
		for range 2 {
			go status("/wait")
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/", unreadable{t}))
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" || strings.TrimSpace(w.Body.String()) != problem || asked.Load() != 2 {
			t.Errorf("%d %v %s, Decide was asked %d times", w.Code, w.Header(), w.Body, asked.Load())
		}
		close(goOn)
		synctest.Wait()
		for _, path := range []string{"/", "/refused", "/undecided", "/panic"} {
			for range 3 {
				status(path)
			}
		}
		for range 2 {
			if got := status("/"); got != 200 {
				t.Errorf("then: %d", got)
			}
		}
	})
}

// A Decide that has no room for more says so; OnError cannot let it pass.
func TestOverloaded(t *testing.T) {
	w := serve(httplimit.Middleware{
		Decide:    always(httplimit.Answer{}, &httplimit.Overloaded{RetryAfter: 1100 * time.Millisecond}),
		Undecided: func(*http.Request, error) bool { return true },
	}, get())
	if w.Code != 503 || w.Header().Get("Retry-After") != "2" || !strings.Contains(w.Body.String(), `"outcome":"overloaded","retry_after":2`) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// Clients are told who decided where the store did not, if that is wanted.
func TestDegraded(t *testing.T) {
	for by, want := range map[stint.Source]string{stint.ByStore: "", stint.ByLocal: "local", stint.ByPolicy: "policy"} {
		for _, degraded := range []bool{false, true} {
			for _, allowed := range []bool{false, true} {
				a := httplimit.Answer{}
				a.Allowed, a.By = allowed, by
				w := serve(httplimit.Middleware{Degraded: degraded, Decide: always(a, nil)}, get())
				if got := w.Header().Get("Stint-Degraded"); got != want && degraded || got != "" && !degraded {
					t.Errorf("%s, degraded %t: %q", by, degraded, got)
				}
			}
		}
	}
}
