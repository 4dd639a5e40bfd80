package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
			admin := r.Client(t)
			if err := admin.Do(t.Context(), admin.B().Arbitrary("CONFIG", "SET", "maxclients", "1").Build()).Error(); err != nil {
				t.Fatal(err)
			}
			return r.URL()
		}, "the server has as many clients as its maxclients lets in"},
		"no certificate": {func(t *testing.T, r *redistest.Server) string {
			return "rediss://" + strings.Replace(r.ListenTLS(t), "127.0.0.1", "localhost", 1) + "?ca=" + ca
		}, "the server wants a certificate to be shown"},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
			s := serving(t, "--limit", "2 per 1h", "--store", c.prepare(t, redis))
			go func() {
				for range s.log.lines { // or it would wait for someone to read what it says
				}
			}()
			for i, want := range []int{200, 200, 429} {
				if code := checked(t, s, `{"client":"192.0.2.1"}`); code != want {
					t.Errorf("check %d: %d, want %d", i, code, want)
				}
			}
			_, out, errs := call("", "status", "--admin", s.admin)
			if !strings.Contains(out, "DOES NOT ANSWER") || !strings.Contains(out, c.want) {
				t.Errorf("status does not say %q:\n%s%s", c.want, out, errs)
			}
			until(t, fmt.Sprintf("the log says %q:\n%s", c.want, s.log), 5*time.Second, func() bool { return strings.Contains(s.log.String(), c.want) })
		})
	}
}
