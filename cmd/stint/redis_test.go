package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
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
