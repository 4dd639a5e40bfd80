package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server/config"
)

// Many who send long checks slowly do not make an instance hold all of them: beyond the
// bytes under way, the answer is 503 with Retry-After, short checks and operators are
// answered on, and when the slow ones have left there is room again.
func TestAttackSlowBodies(t *testing.T) {
	const bytes = 32 << 20
	g := start(t, newServer(t, many, bounded(config.Instance{InFlight: 2000, Bytes: bytes})))
	piece := strings.Repeat(" ", 1<<20)
	before := inUse()
	var all []net.Conn
	defer func() {
		for _, c := range all {
			c.Close()
		}
	}()
	for range 100 { // 2 MiB each, but for the last byte: 200 MB, and more while it is read
		c, err := net.Dial("tcp", g.check)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(c, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", 2<<20)
		for range 2 {
			if _, err := io.WriteString(c, piece[:1<<20-1]); err != nil {
				break // it was refused already
			}
		}
	}
	refused := 0
	await.So(func() bool {
		_, n, _ := strings.Cut(send(t, g.check, "GET", "/metrics").body, `stint_overload_refusals_total{reason="bytes"} `)
		n, _, _ = strings.Cut(n, "\n")
		refused, _ = strconv.Atoi(n)
		return refused >= 9*len(all)/10
	})
	held := inUse() - before
	t.Logf("%d of %d refused, %d MiB held", refused, len(all), held>>20)
	if held > bytes || refused < 9*len(all)/10 {
		t.Errorf("%d MiB held, want at most %d; %d of %d refused", held>>20, bytes>>20, refused, len(all))
	}
	g.answersChecks(t, "slow bodies")
	for _, c := range all {
		c.Close()
	}
	long := `{"client":"192.0.2.1"` + strings.Repeat(" ", 500<<10) + "}"
	var got answer
	if !await.So(func() bool { // when it has seen that they left
		got = send(t, g.check, "POST", "/v1/check", "Host: localhost", "Content-Type: application/json", fmt.Sprintf("Content-Length: %d\r\n\r\n", len(long))+long)
		return got.StatusCode == http.StatusOK
	}) {
		t.Errorf("a long check when all have left: %s %s", got.Status, got.body)
	}
}

// answersChecks is answers of the listeners but the gateway's.
func (g *running) answersChecks(t *testing.T, during string) {
	t.Helper()
	if got := send(t, g.check, "POST", "/v1/check", "Host: localhost", "Content-Type: application/json", "Content-Length: 22\r\n\r\n"+`{"client":"192.0.2.1"}`); got.StatusCode != 200 {
		t.Errorf("check during %s: %s %s", during, got.Status, got.body)
	}
	if got := send(t, g.admin, "GET", "/v1/status", "Host: localhost"); got.StatusCode != 200 {
		t.Errorf("admin during %s: %s %s", during, got.Status, got.body)
	}
}
