package redislimit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// A server that has no room for more connections is told from one that is not there: when
// a store is opened, and when it connects again.
func TestMaxClients(t *testing.T) {
	const want = "the server has as many clients as its maxclients allows"
	server := redistest.Start(t)
	s := open(t, server.URL())
	l := stint.NewLimiter(s)
	admin := server.Client(t)
	do := func(args ...string) {
		t.Helper()
		if err := admin.Do(t.Context(), admin.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	do("CONFIG", "SET", "maxclients", "1")
	for range 20 { // for reads and writes race
		if _, err := redislimit.Connect(t.Context(), server.URL(), redislimit.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("open: %v", err)
		}
	}
	do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	var errs []error
	for range 20 {
		if _, err := l.Allow(t.Context(), "a", stint.MustLimit("10 per 1h")); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("connects again: %v", err)
	}
	do("CONFIG", "SET", "maxclients", "1000")
	if _, err := l.Allow(t.Context(), "a", stint.MustLimit("10 per 1h")); err != nil {
		if _, err = l.Allow(t.Context(), "a", stint.MustLimit("10 per 1h")); err != nil {
			t.Errorf("with room again: %v", err)
		}
	}
}

// A server that wants a certificate, and another one than it is shown, says what to set.
func TestClientCertificateRefused(t *testing.T) {
	ca, cert, key := redistest.Certificate(t)
	_, strange, strangeKey := redistest.Certificate(t)
	server := redistest.Start(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
	url := "rediss://" + strings.Replace(server.ListenTLS(t), "127.0.0.1", "localhost", 1) + "?ca=" + ca
	for _, version := range []string{"TLSv1.3", "TLSv1.2"} {
		server.Do(t, "CONFIG", "SET", "tls-protocols", version)
		for _, c := range []struct{ more, want string }{
			{"", "(tls-auth-clients)"},
			{"", "cert=FILE and key=FILE"},
			{"&cert=" + strange + "&key=" + strangeKey, "the server does not accept this client certificate"},
		} {
			for range 20 { // for reads and writes race
				if _, err := redislimit.Connect(t.Context(), url+c.more, redislimit.Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("%s%s: %v", version, c.more, err)
				}
			}
		}
		s, err := redislimit.Connect(t.Context(), url+"&cert="+cert+"&key="+key, redislimit.Options{})
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		s.Close()
	}
}
