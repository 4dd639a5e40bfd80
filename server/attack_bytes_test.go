package server_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server/config"
)

// One client cannot take all the bytes that requests under way may keep, neither by the
// headers of requests to the gateway nor by bodies of checks: what others bring finds room.
func TestAttackShareOfBytes(t *testing.T) {
	hold := make(chan struct{})
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			<-hold
		}
	})
	defer close(hold)
	g := start(t, newServer(t, many, everythingTo(up), bounded(config.Instance{InFlight: 120, Bytes: 8 << 20})))
	few := "GET /hold HTTP/1.1\r\nHost: example.com\r\n\r\n"
	fromOne(t, g.gateway, 60, few) // headers of so many are not reckoned
	for _, n := range []int{8000, 1000, 100, 10, 1} {
		fromOne(t, g.gateway, 8, strings.TrimSuffix(few, "\r\n")+strings.Repeat("x:\r\n", n)+"\r\n")
	}
	if got := sendFrom(t, "127.0.0.3", g.gateway, "GET", "/", ""); got.StatusCode != 200 {
		t.Errorf("gateway: %s %s", got.Status, got.body)
	}
	body := `{"client":"192.0.2.1"` + strings.Repeat(" ", 100<<10) + "}"
	check := func() answer {
		return sendFrom(t, "127.0.0.3", g.check, "POST", "/v1/check", body, "Content-Type: application/json")
	}
	if got := check(); got.StatusCode != 200 {
		t.Errorf("check, while the gateway has a flood: %s %s", got.Status, got.body)
	}
	other := start(t, newServer(t, many, bounded(config.Instance{InFlight: 120, Bytes: 8 << 20})))
	fromOne(t, other.check, 60, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n"+strings.Repeat(" ", 150<<10))
	g = other
	if got := check(); got.StatusCode != 200 {
		t.Errorf("check, while another's bodies come: %s %s", got.Status, got.body)
	}
}

// fromOne sends a request by so many connections from 127.0.0.2, and waits until those that
// find no room have been answered.
func fromOne(t *testing.T, addr string, n int, request string) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	answered := make(chan struct{}, n)
	for range n {
		c, err := dialer.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			_, _ = io.WriteString(c, request)
			if n, _ := c.Read(make([]byte, 1)); n > 0 {
				answered <- struct{}{}
			}
		}()
	}
	for quiet := time.NewTimer(time.Second); ; {
		select {
		case <-answered:
			quiet.Reset(300 * time.Millisecond)
		case <-quiet.C:
			return
		}
	}
}
