package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
)

// checkRequest is a request of the check API.
func checkRequest(body string) *http.Request {
	r := httptest.NewRequest("POST", "http://localhost/v1/check", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// check asks the check API.
func check(s *server.Server, body string) *httptest.ResponseRecorder {
	return checkAt(s, "/v1/check", body)
}

func checkAt(s *server.Server, target, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := checkRequest(body)
	r.URL.RawQuery = strings.TrimPrefix(strings.TrimPrefix(target, "/v1/check"), "?")
	checkAPI(s).ServeHTTP(w, r)
	return w
}

func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
safelist: [operation == "ping"]
blocklist: ['operation == "bad"']
rules:
  - name: login
    match: operation == "login"
    key: client.ip
    limits: [3 per 1m fixed_window, 9 per 1h sliding_log]
    penalty: {warn_after: 2, ban_after: 3, ban_for: 30m}
    message: slow down
  - {name: watch, match: operation == "login", key: client.ip, limits: [10 per 1s leaky_bucket burst 1], mode: shadow}
`, func(c *server.Config) { c.Settings.Dialect = httplimit.XRateLimit | httplimit.Draft11 })
		const login = `{"operation":"login","client":"192.0.2.1"}`
		for i, c := range []struct {
			body   string
			status int
			want   string
		}{
			{login, 200, `{"outcome":"allowed","rule":"login","allowed":true,"limit":3,"remaining":2,"retry_after_us":0,"reset_after_us":60000000,"delay_us":0,"used":1,"ban_left_us":0,"decisions":[` +
				`{"rule":"login","limit_text":"3 per 1m fixed_window","mode":"enforce","allowed":true,"limit":3,"remaining":2,"retry_after_us":0,"reset_after_us":60000000,"delay_us":0,"used":1},` +
				`{"rule":"login","limit_text":"9 per 1h sliding_log","mode":"enforce","allowed":true,"limit":9,"remaining":8,"retry_after_us":0,"reset_after_us":3600000000,"delay_us":0,"used":1},` +
				`{"rule":"watch","limit_text":"10 per 1s leaky_bucket burst 1","mode":"shadow","allowed":true,"limit":1,"remaining":0,"retry_after_us":0,"reset_after_us":100000,"delay_us":0,"used":1}]}`},
			{`{"operation":"login","client":"192.0.2.1","cost":4}`, 429, `{"outcome":"limited","rule":"login","message":"slow down","allowed":false,"limit":3,"remaining":2,"retry_after_us":-1,"reset_after_us":60000000,"delay_us":0,"used":1,"ban_left_us":0,"violations":1,"warn_after":2,"ban_after":3,"decisions":[` +
				`{"rule":"login","limit_text":"3 per 1m fixed_window","mode":"enforce","allowed":false,"limit":3,"remaining":2,"retry_after_us":-1,"reset_after_us":60000000,"delay_us":0,"used":1},` +
				`{"rule":"login","limit_text":"9 per 1h sliding_log","mode":"enforce","allowed":true,"limit":9,"remaining":8,"retry_after_us":0,"reset_after_us":3600000000,"delay_us":0,"used":1},` +
				`{"rule":"watch","limit_text":"10 per 1s leaky_bucket burst 1","mode":"shadow","allowed":false,"limit":1,"remaining":0,"retry_after_us":-1,"reset_after_us":100000,"delay_us":0,"used":1}]}`},
			{`{"operation":"login","client":"192.0.2.1","cost":3}`, 429, `"ban_left_us":0,"violations":2,"warn_after":2,"ban_after":3,"decisions":[`},
			{`{"operation":"login","client":"192.0.2.1","cost":3}`, 429, `"outcome":"banned","rule":"login","message":"slow down","allowed":false,"limit":3,"remaining":2,"retry_after_us":1800000000,"reset_after_us":60000000,"delay_us":0,"used":1,"ban_left_us":1800000000,"violations":3,"warn_after":2,"ban_after":3,"decisions":[`},
			{login, 429, `{"outcome":"banned","rule":"login","message":"slow down","allowed":false,"limit":0,"remaining":0,"retry_after_us":1800000000,"reset_after_us":0,"delay_us":0,"used":0,"ban_left_us":1800000000,"decisions":[]}`},
			{`{"operation":"ping","client":"192.0.2.1"}`, 200, `{"outcome":"allowed","rule":"","allowed":true,"limit":0,"remaining":0,"retry_after_us":0,"reset_after_us":0,"delay_us":0,"used":0,"ban_left_us":0,"list":"safelist","entry":"safelist entry 1: operation == \"ping\"","decisions":[]}`},
			{`{"operation":"bad"}`, 403, `{"outcome":"blocked","rule":"","allowed":false,"limit":0,"remaining":0,"retry_after_us":0,"reset_after_us":0,"delay_us":0,"used":0,"ban_left_us":0,"list":"blocklist","entry":"blocklist entry 1: operation == \"bad\"","decisions":[]}`},
			{`{}`, 200, `"outcome":"allowed","rule":""`},
		} {
			w := checkAt(s, "/v1/check?shadow=true", c.body)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%d: %s\n got %d %s\nwant %d %s", i, c.body, w.Code, w.Body, c.status, c.want)
			}
			h := w.Header()
			switch i {
			case 0:
				if h.Get("X-RateLimit-Remaining") != "2" || h.Get("RateLimit") != `"login";r=2;t=60, "login-2";r=8;t=3600` || h.Get("Retry-After") != "" {
					t.Errorf("%d: %v", i, h)
				}
			case 1: // no wait would help
				if h.Get("Retry-After") != "" || h.Get("X-RateLimit-Remaining") != "2" {
					t.Errorf("%d: %v", i, h)
				}
			case 4:
				if h.Get("Retry-After") != "1800" || h.Get("X-RateLimit-Limit") != "" {
					t.Errorf("%d: %v", i, h)
				}
			}
		}
	})
}

// What a check request says is what the rules see, each field by the same name.
func TestCheckInput(t *testing.T) {
	const rule = `{key: '"all"', limits: [100 per 1h], name: `
	s := newServer(t, `
rules:
  - `+rule+`cost, match: 'operation == "cost"'}
  - `+rule+`client, match: 'client.ip == "192.0.2.1"'}
  - `+rule+`client6, match: 'client.ip == "2001:db8::1"'}
  - `+rule+`no-client, match: 'operation == "?" && !(client.ip in cidr("0.0.0.0/0")) || operation == "!"'}
  - `+rule+`method, match: 'request.method == "PUT"'}
  - `+rule+`path, match: 'request.path == "/login"'}
  - `+rule+`space, match: 'request.path == "/a b"'}
  - `+rule+`host, match: 'request.host == "example.com"'}
  - `+rule+`header, match: 'request.headers["x-api-key"] == "k"'}
  - `+rule+`headers, match: 'request.headers["accept"] == "k, l"'}
  - `+rule+`has-header, match: '"x-api-key" in request.headers'}
  - `+rule+`query, match: 'request.query.q == "a b"'}
  - `+rule+`text, match: 'attrs.v == "é😀"'}
  - `+rule+`whole, match: 'attrs.v == 7 && type(attrs.v) == int'}
  - `+rule+`float, match: 'attrs.v == 7.5 || attrs.v == 1e3 && type(attrs.v) == double'}
  - `+rule+`largest, match: 'attrs.v == 9223372036854775807'}
  - `+rule+`bool, match: 'attrs.v == true'}
  - `+rule+`"null", match: 'attrs.v == null'}
  - `+rule+`list, match: 'type(attrs.v) == list && attrs.v[1].x == "y" && size(attrs.v) == 2'}
