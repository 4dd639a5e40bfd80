package main

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
)

// log gathers what is written and hands out its lines. It never waits for a reader:
// lines beyond maxUnread that nobody has taken are in the text alone.
type log struct {
	mu    sync.Mutex
	text  bytes.Buffer
	begun []byte // of a line
	ended bool
	lines chan string
}

const maxUnread = 10_000

func newLog() *log { return &log{lines: make(chan string, maxUnread)} }

// Write implements io.Writer.
func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	if l.ended {
		return len(b), nil
	}
	l.begun = append(l.begun, b...)
	for {
		line, rest, whole := bytes.Cut(l.begun, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		l.begun = rest
		select {
		case l.lines <- string(line):
		default:
		}
	}
}

// end ends the lines. What is written later, as by a LogWriter that had no time, is in the text alone.
func (l *log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	close(l.lines)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// child is a process that a test has started.
type child struct {
	cmd   *exec.Cmd
	log   *log          // what it says on stderr
	ended chan struct{} // closed when it has ended, and log has all that it said
}

// launch starts c, which is killed when the test ends if it still runs. If c.Stderr is set, the log is
// empty.
func launch(t testing.TB, c *exec.Cmd) *child {
	t.Helper()
	p := &child{cmd: c, log: newLog(), ended: make(chan struct{})}
	if c.Stderr == nil {
		c.Stderr = p.log
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = c.Wait() // ProcessState says the same
		p.log.end()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-p.ended
	})
	return p
}

func (p *child) pid() int { return p.cmd.Process.Pid }

// signal sends s. A process that has ended is an error.
func (p *child) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Errorf("%s: %v\n%s", s, err, p.log)
	}
}

// wait waits until it has ended, and returns how.
func (p *child) wait(t testing.TB) *os.ProcessState {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(await.Patience):
		t.Fatalf("it does not end:\n%s", p.log)
	}
	return p.cmd.ProcessState
}

// kill kills it, and returns when it is gone.
func (p *child) kill(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	p.wait(t)
}

// endsWell waits until it has ended, which must be with exit code 0.
func (p *child) endsWell(t testing.TB) {
	t.Helper()
	if state := p.wait(t); !state.Success() {
		t.Errorf("it ended with %s:\n%s", state, p.log)
	}
}

// stop ends it by SIGTERM, unless it has ended, and returns its exit code.
func (p *child) stop() int {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(await.Patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	return p.cmd.ProcessState.ExitCode()
}

// built is the program where a benchmark weighs it without the tests; "": this one is it.
var built string

// program is a stint in a process of its own.
func program(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(cmp.Or(built, self), args...)
	c.Env = append(os.Environ(), asStint+"=1")
	return c
}

// serveArgs are the arguments of a stint serve with ports of its own, unless args say otherwise.
func serveArgs(args []string) []string {
	return append([]string{"serve", "--listen", "127.0.0.1:0", "--check-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)
}

// process runs stint serve in a process of its own.
func process(t *testing.T, args ...string) (*child, *served) {
	t.Helper()
	return started(t, program(t, serveArgs(args)...))
}

// started starts c, which is stint serve.
func started(t *testing.T, c *exec.Cmd) (*child, *served) {
	t.Helper()
	p := launch(t, c)
	s := &served{log: p.log, stop: p.stop}
	s.await(t)
	return p, s
}

// stopsAtEnd has stop called when the test ends, which must return 0.
func stopsAtEnd(t testing.TB, stop func() int, log *log) {
	t.Helper()
	t.Cleanup(func() {
		if code := stop(); code != 0 {
			t.Errorf("exit %d:\n%s", code, log)
		}
	})
}
