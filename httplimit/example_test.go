package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// Each client may ask twice an hour, by its address.
func Example() {
	var limiter stint.Limiter // counts in memory
	perHour := stint.MustLimit("orders: 2 per 1h")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

	limited := httplimit.Middleware{Decide: httplimit.By(&limiter, perHour, httplimit.Clients{}.Key)}
	handler := limited.Wrap(mux) // for http.ListenAndServe

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Printf("%d, %s remain, retry after %q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200, 1 remain, retry after ""
	// 200, 0 remain, retry after ""
	// 429, 0 remain, retry after "1800"
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }

// call sends a request and prints the answer.
func call(h http.Handler, method, path string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	fmt.Printf("%d remaining=%s retry-after=%s\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
}

// The clients of a proxy, each by its address, which a stint.Guard within counts by, too.
func ExampleMiddleware() {
	limiter, perMinute := new(stint.Limiter), stint.MustLimit("api: 2 per 1m")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", hello)

	clients := httplimit.Clients{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	limited := httplimit.Middleware{Clients: &clients, Decide: httplimit.By(limiter, perMinute, clients.Key)}
	handler := limited.Wrap(mux)

	for range 3 {
		call(handler, "GET", "/")
	}
	// Output:
	// 200 remaining=1 retry-after=
	// 200 remaining=0 retry-after=
	// 429 remaining=0 retry-after=30
}

// No setting at all: each address that connects may ask 100 times a minute.
func ExampleMiddleware_zero() {
	call(httplimit.Middleware{}.Wrap(http.HandlerFunc(hello)), "GET", "/")
	// Output: 200 remaining=99 retry-after=
}

// The limit of one route, for each item and client by itself. It goes inside of
// the mux, where the pattern has been matched.
func ExampleJoin() {
	clients := httplimit.Clients{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	decide := httplimit.By(nil, stint.MustLimit("item: 1 per 1m"), httplimit.Join(clients.Key, httplimit.PathValue("id")))
	mux := http.NewServeMux()
	mux.Handle("POST /items/{id}/vote", httplimit.Middleware{Decide: decide}.Wrap(http.HandlerFunc(hello)))

	call(mux, "POST", "/items/1/vote")
	call(mux, "POST", "/items/2/vote")
	call(mux, "POST", "/items/1/vote")
	// Output:
	// 200 remaining=0 retry-after=
	// 200 remaining=0 retry-after=
	// 429 remaining=0 retry-after=60
}

// Several limits, all or nothing, with a penalty: write your own Decide.
func ExampleDecide() {
	var (
		limiter stint.Limiter
		clients httplimit.Clients
		burst   = stint.MustLimit("burst: 2 per 1m")
		daily   = stint.MustLimit("daily: 1000 per 1d")
	)
	penalty, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 2, BanFor: time.Hour})
	if err != nil {
		panic(err)
	}
	decide := func(r *http.Request, _ time.Duration) (httplimit.Answer, error) {
		key := clients.Key(r)
		request := stint.Request{Asks: []stint.Ask{
			{Key: key, Limit: burst, Penalty: penalty},
			{Key: key, Limit: daily},
		}}
		a := httplimit.Answer{Each: make([]stint.Decision, 2)}
		var err error
		a.Decision, err = limiter.Take(r.Context(), &request, a.Each)
		return a, err
	}
	handler := httplimit.Middleware{Decide: decide}.Wrap(http.HandlerFunc(hello))
	for range 5 {
		call(handler, "GET", "/")
	}
	// Output:
	// 200 remaining=1 retry-after=
	// 200 remaining=0 retry-after=
	// 429 remaining=0 retry-after=30
	// 429 remaining=0 retry-after=3600
	// 429 remaining= retry-after=3600
}

// Who gets two 401 within an hour is kept out for a day.
func ExampleWatch() {
	var limiter stint.Limiter
	guessing, err := stint.NewPenalty(stint.PenaltySpec{Name: "guessing", BanAfter: 2, BanFor: 24 * time.Hour})
	if err != nil {
		panic(err)
	}
	login := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })

	decide := httplimit.Watch(nil, &limiter, httplimit.Clients{}.Key, guessing, http.StatusUnauthorized)
	handler := httplimit.Middleware{Decide: decide}.Wrap(login)
	for range 3 {
		call(handler, "POST", "/login")
	}
	// Output:
	// 401 remaining= retry-after=
	// 401 remaining= retry-after=
	// 429 remaining= retry-after=86400
}

