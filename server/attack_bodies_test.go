package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
)

// The memory of a body that rules have read is free for others when the body has been passed on,
// however long the response goes on.
func TestAttackLongResponsesToLargeBodies(t *testing.T) {
	for _, include := range []bool{true, false} {
		var m stint.Memory
		s := newServer(t, fmt.Sprintf(`rules: [{name: r, key: '"all"', tokens: {api: openai, include_usage: %t}, max_hold: 1%%, limits: [100000000 per 24h fixed_window hold]}]`, include),
			over(&m), func(c *server.Config) { c.Settings.Instance.Bytes = 16 << 20 },
			everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(w, "data: %d\n\n", n)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})))
		g := start(t, s)
		body := `{"stream":true,"messages":["` + strings.Repeat("a", 500_000) + `"]}`
		want := len(body)
		if include {
			want += len(`"stream_options":{"include_usage":true},`)
		}
		for i := range 40 {
			conn, err := net.Dial("tcp", g.gateway)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != 200 {
				t.Fatalf("stream %d: %s", i, resp.Status)
			}
			line, err := bufio.NewReader(resp.Body).ReadString('\n')
			if err != nil || line != fmt.Sprintf("data: %d\n", want) {
				t.Fatalf("%q, %v, want %d bytes", line, err, want)
			}
		}
	}
}
