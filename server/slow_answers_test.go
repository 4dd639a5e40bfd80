package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// What a request is charged however it ends without its whole answer: docs/holds.md has these rows.
func TestWhatSlowAnswersCost(t *testing.T) {
	const body = `{"max_tokens":20,"messages":[]}`            // 8 input tokens by its length, and 5 * 20 of output
	const jsonPart = `{"choices":["0123456789012345678901234` // 10 tokens by its length
	chunk := `data: {"id":"c","choices":[{"i":0}]}` + "\n\n"
	begin := `data: {"type":"message_start","message":{"usage":{"input_tokens":70,"output_tokens":1}}}` + "\n\n"
	text := begin + strings.Repeat(`data: {"type":"content_block_delta","delta":{"text":" the"}}`+"\n\n", 3)
	total := `data: {"usage":{"total_tokens":11}}` + "\n\n"
	streams := map[string]string{"openai": strings.Repeat(chunk, 3), "anthropic": text, "cost_after": total}
	type costs struct{ keep, giveBack int64 }
	known := func(n int64) costs { return costs{n, n} }
	none, held := known(0), costs{108, 0}
	halfStream := map[string]costs{
		"openai":     {108, 8 + 5*3},
		"anthropic":  known(70 + 5*int64(len(text)/50)),
		"cost_after": known(11),
	}
	tokensCost := func(c, other costs) map[string]costs {
		return map[string]costs{"openai": c, "anthropic": c, "cost_after": other}
	}
	silent := tokensCost(held, costs{100, 0})
	type timeouts struct{ upstream, response time.Duration }
	for _, c := range []struct {
		about  string
		path   string
		limits timeouts
		leaves bool // the client, when it has read all that it gets
		status int  // 0: there is no response
		want   map[string]costs
	}{
		{"no first byte by upstream_timeout", "/silent", timeouts{upstream: 100 * time.Millisecond}, false, 504, silent},
		{"no first byte by response_timeout", "/silent", timeouts{response: 100 * time.Millisecond}, false, 504, silent},
		{"a stream is broken off by response_timeout", "/stream", timeouts{response: time.Second}, false, 200, halfStream},
		{"a whole answer is broken off by response_timeout", "/whole", timeouts{response: time.Second}, false, 200, tokensCost(costs{108, 8 + 5*9}, costs{100, 0})},
		{"the client leaves a stream", "/stream", timeouts{}, true, 200, halfStream},
		{"the client leaves before the first byte", "/silent", timeouts{}, true, 0, tokensCost(costs{108, 8}, costs{100, 0})},
		{"the upstream hangs up", "/hangs-up", timeouts{}, false, 502, silent},
		{"the upstream refuses the connection", "/refused", timeouts{}, false, 502, tokensCost(none, none)},
		{"the upstream answers 504", "/504", timeouts{}, false, 504, tokensCost(none, costs{100, 0})},
	} {
		for by, want := range c.want {
			rule := "tokens: " + by
			if by == "cost_after" {
				rule = "cost: 100, cost_after: response.json.usage.total_tokens"
			}
			for unsettled, want := range map[string]int64{"keep": want.keep, "give_back": want.giveBack} {
				t.Run(strings.Join([]string{c.about, by, unsettled}, ", "), func(t *testing.T) {
					t.Parallel()
					begun := make(chan bool, 1)
					up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						switch r.URL.Path {
						case "/504":
							w.Header().Set("Content-Type", "application/json")
							w.WriteHeader(504)
							fmt.Fprint(w, `{"error":{}}`)
							return
						case "/hangs-up":
							panic(http.ErrAbortHandler)
						case "/stream":
							w.Header().Set("Content-Type", "text/event-stream")
							fmt.Fprint(w, streams[by])
							w.(http.Flusher).Flush()
						case "/whole":
							w.Header().Set("Content-Type", "application/json")
							w.Header().Set("Content-Length", "1000")
							fmt.Fprint(w, jsonPart)
							w.(http.Flusher).Flush()
						}
						begun <- true
						<-r.Context().Done()
					})
					var m stint.Memory
					s := newServer(t, `rules: [{name: r, key: '"all"', `+rule+`, unsettled: `+unsettled+`, limits: [1000000 per 24h fixed_window hold]}]`,
						over(&m), routes(config.Route{Path: "/refused", Upstream: unreachable(t)},
							config.Route{Path: "/", Upstream: up, UpstreamTimeout: &c.limits.upstream, ResponseTimeout: &c.limits.response}))
					g := start(t, s)
					conn, err := net.Dial("tcp", g.gateway)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.path, len(body), body)
					if c.leaves {
						<-begun
					}
					if c.status > 0 {
						resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
						switch {
						case c.path == "/whole" && err != nil: // what net/http had not sent yet is lost
						case err != nil || resp.StatusCode != c.status:
							t.Fatalf("%+v, %v", resp, err)
						case c.leaves:
							_, _ = io.CopyN(io.Discard, resp.Body, int64(len(streams[by])))
						default:
							got, err := io.ReadAll(resp.Body)
							if whole := c.status >= 500; whole != (err == nil) {
								t.Errorf("a client reads %q, %v", got, err)
							}
						}
					}
					if c.leaves {
						conn.Close()
					}
					wantHeld(t, s, &m, 0)
					if got := usedBy(t, s, &m); got != want {
						t.Errorf("%d charged, want %d", got, want)
					}
				})
			}
		}
	}
}

