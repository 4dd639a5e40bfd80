package redislimit_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// heardWithin is how soon a change must be heard of; that is generous, for slow
// machines, and less than any caller would poll in vain.
const heardWithin = 10 * time.Second

// watch watches until the test ends, and gives what was heard.
func watch(t *testing.T, d *redislimit.Documents) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	heard, done := make(chan struct{}, 1000), make(chan struct{})
	go func() { d.Watch(ctx, func() { heard <- struct{}{} }); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return heard
}

func hears(t *testing.T, heard <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-heard:
	case <-time.After(heardWithin):
		t.Fatalf("%s was not heard of", what)
	}
}

func drain(heard <-chan struct{}) {
	for {
		select {
		case <-heard:
		default:
			return
		}
	}
}

func TestWatch(t *testing.T) {
	server := redistest.Start(t)
	watcher, writer := open(t, server.URL()).Documents(), open(t, server.URL()).Documents()
	foreign := open(t, server.URL()+"?namespace=stint2").Documents()
	heard := watch(t, watcher)
	hears(t, heard, "the connection")
	began := time.Now()
	write(t, writer, "rules", 1, "")
	hears(t, heard, "a write")
	t.Logf("heard after %s", time.Since(began))
	for number := int64(2); number <= 20; number++ {
		write(t, writer, "rules", number, "")
		hears(t, heard, "a later write")
	}
	// What writes nothing is told to nobody, nor what others write.
	if ok, err := writer.Write(t.Context(), "rules", 7, nil); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
	write(t, foreign, "rules", 1, "")
	select {
	case <-heard:
		t.Error("something was heard of that does not concern us")
	case <-time.After(100 * time.Millisecond):
	}
	for range 3 {
		if n, err := server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub").AsInt64(); err != nil || n != 1 {
			t.Fatalf("%d connections killed, %v; want the watcher's", n, err)
		}
		hears(t, heard, "a connection made again")
		drain(heard)
		n, _, err := writer.Newest(t.Context(), "rules")
		if err != nil {
			t.Fatal(err)
		}
		write(t, writer, "rules", n+1, "")
		hears(t, heard, "a write after the connection was killed")
	}
	server.Restart(t)
	hears(t, heard, "the server's return")
	drain(heard)
	var ok bool
	var err error
	for range 100 { // the first calls may find the old connection closed
		if ok, err = writer.Write(t.Context(), "rules", 1, nil); err == nil {
			break
		}
	}
	if !ok || err != nil {
		t.Fatalf("%t, %v", ok, err)
	}
	hears(t, heard, "a write after a restart")
}

func TestWatchCluster(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	began := time.Now()
	heard := watch(t, s.Documents())
	hears(t, heard, "the connection")
	t.Logf("connected after %s", time.Since(began))
	for _, name := range strings.Fields("a b c d e f g h") { // on all nodes
		write(t, s.Documents(), name, 1, "")
		hears(t, heard, "a write of "+name)
	}
}

// A client of the user's own cannot listen: Watch waits, and that is all.
func TestWatchWithoutListening(t *testing.T) {
	s, err := redislimit.New(t.Context(), fake(func([]string) (any, error) { return "redis_version:7.0.0\r\n", nil }), redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	s.Documents().Watch(ctx, func() { t.Error("something was heard") })
	if ctx.Err() == nil {
		t.Error("Watch returned before its context was done")
	}
}
