package server_test

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
)

// left is how much of the budget, the first limit of s, is left for key "all".
func left(t testing.TB, s *server.Server, store stint.Store) int64 {
	t.Helper()
	limit := s.Rules().Rules[0].Limits[0]
	d, err := stint.NewLimiter(store).Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "all", Limit: limit, Peek: true}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// A client that reads a stream and leaves before the end, which would have said what it used, is
// charged about what it has read, however little was estimated.
func TestAttackLeavingBeforeTheUsage(t *testing.T) {
	const tokens = 5000
	chunk := `data: {"id":"chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz","object":"chat.completion.chunk","created":1760000000,"model":"m","choices":[{"index":0,"delta":{"content":" the"},"finish_reason":null}]}` + "\n\n"
	delta := "event: content_block_delta\ndata: " + `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" the"}}` + "\n\n"
	for _, c := range []struct {
		about, rule, begin, each string
		zipped                   bool
	}{
		{"openai", "tokens: {api: openai, default_output: 10}", "", chunk, false},
		{"openai, given back", "tokens: {api: openai, default_output: 10}, unsettled: give_back", "", chunk, false},
		{"openai, zipped", "tokens: {api: openai, default_output: 10}", "", chunk, true},
		{"anthropic", "tokens: {api: anthropic, default_output: 10}", "event: message_start\ndata: {\"message\": {\"usage\": {\"input_tokens\": 70, \"output_tokens\": 1}}}\n\n", delta, false},
		{"anthropic, zipped", "tokens: {api: anthropic, default_output: 10}", "event: message_start\ndata: {\"message\": {\"usage\": {\"input_tokens\": 70, \"output_tokens\": 1}}}\n\n", delta, true},
	} {
		t.Run(c.about, func(t *testing.T) {
			var m stint.Memory
			s := newServer(t, `rules: [{name: r, key: '"all"', `+c.rule+`, limits: [10000000 per 24h fixed_window hold]}]`, over(&m), everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				var out io.Writer = w
				flush := func() {}
				if c.zipped {
					w.Header().Set("Content-Encoding", "gzip")
					z := gzip.NewWriter(w)
					out, flush = z, func() { z.Flush() }
				}
				_, _ = io.WriteString(out, c.begin+strings.Repeat(c.each, tokens))
				flush()
				w.(http.Flusher).Flush()
				fmt.Fprint(w, "")
				<-r.Context().Done()
			})))
			g := start(t, s)
			conn, err := net.Dial("tcp", g.gateway)
			if err != nil {
				t.Fatal(err)
			}
			body := `{"stream":true,"messages":[]}`
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			var in io.Reader = resp.Body
			if c.zipped {
				if in, err = gzip.NewReader(resp.Body); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := io.CopyN(io.Discard, in, int64(len(c.begin)+tokens*len(c.each))); err != nil {
				t.Fatal(err)
			}
			conn.Close()
			wantHeld(t, s, &m, 0)
			if charged := 10_000_000 - left(t, s, &m); charged < 5*tokens || charged > 5*5*tokens {
				t.Errorf("%d charged for about %d tokens of output", charged, tokens)
			}
		})
	}
}

// A request whose body limits its output twice is refused: the upstream could take the other.
func TestAttackTwoLimitsOfOutput(t *testing.T) {
	reached := false
	var m stint.Memory
	s := newServer(t, `rules: [{name: r, key: '"all"', tokens: anthropic, limits: [10000 per 24h fixed_window hold]}]`, over(&m),
		everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) { reached = true })))
	g := start(t, s)
	for _, body := range []string{`{"max_tokens":1,"max_tokens":64000}`, `{"max_tokens":64000,"max_tokens":1}`, `{"max_tokens":1,"Max_Tokens":64000}`, `{"max_tokens":1,"max_tok\u0065ns":64000}`} {
		resp, err := http.Post("http://"+g.gateway, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 400 || reached {
			t.Errorf("%s: %s", body, resp.Status)
		}
	}
	if got := left(t, s, &m); got != 10_000 {
		t.Errorf("%d left", got)
	}
}
