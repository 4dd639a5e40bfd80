package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// supervisor is the service manager that has started the program, such as systemd. It is told how
// the program is, and may have opened the gateway's socket. Without one, nobody is told.
type supervisor struct {
	notify  string        // the address of its socket; empty: it wants to hear nothing
	sockets passedSockets // that it has opened
	log     *slog.Logger

	mu        sync.Mutex
	phase     phase
	reloading int  // files are being read, so many times at once
	refused   bool // what they hold was
}

type phase int

const (
	phaseStart phase = iota
	phaseServing
	phaseStopping
)

// passedSockets are sockets that a service manager has opened, as sd_listen_fds reads the variables.
type passedSockets struct{ pid, count, names string }

func newSupervisor(environ []string, log *slog.Logger) *supervisor {
	variable := func(name string) string {
		for _, v := range environ {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
	return &supervisor{
		notify: variable("NOTIFY_SOCKET"), log: log,
		sockets: passedSockets{pid: variable("LISTEN_PID"), count: variable("LISTEN_FDS"), names: variable("LISTEN_FDNAMES")},
	}
}

// tell sends what has changed, in lines such as READY=1.
func (s *supervisor) tell(lines ...string) {
	if s.notify == "" {
		return
	}
	if err := notify(s.notify, strings.Join(lines, "\n")); err != nil {
		s.log.Warn("the service manager could not be notified", "what", strings.Join(lines, " "), "error", err)
	}
}

// status tells what the program does before it is ready.
func (s *supervisor) status(text string) { s.tell("STATUS=" + text) }

// watch runs beside a server, which is ready now, until that stops serving.
func (s *supervisor) watch(ctx context.Context) error {
	s.mu.Lock()
	s.phase = phaseServing
	s.ready()
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = phaseStopping
	s.tell("STOPPING=1", "STATUS=stopping: requests in flight may end")
	return nil
}

// ready tells that the server is, unless files are being read. The caller holds s.mu.
func (s *supervisor) ready() {
	status := "STATUS=serving"
	if s.refused {
		status += " by the previous rules: the files have an error, which is in the log"
	}
	if s.phase == phaseServing && s.reloading == 0 {
		s.tell("READY=1", status)
	}
}

// reload tells that files are read, until read is called.
func (s *supervisor) reload() (read func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reloading++; s.phase == phaseServing {
		// Also if they are being read already: systemd takes only an answer that is later than
		// its signal.
		s.tell("RELOADING=1", monotonic(), "STATUS=reading the files again")
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reloading--
		s.ready()
	}
}

// around returns take as a Watcher calls it, with what is told before and after. take reports
// whether the files are in force.
func (s *supervisor) around(take func([]rules.File, error) bool) func([]rules.File, error) {
	return func(files []rules.File, err error) {
		defer s.reload()()
		taken := take(files, err)
		s.mu.Lock()
		s.refused = !taken
		s.mu.Unlock()
	}
}

func onHangup(ctx context.Context) <-chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	context.AfterFunc(ctx, func() { signal.Stop(hangups) })
	return hangups
}

// hangup reads all files again at each SIGHUP.
type hangup struct {
	by *supervisor
	s  *server.Server
	// rules asks the Watcher of rules, which answers by read. nil: there is none.
	rules chan os.Signal
	read  chan struct{}
}

func (h *hangup) run(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case signal := <-hangups:
			read := h.by.reload()
			h.s.ReloadFiles()
			h.readRules(ctx, signal)
			read()
		}
	}
}

// readRules returns when the rules of the files are in force, or refused.
func (h *hangup) readRules(ctx context.Context, signal os.Signal) {
	if h.rules == nil {
		return
	}
	select {
	case h.rules <- signal:
	case <-ctx.Done():
		return
	}
	select {
	case <-h.read:
	case <-ctx.Done():
	}
}
