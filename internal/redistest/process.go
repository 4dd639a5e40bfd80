package redistest

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// run starts the server. A loader must exec, so that the pid is the server's.
func (s *Server) run(t testing.TB, args []string) {
	t.Helper()
	s.process = exec.Command(program(t), args...)
	s.process.Env = append(os.Environ(), s.env...)
	dieWithUs(s.process)
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) stop() {
	s.Kill()
	_ = os.RemoveAll(s.Dir)
}

// Pid is the server's process id.
func (s *Server) Pid() int { return s.process.Process.Pid }

// Kill ends the server as a crash would.
func (s *Server) Kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
	}
}

// Begin starts a server that has ended again, with its files.
func (s *Server) Begin(t testing.TB) {
	t.Helper()
	s.Launch(t)
	s.await(t)
}

// Launch is Begin without waiting until the server answers.
func (s *Server) Launch(t testing.TB) {
	t.Helper()
	s.run(t, s.process.Args[1:])
}

// Stop stops the server as a shutdown would, until Restart or Begin.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	_ = s.process.Process.Signal(os.Interrupt)
	_ = s.process.Wait()
}

// Restart stops the server, unless it was stopped, and starts it again with its files.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	s.Begin(t)
}

// Pause freezes the server's process until Resume. Its connections stay, and new ones are accepted.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	if err := s.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// Resume ends a Pause.
func (s *Server) Resume() { _ = s.process.Process.Signal(syscall.SIGCONT) }

// Freeze is Pause until thaw is called, at the latest at the end of the test.
func (s *Server) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	s.Pause(t)
	t.Cleanup(s.Resume)
	return s.Resume
}