// Requests leave at an even pace of one each 50 ms.
func ExampleShape() {
	pace := stint.MustLimit("api: 20 per 1s leaky_bucket")
	decide := httplimit.Shape(nil, pace, httplimit.Clients{}.Key)
	handler := httplimit.Middleware{Decide: decide, MaxDelay: time.Second}.Wrap(http.HandlerFunc(hello))

	start := time.Now()
	done := make(chan bool)
	for range 3 {
		go func() {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			done <- true
		}()
	}
	for range 3 {
		<-done
	}
	fmt.Println(time.Since(start) >= 100*time.Millisecond)
	// Output:
	// true
}

// Errors: let readers pass, keep writers out.
func ExampleMiddleware_undecided() {
	decide := func(*http.Request, time.Duration) (httplimit.Answer, error) {
		return httplimit.Answer{}, errors.New("store is down")
	}
	handler := httplimit.Middleware{
		Decide:    decide,
		Undecided: func(r *http.Request, _ error) bool { return r.Method == http.MethodGet },
	}.Wrap(http.HandlerFunc(hello))

	call(handler, "GET", "/")
	call(handler, "POST", "/")
	// Output:
	// 200 remaining= retry-after=
	// 503 remaining= retry-after=1
}

func ExampleClients() {
	clients := httplimit.Clients{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:5678"
	// What the client made up, what our edge saw, and our edge as the next proxy saw it.
	r.Header.Set("X-Forwarded-For", "127.0.0.1, 2001:db8::1234, 10.0.0.2")
	fmt.Println(clients.Addr(r))
	fmt.Println(clients.Key(r))
	// Output:
	// 2001:db8::1234
	// 2001:db8::/64
}

func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(hello))
	defer server.Close()

	client := http.Client{Transport: &httplimit.Transport{Limit: stint.MustLimit("upstream: 1 per 1h"), Refuse: true}}
	for range 2 {
		resp, err := client.Get(server.URL)
		var refused *stint.RefusedError
		if errors.As(err, &refused) {
			fmt.Println("refused by", refused.Limit)
			continue
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// 200 OK
	// refused by upstream: 1 per 1h
}

// An API answers refused requests in its own form, and shows browsers a page.
func ExampleNewErrorFormat() {
	format, err := httplimit.NewErrorFormat(httplimit.ErrorFormatSpec{Bodies: []httplimit.ErrorBody{
		{Type: "application/json", Text: `{"error": {"code": "{outcome}", "wait": {retry_after_seconds}}}`},
		{Type: "text/html", Text: `<h1>Too many requests</h1><p>{message}</p>`},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	api := httplimit.Middleware{Refusals: format, Decide: httplimit.By(nil, stint.MustLimit("1 per 1h"), httplimit.Header("X-User"))}.Wrap(http.NotFoundHandler())
	for _, accept := range []string{"", "*/*", "text/html, */*;q=0.8"} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header.Set("X-User", "ann")
		r.Header.Set("Accept", accept)
		api.ServeHTTP(w, r)
		if w.Code == http.StatusTooManyRequests {
			fmt.Println(w.Body)
		}
	}
	// Output:
	// {"error": {"code": "limited", "wait": 3600}}
	// <h1>Too many requests</h1><p>Too many requests. The limit is 1 per 1h. Retry after 3600 seconds.</p>
}

// How do I answer a request when a Guard in the handler refuses?
func ExampleDialect_Refuse() {
	load := stint.Guard[string, string]{Limit: stint.MustLimit("1 per 1h"), Message: "One report an hour.", Anonymous: stint.AnonymousShare}.Wrap(
		func(_ context.Context, id string) (string, error) { return "report " + id, nil })
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		report, err := load(r.Context(), "7")
		if httplimit.XRateLimit.Refuse(w, r, err) {
			return
		}
		fmt.Fprint(w, report)
	})
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/reports/7", nil))
		fmt.Println(w.Code, w.Header().Get("Retry-After") != "", strings.Contains(w.Body.String(), "One report an hour."))
	}
	// Output:
	// 200 false false
	// 429 true true
}
