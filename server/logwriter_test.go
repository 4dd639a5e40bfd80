package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
)

// stuck is a writer that blocks until it is let go, and then keeps what it is given.
type stuck struct {
	gate  chan struct{} // nil: it does not block
	fails bool

	mu   sync.Mutex
	text bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails {
		return 0, errors.New("broken pipe")
	}
	return s.text.Write(p)
}

func (s *stuck) set(fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
}

// Every line is written, in order, or counted as dropped and told of.
func TestLogWriterBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &stuck{gate: make(chan struct{})}
		w := server.NewLogWriter(to)
		line := func(i int) string { return fmt.Sprintf("%07d %s\n", i, strings.Repeat("x", 92)) }
		const lines = 50_000 // 5 MB
		refused := 0
		for i := range lines {
			if _, err := w.Write([]byte(line(i))); err != nil {
				refused++
			}
		}
		if refused == 0 || w.Dropped() != int64(refused) {
			t.Fatalf("%d lines refused, %d dropped", refused, w.Dropped())
		}
		close(to.gate)
		synctest.Wait()
		written := strings.SplitAfter(to.text.String(), "\n")
		if first := written[0]; first != line(0) {
			t.Errorf("the first line is %q", first)
		}
		telling, missing, n := 0, 0, 0
		for _, line := range written {
			if _, text, ok := strings.Cut(line, "missing here"); ok {
				telling++
				_, _ = fmt.Sscanf(text[strings.Index(text, "lines="):], "lines=%d\n", &n)
				missing += n
			}
		}
		if telling > 2 || missing != refused { // the first, when the writer had been given nothing before
			t.Errorf("%d lines tell of %d dropped ones; want %d", telling, missing, refused)
		}
		if n := len(written) - telling - 1; n != lines-refused { // less the empty text after the last
			t.Errorf("%d lines written, %d refused, of %d", n, refused, lines)
		}
		w.Close(time.Second)
		if _, err := w.Write([]byte("late\n")); err == nil {
			t.Error("a line was taken after Close")
		}
	})
}

// A stop waits for a log that is read, and not for long for one that is not.
func TestLogWriterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &stuck{}
		w := server.NewLogWriter(to)
		_, _ = w.Write([]byte("last\n"))
		w.Close(time.Second)
		if got := to.text.String(); got != "last\n" {
			t.Errorf("after Close: %q", got)
		}

		blocked := &stuck{gate: make(chan struct{})}
		w = server.NewLogWriter(blocked)
		_, _ = w.Write([]byte("never\n"))
		began := time.Now()
		w.Close(time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("Close took %s", took)
		}
		close(blocked.gate)
	})
}

// What a broken writer did not take is dropped, and told of when it is whole again.
func TestLogWriterBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &stuck{fails: true}
		w := server.NewLogWriter(to)
		for range 3 {
			_, _ = w.Write([]byte("lost\n"))
			synctest.Wait()
		}
		if n := w.Dropped(); n != 3 {
			t.Errorf("%d dropped, want 3", n)
		}
		to.set(false)
		_, _ = w.Write([]byte("back\n"))
		synctest.Wait()
		if got := to.text.String(); !strings.HasPrefix(got, "back\n") || !strings.Contains(got, "lines=3\n") {
			t.Errorf("written: %q", got)
		}
		w.Close(time.Second)
	})
}
