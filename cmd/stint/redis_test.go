package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
)

// checkedBy asks for a check and returns its status, and who decided.
func checkedBy(t *testing.T, s *served, body string) (status int, by string) {
	t.Helper()
	resp, err := http.Post(s.check+"/v1/check", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case strings.Contains(string(text), `"by":"local"`):
		return resp.StatusCode, "local"
	case strings.Contains(string(text), `"by":"policy"`):
		return resp.StatusCode, "policy"
	}
	return resp.StatusCode, "store"
}

// quiet reads away what s says, so that it never waits for someone to read it.
func quiet(s *served) {
	go func() {
		for range s.log.lines {
		}
	}()
}

// A name that leads to another primary is followed, though the one that was demoted keeps
// its connections and answers on them: by what is decided, and by what is heard.
func TestAttackDemotedPrimary(t *testing.T) {
	first, second := redistest.Start(t), redistest.Start(t)
	name := redistest.StartProxy(t, first.Addr)
	s := serving(t, "--limit", "1000 per 1h", "--store", name.URL())
	quiet(s)
	const ann = `{"client":"192.0.2.1"}`
	until(t, "the store decides", 5*time.Second, func() bool { _, by := checkedBy(t, s, ann); return by == "store" })

	demote(t, first, second)
	name.Point(second.Addr)
	began := time.Now()
	until(t, "a check is decided without the store", 10*time.Second, func() bool { _, by := checkedBy(t, s, ann); return by == "local" })
	until(t, "the new primary decides", 20*time.Second, func() bool { _, by := checkedBy(t, s, ann); return by == "store" })
	t.Logf("the new primary decides after %s", time.Since(began))
	if keys, err := second.Do(t, "KEYS", "stint:{[0-9]*").AsStrSlice(); err != nil || len(keys) == 0 {
		t.Errorf("the new primary has counted nothing: %v, %v", keys, err)
	}
	until(t, "it listens there", 10*time.Second, func() bool { return listeners(t, second) > 0 })
	if text := s.log.String(); !strings.Contains(text, "READONLY") || !strings.Contains(text, "made anew") {
		t.Errorf("the log does not tell:\n%s", text)
	}
}

// demote makes a primary the replica of another one.
func demote(t *testing.T, was, now *redistest.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(now.Addr)
	if err != nil {
		t.Fatal(err)
	}
	was.Do(t, "REPLICAOF", host, port)
}

// listeners is how many hear on a server what is undone.
func listeners(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	reply, err := s.Do(t, "PUBSUB", "NUMSUB", "stint:{undone}").ToArray()
	if err != nil || len(reply) != 2 {
		t.Fatal(fmt.Sprint(reply, err))
	}
	n, err := reply[1].AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A password and certificates that are changed in their files are taken without a check
// that the store does not decide; those that Redis refuses are told, and change nothing,
// though connections are made again. What expires soon is told.
func TestAttackCredentialsRotate(t *testing.T) {
	t.Setenv("STINT_TOKEN", "")
	ca, cert, key := redistest.Certificate(t)
	redis := redistest.Start(t, "--tls-port", "0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca,
		"--user", "app", "on", ">first-secret", "~*", "&*", "+@all")
	address := redis.ListenTLS(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, from string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		put(t, file(name), string(text))
	}
	write("ca", ca)
	write("cert", cert)
	write("key", key)
	put(t, file("password"), "first-secret\n")
	put(t, file("stint.yaml"), "server: {decision_timeout: 5s}\nrules: [{name: all, key: client.ip, limits: [1000000 per 1h]}]\n")
	s := serving(t, "--config", file("stint.yaml"), "--store", "rediss://app@"+address+"?server_name=localhost&password_file="+file("password")+
		"&ca="+file("ca")+"&cert="+file("cert")+"&key="+file("key"))
	quiet(s)
	stays := func(when string) {
		t.Helper()
		for range 50 {
			if status, by := checkedBy(t, s, `{"client":"192.0.2.1"}`); status != 200 || by != "store" {
				t.Fatalf("%s: %d, by %s", when, status, by)
			}
		}
	}
	connections := func() (ids string) {
		text, err := redis.Do(t, "CLIENT", "LIST").ToString()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			if strings.Contains(line, "user=app") && !strings.Contains(line, "sub=1") {
				ids += line[:strings.Index(line, " ")] + " "
			}
		}
		return ids
	}
	tells := func(text string) func() bool {
		return func() bool { stays(text); return strings.Contains(s.log.String(), text) }
	}
	stays("at first")
	until(t, "it tells of expiry", 5*time.Second, tells("expires soon"))
	metric := func(of string) bool {
		resp, err := http.Get(s.check + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return strings.Contains(string(text), `stint_certificate_expiry_timestamp_seconds{listener="store `+of+`"}`)
	}
	until(t, "the metric tells of expiry", 15*time.Second, func() bool { return metric("client") && metric("ca") && metric("server") })

	// A password that Redis does not know, and a certificate that it does not trust.
	do := calling(t, s.admin)
	otherCA, other, otherKey := redistest.Certificate(t)
	for of, wrong := range map[string]func(){
		"password":    func() { put(t, file("password"), "wrong-secret\n") },
		"certificate": func() { write("cert", other); write("key", otherKey) },
		"authority":   func() { write("ca", otherCA) },
	} {
		wrong()
		until(t, "it tells that the "+of+" is refused", 10*time.Second, func() bool {
			stays("with a wrong " + of)
			_, text := do("status")
			return strings.Contains(text, "ST023")
		})
		redis.Do(t, "CLIENT", "KILL", "USER", "app")
		until(t, "it connects again", 10*time.Second, func() bool { _, by := checkedBy(t, s, `{"client":"192.0.2.1"}`); return by == "store" })
		stays("connected again with a wrong " + of)
		put(t, file("password"), "first-secret\n")
		write("ca", ca)
		write("cert", cert)
		write("key", key)
		until(t, "all is well", 10*time.Second, func() bool { _, text := do("status"); return !strings.Contains(text, "ST023") })
	}

	before := connections()
	if before == "" {
		t.Fatal("it has no connections")
	}
	redis.Do(t, "ACL", "SETUSER", "app", ">second-secret")
	put(t, file("password"), "second-secret\n")
	until(t, "all connections are new", 10*time.Second, func() bool {
		stays("while the password rotates")
		now := connections()
		for id := range strings.FieldsSeq(before) {
			if strings.Contains(now+" ", id+" ") {
				return false
			}
		}
		return now != ""
	})
	redis.Do(t, "ACL", "SETUSER", "app", "<first-secret")
	redis.Do(t, "CLIENT", "KILL", "USER", "app")
	until(t, "it connects by the new one", 10*time.Second, func() bool { _, by := checkedBy(t, s, `{"client":"192.0.2.1"}`); return by == "store" })
	for _, secret := range []string{"first-secret", "second-secret", "wrong-secret"} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log tells the password:\n%s", s.log)
		}
	}
}
