package main

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/redistest"
)

// A Redis that refuses connections because it has as many as maxclients, or because it
// wants a certificate, is told as such, in the log and by stint status, and requests are
// decided all the same.
func TestAttackRedisRefuses(t *testing.T) {
	ca, cert, key := redistest.Certificate(t)
	for name, c := range map[string]struct {
		prepare func(*testing.T, *redistest.Server) (url string)
		want    string
	}{
		"no room": {func(t *testing.T, r *redistest.Server) string {
			c, err := net.Dial("tcp", r.Addr) // which takes the one place
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if _, err := io.WriteString(c, "CONFIG SET maxclients 1\r\n"); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(c).ReadString('\n'); line != "+OK\r\n" {
				t.Fatalf("maxclients: %q, %v", line, err)
			}
			return r.URL()
		}, "the server has as many clients as its maxclients allows"},
		"no certificate": {func(t *testing.T, r *redistest.Server) string {
			return "rediss://" + strings.Replace(r.ListenTLS(t), "127.0.0.1", "localhost", 1) + "?ca=" + ca
		}, "the server requires a client certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
			decidesWithout(t, c.prepare(t, redis), c.want)
		})
	}
}