// A response that takes longer than response_timeout is broken off for every client, its request to the
// upstream is cancelled, and the log says so once. A route's own value counts.
func TestResponseTimeout(t *testing.T) {
	t.Parallel()
	cancelled := make(chan string, 10)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/quick" {
			fmt.Fprint(w, "quick")
			return
		}
		if r.URL.Path != "/silent" {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
		}
		select {
		case <-r.Context().Done():
			cancelled <- r.URL.Path
		case <-time.After(2 * time.Second):
			fmt.Fprint(w, "data: 2\n\n")
		}
	})
	var log logged
	long, own := time.Duration(0), 900*time.Millisecond
	g := start(t, newServer(t, generous, logTo(&log), routes(
		config.Route{Path: "/", Upstream: up},
		config.Route{Path: "/own", Upstream: up, ResponseTimeout: &own},
		config.Route{Path: "/any", Upstream: up, ResponseTimeout: &long},
	), func(c *server.Config) { c.Settings.ResponseTimeout = time.Second }))
	plain, h2 := new(http.Transport), &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	for name, tr := range map[string]*http.Transport{"HTTP/1.1": plain, "HTTP/2.0": h2} {
		defer tr.CloseIdleConnections()
		get := func(path string) (status int, body string, err error) {
			resp, err := (&http.Client{Transport: tr}).Get("http://" + g.gateway + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if resp.Proto != name {
				t.Errorf("%s, want %s", resp.Proto, name)
			}
			return resp.StatusCode, string(b), err
		}
		for range 3 { // on one connection
			if code, body, err := get("/quick"); code != 200 || body != "quick" || err != nil {
				t.Errorf("%s: a quick one: %d %q, %v", name, code, body, err)
			}
		}
		for _, path := range []string{"/slow", "/own"} {
			if code, body, err := get(path); code != 200 || body != "data: 1\n\n" || err == nil {
				t.Errorf("%s: %s: %d %q, %v", name, path, code, body, err)
			}
			if got := <-cancelled; got != path {
				t.Errorf("%s: %s was cancelled", name, got)
			}
		}
		if code, body, err := get("/silent"); code != 504 || !strings.Contains(body, "The upstream did not answer in time.") || err != nil {
			t.Errorf("%s: a silent one: %d %q, %v", name, code, body, err)
		}
		<-cancelled
		if code, body, err := get("/any"); code != 200 || body != "data: 1\n\ndata: 2\n\n" || err != nil {
			t.Errorf("%s: any time: %d %q, %v", name, code, body, err)
		}
	}
	text := log.taken()
	for _, want := range []string{"upstream did not end its response in time\" route=/ ", "upstream did not end its response in time\" route=/own ", "upstream did not answer in time\" route=/ ", "the response took longer than response_timeout"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "level=WARN"); n != 3 {
		t.Errorf("%d lines, want one of each kind and route:\n%s", n, text)
	}
}

// response_timeout is for responses: a connection that was upgraded before goes on.
func TestResponseTimeoutSparesUpgrades(t *testing.T) {
	t.Parallel()
	timeout := 300 * time.Millisecond
	g := start(t, newServer(t, generous, routes(config.Route{Path: "/", ResponseTimeout: &timeout, Upstream: upstream(t, echo)})))
	conn := dial(t, g.gateway)
	defer conn.Close()
	if got := conn.send(t, "GET", "/", "Connection: Upgrade", "Upgrade: websocket"); got.StatusCode != 101 {
		t.Fatal(got.Status)
	}
	time.Sleep(3 * timeout)
	fmt.Fprint(conn, "ping\n")
	if line, err := conn.ReadString('\n'); line != "ping\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// A call of gRPC that takes too long ends with a status: before its first message, and after it.
func TestResponseTimeoutOfGRPC(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		begins bool
		want   grpccodes.Code
	}{{false, grpccodes.Unavailable}, {true, grpccodes.DeadlineExceeded}} {
		var ended atomic.Bool
		u, _ := longUpstream(t, func(s grpc.ServerStream) error {
			defer ended.Store(true)
			if c.begins {
				if err := sendText(s, "one"); err != nil {
					return err
				}
			}
			<-s.Context().Done()
			return s.Context().Err()
		})
		timeout := time.Second
		stream, _ := streamsThrough(t, generous, u, func(config *server.Config) { config.Settings.ResponseTimeout = timeout })()
		var err error
		for err == nil {
			_, err = receiveText(stream)
		}
		if status.Code(err) != c.want {
			t.Errorf("begins %t: %v", c.begins, err)
		}
		if !await.So(ended.Load) {
			t.Errorf("begins %t: the upstream's call goes on", c.begins)
		}
	}
}

