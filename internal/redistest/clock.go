package redistest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

//go:embed testdata/clock.c
var clockSource []byte

// Clock is the wall clock of a Server, which a test can set.
type Clock struct {
	path  string
	ahead time.Duration
}

// StartWithClock is Start for a server whose wall clock a test can set, by some C that is compiled
// here and loaded first (libfaketime does not work with Redis's jemalloc). It needs Linux and a C
// compiler; else it skips the test, or fails it if Required is set.
func StartWithClock(t testing.TB, args ...string) (*Server, *Clock) {
	t.Helper()
	s := prepare(t)
	cc, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		if os.Getenv(Required) != "" {
			t.Fatalf("%s is set, but a clock that jumps takes Linux and a C compiler (apt-get install gcc libc6-dev)", Required)
		}
		Skip(t, "a C compiler on Linux", "install gcc and libc6-dev")
	}
	source, library := filepath.Join(s.Dir, "clock.c"), filepath.Join(s.Dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-O2", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := &Clock{path: filepath.Join(s.Dir, "clock")}
	c.write(t)
	s.env = []string{"STINT_CLOCK=" + c.path, "LD_PRELOAD=" + library}
	// jemalloc's thread waits for an instant of the real clock: behind it, it spins.
	s.start(t, append([]string{"--save", "", "--appendonly", "no", "--jemalloc-bg-thread", "no"}, args...)...)

	c.Jump(t, time.Hour)
	if apart := time.Until(s.Now(t)); apart < 59*time.Minute {
		t.Fatalf("a clock that was set an hour ahead is ahead by %s", apart)
	}
	c.Jump(t, -time.Hour)
	return s, c
}

// Jump sets the clock forward, or back if by is negative.
func (c *Clock) Jump(t testing.TB, by time.Duration) {
	t.Helper()
	c.ahead += by
	c.write(t)
}

func (c *Clock) write(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.ahead.Microseconds())), 0); err != nil {
		t.Fatal(err)
	}
}

// Now is the time of the server's clock.
func (s *Server) Now(t testing.TB) time.Time {
	t.Helper()
	parts, err := s.Do(t, "TIME").AsStrSlice()
	if err != nil || len(parts) != 2 {
		t.Fatalf("TIME: %v, %v", parts, err)
	}
	at, err := time.ParseDuration(parts[0] + "s" + parts[1] + "us")
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMicro(at.Microseconds())
}
