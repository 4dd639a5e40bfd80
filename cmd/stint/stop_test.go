package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	ossignal "os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
)

// slowUpstream says on came which path it was asked for, and answers nothing until
// the test ends, but for the beginning of /stream.
func slowUpstream(t *testing.T) (url string, came chan string) {
	came = make(chan string)
	done := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/chat" {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			came <- r.URL.Path
			<-done
			return
		}
		if r.URL.Path == "/stream" {
			fmt.Fprint(w, "begun\n")
			w.(http.Flusher).Flush()
		}
		came <- r.URL.Path
		<-done
	}))
	t.Cleanup(up.Close)
	t.Cleanup(func() { close(done) })
	return up.URL, came
}

// stopping runs stint serve before an upstream with these requests under way.
func stopping(t *testing.T, timeout string, paths ...string) (*child, *served, []net.Conn) {
	url, came := slowUpstream(t)
	file := configured(t, "server: {stop_timeout: "+timeout+"}\nrules: [{name: client, key: client.ip, limits: [100 per 1m]}]\n")
	c, s := process(t, "--config", file, "--upstream", url, "--admin-listen", "off")
	var conns []net.Conn
	for _, path := range paths {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.gateway, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		upgrade := ""
		if path == "/chat" {
			upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
		}
		fmt.Fprintf(conn, "GET %s?token=geheim HTTP/1.1\r\nHost: example.com\r\n%s\r\n", path, upgrade)
		conns = append(conns, conn)
		<-came
	}
	return c, s, conns
}

// Requests that do not end are cut off when the time for them is over. That is no
// failure, and one line says what they were.
func TestServeCutsOff(t *testing.T) {
	c, s, conns := stopping(t, "300ms", "/slow", "/stream", "/chat")
	c.signal(t, syscall.SIGTERM)
	resp, err := http.ReadResponse(bufio.NewReader(conns[0]), nil)
	if err != nil || resp.StatusCode != 504 {
		t.Errorf("what had no answer: %v, %v", resp, err)
	}
	if resp, err = http.ReadResponse(bufio.NewReader(conns[1]), nil); err != nil || resp.StatusCode != 200 {
		t.Fatalf("what had begun to be answered: %v, %v", resp, err)
	}
	if body, err := io.ReadAll(resp.Body); string(body) != "begun\n" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("its body: %q, %v", body, err) // which the client sees to be cut off
	}
	if _, err := io.Copy(io.Discard, conns[2]); err != nil {
		t.Errorf("what was upgraded: %v", err)
	}
	await.Until(t, "it tells of them", func() bool { return strings.Contains(s.log.String(), "cut off") })
	c.endsWell(t)
	_, after, _ := strings.Cut(s.log.String(), "cut off")
	for _, want := range []string{"requests=2 upgraded_connections=1 stop_timeout=300ms", "GET example.com /slow", "GET example.com /stream", "GET example.com /chat"} {
		if !strings.Contains(after, want) {
			t.Errorf("%q is not in\n%s", want, s.log)
		}
	}
	if strings.Count(after, "\n") != 1 || strings.Contains(s.log.String(), "geheim") {
		t.Errorf("it said\n%s", s.log)
	}
}

// A second signal ends it at once, whatever is open.
func TestServeStopsAtOnce(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		c, s, _ := stopping(t, "1h", "/slow")
		c.signal(t, signal)
		await.Until(t, "it stops", func() bool { return !listens(s.gateway) })
		c.signal(t, signal)
		state := c.wait(t)
		ended := state.Sys().(syscall.WaitStatus).Signal() == signal
		if ossignal.Ignored(signal) { // by the tests, as where a shell has started them in the background, and so by the program
			ended = state.ExitCode() == 1
		}
		if !ended {
			t.Errorf("after a second %s: %s", signal, state)
		}
	}
}