// A rule with tokens on a route that gives up before its client does is found: at the start where every
// route does, else by a request, and then once for each rule.
func TestImpatientRoutes(t *testing.T) {
	const tokens = `rules: [{name: chat, key: '"all"', tokens: openai, limits: [9000000 per 24h fixed_window hold]}, {name: off, mode: off, key: '"all"', tokens: openai, limits: [9 per 24h fixed_window hold]}, {name: rate, limits: [100 per 1m]}]`
	up := upstream(t, who("up"))
	d := func(d time.Duration) *time.Duration { return &d }
	route := func(path string, upstream, response *time.Duration) config.Route {
		return config.Route{Path: path, Upstream: up, UpstreamTimeout: upstream, ResponseTimeout: response}
	}
	for _, c := range []struct {
		about, rules string
		routes       []config.Route
		posts        string // the paths of requests
		first, then  string // codes of findings
		says         string
	}{
		{"the default", tokens, []config.Route{route("/", nil, nil)}, "/", "ST028", "ST028", `rule "chat" has tokens, and the route / waits only 1m for an answer to begin`},
		{"ten minutes", tokens, []config.Route{route("/", d(10*time.Minute), nil)}, "/", "", "", ""},
		{"any time", tokens, []config.Route{route("/", d(0), d(0))}, "/", "", "", ""},
		{"a short response", tokens, []config.Route{route("/", d(0), d(5*time.Minute))}, "/", "ST028", "ST028", "the route / breaks off an answer after 5m"},
		{"ten minutes for a response", tokens, []config.Route{route("/", d(0), d(10*time.Minute))}, "/", "", "", ""},
		{"a patient begin and a short response", tokens, []config.Route{route("/", d(10*time.Minute), d(5*time.Minute))}, "/", "ST028", "ST028", "breaks off an answer after 5m"},
		{"no tokens", generous, []config.Route{route("/", nil, nil)}, "/", "", "", ""},
		{"no routes", tokens, nil, "/", "", "", ""},
		{"some routes", tokens, []config.Route{route("/", nil, nil), route("/v1", d(0), nil)}, "/v1 /v1", "", "", ""},
		{"a request on such a route", tokens, []config.Route{route("/v1", nil, nil), route("/", d(0), nil)}, "/ /v1 /v1", "", "ST028", "the route /v1 waits only 1m"},
		{"a request that costs nothing", tokens, []config.Route{route("/v1", nil, nil), route("/", d(0), nil)}, "/v1/moderations", "", "", ""},
		{"a request without a body", tokens, []config.Route{route("/v1", nil, nil), route("/", d(0), nil)}, "GET/v1", "", "", ""},
	} {
		t.Run(c.about, func(t *testing.T) {
			var log logged
			s := newServer(t, c.rules, routes(c.routes...), logTo(&log))
			if got := codes(s); got != c.first {
				t.Errorf("at the start: %q, want %q", got, c.first)
			}
			g := start(t, s)
			for path := range strings.FieldsSeq(c.posts) {
				if path != "/v1/moderations" {
					path = strings.TrimSuffix(path, "/") + "/chat/completions"
				}
				var resp *http.Response
				var err error
				if path, isGet := strings.CutPrefix(path, "GET"); isGet {
					resp, err = http.Get("http://" + g.gateway + path)
				} else {
					resp, err = http.Post("http://"+g.gateway+path, "application/json", strings.NewReader(`{"messages":[]}`))
				}
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			if got := codes(s); got != c.then {
				t.Errorf("then: %q, want %q", got, c.then)
			}
			if c.says != "" && !strings.Contains(s.Findings()[0].Text, c.says) {
				t.Errorf("%s\nwant %q", s.Findings()[0], c.says)
			}
			logs := 0
			if c.first != c.then {
				logs = 1
			}
			if n := strings.Count(log.taken(), "code=ST028"); n != logs {
				t.Errorf("logged %d times, want %d", n, logs)
			}
		})
	}
}
