package main

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/redistest"
)

// A Redis that refuses connections because it has as many as maxclients, or because it
// wants a certificate, is told as such, in the log and by stint status, and requests are
// decided all the same.
func TestAttackRedisRefuses(t *testing.T) {
	t.Setenv("STINT_TOKEN", "")
	ca, cert, key := redistest.Certificate(t)
	for name, c := range map[string]struct {
		prepare func(*testing.T, *redistest.Server) (url string)
		want    string
	}{
		"no room": {func(t *testing.T, r *redistest.Server) string {
			r.Do(t, "CONFIG", "SET", "maxclients", "1")
			return r.URL()
		}, "the server has as many clients as its maxclients lets in"},
		"no certificate": {func(t *testing.T, r *redistest.Server) string {
			return "rediss://" + strings.Replace(r.ListenTLS(t), "127.0.0.1", "localhost", 1) + "?ca=" + ca
		}, "the server wants a certificate to be shown"},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
			decidesWithout(t, c.prepare(t, redis), c.want)
		})
	}
}