`)
	for _, c := range []struct{ body, want string }{
		{`{"operation":"cost"}`, "cost 99"},
		{`{"operation":"cost","cost":null}`, "cost 98"},
		{`{"operation":"cost","cost":0}`, "cost 98"},
		{`{"operation":"cost","cost":-0}`, "cost 98"},
		{` {"operation" : "c\u006fst" ,` + "\r\n\t" + `"cost":7} `, "cost 91"},
		{`{"operation":"cost","cost":9223372036854775807}`, "cost 91"},
		{`{"client":"192.0.2.1"}`, "client 99"},
		{`{"client":"::ffff:192.0.2.1"}`, "client 98"},
		{`{"client":"::ffff:192.0.2.1%eth0"}`, "client 97"},
		{`{"client":"2001:DB8:0::1"}`, "client6 99"},
		{`{"client":"2001:db8::1%eth0"}`, "client6 98"},
		{`{"client":"","operation":"?"}`, ""},
		{`{"client":null,"operation":"!"}`, "no-client 99"},
		{`{"request":{"method":"PUT"}}`, "method 99"},
		{`{"request":{"path":"/login"}}`, "path 99"},
		{`{"request":{"path":"/%6cogin?next=/../"}}`, "path 98"},
		{`{"request":{"path":"login"}}`, "path 97"},
		{`{"request":{"path":"/l%6Fgin"}}`, "path 96"},
		{`{"request":{"path":"/a%20b"}}`, "space 99"},
		{`{"request":{"path":"/a+b"}}`, ""},
		{`{"request":{"host":"Example.COM.:443"}}`, "host 99"},
		{`{"request":{"headers":{"X-API-Key":"k"}}}`, "header 99, has-header 99"},
		{`{"request":{"headers":{"x-api-key":["k"]}}}`, "header 98, has-header 98"},
		{`{"request":{"headers":{"accept":["k","l"]}}}`, "headers 99"},
		{`{"request":{"headers":{"x-api-key":[]}}}`, ""},
		{`{"request":{"headers":{"x-api-key":null}}}`, ""},
		{`{"request":{"headers":{"x-api-key":""}}}`, "has-header 97"},
		{`{"request":{"query":{"q":"a b"}}}`, "query 99"},
		{`{"request":{"path":"/x?q=a+b&r=c"}}`, "query 98"},
		{`{"request":{"path":"/x?q=c","query":{"q":"a b"}}}`, "query 97"},
		{`{"request":{"query":{"q":null}}}`, ""},
		{`{"request":null,"attrs":null,"operation":"cost"}`, "cost 90"},
		{`{"attrs":{"v":"é\ud83d\ude00"}}`, "text 99"},
		{`{"attrs":{"v":"\u00e9😀"}}`, "text 98"},
		{`{"attrs":{"v":7}}`, "whole 99"},
		{`{"attrs":{"v":7.5}}`, "float 99"},
		{`{"attrs":{"v":1E+3}}`, "float 98"},
		{`{"attrs":{"v":9223372036854775807}}`, "largest 99"},
		{`{"attrs":{"v":true}}`, "bool 99"},
		{`{"attrs":{"v":null}}`, "null 99"},
		{`{"attrs":{"v":[{},{"x":"y"}]}}`, "list 99"},
	} {
		var reply struct {
			Decisions []struct {
				Rule      string
				Remaining int64
			}
		}
		w := check(s, c.body)
		if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || w.Code != 200 && w.Code != 429 {
			t.Errorf("%s: %v in %s", c.body, err, w.Body)
		}
		var got []string
		for _, d := range reply.Decisions {
			got = append(got, d.Rule+" "+itoa(d.Remaining))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: applied %s, want %s", c.body, got, c.want)
		}
	}
}

func itoa(n int64) string { b, _ := json.Marshal(n); return string(b) }

// What cannot be counted as it was meant is refused with a reason.
func TestCheckRefuses(t *testing.T) {
	s := newServer(t, `rules: [{name: user, key: attrs.user, limits: [100 per 1h]}]`)
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct{ body, want string }{
		{``, "empty: want a JSON object"},
		{" \n", "empty: want a JSON object"},
		{`null`, "want an object"},
		{`"attrs"`, "want an object"},
		{`7`, "want an object"},
		{`{`, "the JSON cannot be read: unexpected end of JSON input"},
		{`{"cost":01}`, "the JSON cannot be read: invalid character '1' after object key:value pair"},
		{`{"cost":NaN}`, "the JSON cannot be read: invalid character 'N' looking for beginning of value"},
		{`{'cost':1}`, "the JSON cannot be read"},
		{`{"cost":1,}`, "the JSON cannot be read"},
		{`{} {}`, "the JSON cannot be read: invalid character '{' after top-level value"},
		{`{}x`, "the JSON cannot be read"},
		{`{"attrs":{"user":"a` + "\n" + `"}}`, "the JSON cannot be read"},
		{strings.Repeat("[", 100_000), "the JSON cannot be read: invalid character '[' exceeded max depth"},
		{`{"attrs":{"user":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}}`, `rules: bad request: rule "user": key: a list cannot be a key`},
		{`{"kost":1}`, `unknown field "kost": did you mean cost?`},
		{`{"Cost":1}`, `unknown field "Cost": did you mean cost?`},
		{`{"":1}`, `unknown field ""`},
		{`{"request":{"url":"/"}}`, `request: unknown field "url"`},
		{`{"cost":1,"cost":1}`, "cost is given twice"},
		{`{"cost":1,"c\u006fst":2}`, "cost is given twice"},
		{`{"request":null,"request":{}}`, "request is given twice"},
		{`{"request":{"path":"/a","path":"/b"}}`, "request: path is given twice"},
		{`{"attrs":{"user":"a","user":"b"}}`, `attrs: "user" is given twice`},
		{`{"attrs":{"x":[{"y":1,"y":2}]}}`, `attrs: "y" is given twice`},
		{`{"request":{"headers":{"X-A":"1","x-a":"2"}}}`, `request: headers: "X-A" is given twice`},
		{`{"request":{"query":{"a":"1","a":"2"}}}`, `request: query: "a" is given twice`},
		{`{"cost":-1,"attrs":{"user":"a"}}`, "rules: bad request: cost -1: must not be negative"},
		{`{"cost":1.5}`, "cost: want a whole number, have 1.5"},
		{`{"cost":1e-1}`, "cost: want a whole number, have 1e-1"},
		{`{"cost":1e400}`, "cost: want a whole number that is less than 2^63, have 1e400"},
		{`{"cost":9223372036854775808}`, "cost: want a whole number that is less than 2^63, have 9223372036854775808"},
		{`{"cost":-9223372036854775809}`, "cost: want a whole number that is less than 2^63, have -9223372036854775809"},
		{`{"cost":"1"}`, "cost: want a whole number"},
		{`{"cost":[1]}`, "cost: want a whole number"},
		{`{"cost":true}`, "cost: want a whole number"},
		{`{"t_us":1}`, "t_us: only events of simulations have a time"},
		{`{"operation":1}`, "operation: want text"},
		{`{"operation":"\ud800"}`, "operation: an escape is half of a surrogate pair"},
		{`{"operation":"\ud800\ud800"}`, "operation: an escape is half of a surrogate pair"},
		{`{"operation":"\ud800\n"}`, "operation: an escape is half of a surrogate pair"},
		{`{"attrs":{"user":"\udfff"}}`, "attrs: an escape is half of a surrogate pair"},
		{`{"attrs":{"\udc00":1}}`, "attrs: an escape is half of a surrogate pair"},
		{`{"attrs":{"user":"` + "\xff" + `"}}`, "the JSON is not UTF-8"},
		{`{"attrs":{"user":"` + "\xed\xa0\x80" + `"}}`, "the JSON is not UTF-8"},
		{`{"attrs":[]}`, "attrs: want an object"},
		{`{"attrs":"x"}`, "attrs: want an object"},
		{`{"attrs":{"x":1e400}}`, "attrs: the number 1e400 is out of range"},
		{`{"attrs":{"x":[-1E+999]}}`, "attrs: the number -1E+999 is out of range"},
		{`{"attrs":{"x":{"y":9223372036854775808}}}`, "attrs: the number 9223372036854775808 is out of range"},
		{`{"attrs":{"x":1` + strings.Repeat("0", 400) + `}}`, "attrs: the number 1000000000000000000000000000000000000000 is out of range"},
		{`{"attrs":{"user":""}}`, `rules: bad request: rule "user": key: it is empty`},
		{`{"attrs":{"user":"a\u0000b"}}`, `rules: bad request: rule "user": key: it contains a NUL byte`},
		{`{"attrs":{"user":"` + long + `"}}`, `rules: bad request: rule "user": key: it is longer than 4096 bytes`},
		{`{"client":"localhost"}`, "client: want an IP address such as 192.0.2.1"},
		{`{"client":"192.0.2.1:80"}`, "client: it has a port: write 192.0.2.1"},
		{`{"client":"192.0.2.01"}`, "client: a number that begins with 0 may be octal: write 192.0.2.1"},
		{`{"client":3221225985}`, "client: want text"},
		{`{"request":[]}`, "request: want an object"},
		{`{"request":{"path":"/%zz"}}`, `request: path: invalid URL escape "%zz"`},
		{`{"request":{"method":7}}`, "request: method: want text"},
		{`{"request":{"headers":[]}}`, "request: headers: want an object"},
		{`{"request":{"headers":{"a":1}}}`, "request: headers: want text"},
		{`{"request":{"headers":{"a":["b",null]}}}`, "request: headers: want text"},
		{`{"request":{"query":{"a":["b"]}}}`, "request: query: want text"},
		{`{"request":{"query":"a=b"}}`, "request: query: want an object"},
	} {
		w := check(s, c.body)
		var p struct{ Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 400 || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.80s: %d %s, %v", c.body, w.Code, w.Body, err)
		}
		if detail, _ := strings.CutPrefix(p.Detail, "bad request: "); !strings.HasPrefix(detail, c.want) || len(detail) > 300 {
			t.Errorf("%.80s:\n got %.300s\nwant %s", c.body, detail, c.want)
		}
	}
}

func TestCheckStatuses(t *testing.T) {
	s := newServer(t, `rules: [{name: user, key: attrs.user, limits: [100 per 1h], on_store_error: deny}]`, over(failing()))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s.Follow(ctx)
	for _, c := range []struct {
		method, path, body string
		status             int
		header, value      string
	}{
		{"POST", "/v1/check", `{"attrs":{"user":"a"}}`, 503, "Retry-After", "1"},
		{"POST", "/v1/check", `{"attrs":{"user":"` + strings.Repeat("x", 2<<20) + `"}}`, 413, "Content-Type", "application/problem+json"},
		{"POST", "/v1/check", `{"attrs":{"x":"` + strings.Repeat("x", 2<<20-20) + `"}}`, 200, "Content-Type", "application/json"},
		{"GET", "/v1/check", "", 405, "Allow", "POST"},
		{"PUT", "/v1/check", "{}", 405, "Allow", "POST"},
		{"POST", "/v1/checks", "{}", 404, "", ""},
		{"POST", "/", "{}", 404, "", ""},
		{"GET", "/healthz", "", 200, "", ""},
		{"HEAD", "/healthz", "", 200, "", ""},
		{"POST", "/healthz", "", 405, "Allow", "GET, HEAD"},
		{"GET", "/readyz", "", 503, "", ""},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
		checkAPI(s).ServeHTTP(w, r)
		if w.Code != c.status || c.header != "" && w.Header().Get(c.header) != c.value {
			t.Errorf("%s %s %.30s: %d %v", c.method, c.path, c.body, w.Code, w.Header())
		}
	}
}

// Of a limit in shadow that the store did not decide about, nothing is told.
func TestCheckWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := check(newServer(t, mixed, over(failing())), `{"operation":"both"}`)
		var reply struct{ Decisions []struct{ Rule string } }
		if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || w.Code != 200 || len(reply.Decisions) != 3 || strings.Contains(w.Body.String(), "shadow") {
			t.Errorf("%d %s, %v", w.Code, w.Body, err)
		}
	})
}

// broken is a body that ends before its time.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// A body that breaks off is not read as if it were whole, whatever its size is said to be.
func TestCheckBrokenBody(t *testing.T) {
	s := newServer(t, `rules: []`)
	for _, length := range []int64{-1, 20, 5 << 10, 100 << 10} {
		for _, begin := range []string{"", "{}"} {
			w := httptest.NewRecorder()
			r := checkRequest("")
			r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(begin), broken{})), length
			checkAPI(s).ServeHTTP(w, r)
			if w.Code != 400 || !strings.Contains(w.Body.String(), "The body cannot be read.") {
				t.Errorf("%q of %d bytes: %d %s", begin, length, w.Code, w.Body)
			}
		}
	}
	if n := s.Holds()["bytes"]; n != 0 {
		t.Errorf("%d bytes are still taken", n)
	}
}

// Each call of the check API that is wrong is counted as a bad request, once.
func TestBadRequestsAreCounted(t *testing.T) {
	s := newServer(t, `rules: [{name: calls, key: '"all"', limits: [9 per 24h]}]`)
	want := 0
	for _, c := range []struct {
		path, body string
		n          int
	}{
		{"/v1/check", `{`, 1},
		{"/v1/check", `{"operations":"x"}`, 1},
		{"/v1/check?shadow=maybe", `{}`, 1},
		{"/v1/check", `[{"cost":-1},{"cost":"x"},{}]`, 2},
		{"/v1/check", strings.Repeat(" ", 3<<20), 1},
		{"/v1/check", `{"charge":true,"cost":1,"hold":"60s"}`, 1},
		{"/v1/check", `{}`, 0},
		{"/v1/settle", `{}`, 1},
		{"/v1/settle", `[{},{"hold":"x"},{}]`, 3},
		{"/v1/renew", `[`, 1},
		{"/v1/renew", `[]`, 0},
	} {
		callCheck(s, c.path, c.body)
		want += c.n
		if text := metrics(s); !strings.Contains(text, fmt.Sprintf("\nstint_bad_requests_total %d\n", want)) {
			i := strings.Index(text, "\nstint_bad_requests_total")
			t.Fatalf("%s %.60s: %s, want %d", c.path, c.body, text[i+1:i+40], want)
		}
	}
}

// A store that fails is told by readyz, and by a check only where a rule denies.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		s := newServer(t, generous, over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Hang: hangs.Load()} }}))
		ready := func() (int, string) {
			w := httptest.NewRecorder()
			checkAPI(s).ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
			return w.Code, strings.TrimSpace(w.Body.String())
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		s.Follow(ctx)
		if code, text := ready(); code != 200 || text != "ready" {
			t.Errorf("%d %s", code, text)
		}
		hangs.Store(true)
		time.Sleep(3 * time.Second) // nobody asks for anything all the while
		start := time.Now()
		if code, text := ready(); code != 200 || text != "ready, without the store" || time.Since(start) != 0 {
			t.Errorf("%d %s after %s", code, text, time.Since(start))
		}
		if w := check(s, `{"client":"192.0.2.1"}`); w.Code != http.StatusOK {
			t.Errorf("check: %d", w.Code)
		}
		hangs.Store(false)
		time.Sleep(3 * time.Second)
		if code, text := ready(); code != 200 || text != "ready" {
			t.Errorf("%d %s", code, text)
		}
	})
}
