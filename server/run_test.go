package server_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// refuses tells whether nobody listens at addr, which may take a moment to be so.
func refuses(addr string) bool {
	return await.So(func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

// A Server that stops finishes the requests in flight of both APIs, takes
// nothing new, and leaves nothing behind.
func TestGracefulShutdown(t *testing.T) {
	before := runtime.NumGoroutine()
	came, goOn := make(chan bool, 2), make(chan bool)
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		came <- true
		<-goOn
		fmt.Fprint(w, "finished")
	})
	// The check's store waits, too.
	var waits atomic.Bool
	store := &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault {
		if waits.Swap(false) {
			came <- true
			<-goOn
		}
		return limittest.Fault{}
	}}
	g := start(t, newServer(t, generous, over(store), everythingTo(up)))
	atGateway, atCheck := dial(t, g.gateway), dial(t, g.check)
	fmt.Fprint(atGateway, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-came
	waits.Store(true)
	fmt.Fprint(atCheck, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n"+`{"client":"192.0.2.1"}`)
	<-came
	stopped := make(chan error)
	go func() { stopped <- g.stop() }()
	if !refuses(g.gateway) || !refuses(g.check) || !refuses(g.admin) {
		t.Error("it still listens")
	}
	select {
	case err := <-stopped:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	close(goOn)
	if got := atGateway.answer(t, "GET"); got.StatusCode != 200 || got.body != "finished" {
		t.Errorf("gateway: %s %s", got.Status, got.body)
	}
	if got := atCheck.answer(t, "POST"); got.StatusCode != 200 || !got.Close {
		t.Errorf("check: %s %s", got.Status, got.body)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run: %v", err)
	}
	atGateway.Close()
	atCheck.Close()
	if !await.So(func() bool { return runtime.NumGoroutine() <= before+3 }) { // the upstream's
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
	}
}

// A connection that was upgraded has no end to wait for.
func TestShutdownCutsUpgraded(t *testing.T) {
	g := start(t, newServer(t, generous, everythingTo(upstream(t, echo))))
	c := dial(t, g.gateway)
	defer c.Close()
	if got := c.send(t, "GET", "/chat", "Connection: Upgrade", "Upgrade: websocket"); got.StatusCode != 101 {
		t.Fatal(got.Status)
	}
	if err := g.stop(); err != nil {
		t.Error(err)
	}
	if line, err := c.ReadString('\n'); err == nil {
		t.Errorf("heard %q", line)
	}
}

// On connections that are still open, readyz says that it is no more.
func TestStoppingIsNotReady(t *testing.T) {
	goOn, came := make(chan bool), make(chan bool)
	up := upstream(t, func(http.ResponseWriter, *http.Request) { came <- true; <-goOn })
	s := newServer(t, generous, everythingTo(up))
	g := start(t, s)
	c := dial(t, g.gateway)
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-came
	stopped := make(chan error)
	go func() { stopped <- g.stop() }()
	ready := func() string {
		w := httptest.NewRecorder()
		checkAPI(s).ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		return fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()))
	}
	if !await.So(func() bool { return ready() == "503 stopping" }) {
		t.Error(ready())
	}
	close(goOn)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A listener that fails ends all servers, and says which it was.
func TestListenerFails(t *testing.T) {
	gateway, check, admin := listen(t), listen(t), listen(t)
	gateway.Close()
	err := newServer(t, generous).Run(context.Background(), server.Listeners{Gateway: gateway, Check: check, Admin: admin})
	if !errors.Is(err, net.ErrClosed) || !strings.HasPrefix(err.Error(), "listener "+gateway.Addr().String()+": ") {
		t.Error(err)
	}
	if !refuses(check.Addr().String()) {
		t.Error("the check API still listens")
	}
	if !refuses(admin.Addr().String()) {
		t.Error("the admin API still listens")
	}
}

// Without a gateway there is the check API alone.
func TestCheckAlone(t *testing.T) {
	check := listen(t)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- newServer(t, generous).Run(ctx, server.Listeners{Check: check}) }()
	if got := send(t, check.Addr().String(), "GET", "/readyz"); got.StatusCode != 200 || got.body != "ready\n" {
		t.Errorf("%s %s", got.Status, got.body)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestRunBeside runs another server, whose last calls are decided while Run stops, and one that fails.
func TestRunBeside(t *testing.T) {
	set, err := rules.Parse("rules.yaml", []byte("rules: [{name: all, limits: [2 per 1h]}]"))
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(server.Config{Rules: set})
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	err = s.Run(ctx, server.Listeners{}, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		_, last = s.Decide(context.Background(), &rules.Input{}, time.Time{})
		return nil
	})
	if err != nil || last != nil {
		t.Errorf("%v; the last call: %v", err, last)
	}
	failed := errors.New("no listener")
	s = server.New(server.Config{Rules: set})
	ended := false
	err = s.Run(t.Context(), server.Listeners{}, func(context.Context) error { return failed }, func(ctx context.Context) error {
		<-ctx.Done() // because of the other
		ended = true
		return nil
	})
	if !errors.Is(err, failed) || !ended {
		t.Errorf("%v, and the other ended: %v", err, ended)
	}
}
