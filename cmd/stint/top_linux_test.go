package main

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stintdev/stint/internal/await"
)

// openTerminal returns both ends of a pseudo terminal of 100 by 30 characters.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals:", err)
	}
	t.Cleanup(func() { person.Close() })
	var number, unlocked int32
	size := [4]uint16{30, 100}
	control := func(request uintptr, arg unsafe.Pointer) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request, uintptr(arg)); errno != 0 {
			t.Fatal(errno)
		}
	}
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// screen is what a program has written to its terminal.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) await(t *testing.T, want string) {
	t.Helper()
	text := ""
	if !await.So(func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		text = s.text.String()
		return strings.Contains(text, want)
	}) {
		t.Fatalf("want %q on the screen: %q", want, text)
	}
}

// On a terminal, top draws on a screen of its own, obeys keys, and leaves the terminal as it was.
func TestTopOnTerminal(t *testing.T) {
	used := map[string]bool{}
	s := start(t, "empty", used)
	person, program := openTerminal(t)
	on := new(screen)
	go func() { _, _ = io.Copy(on, person) }()
	done := make(chan int, 1)
	var errs bytes.Buffer
	go func() { done <- run(t.Context(), []string{"top", "--admin", s.url}, program, program, &errs) }()
	on.await(t, "\x1b[?1049h")
	on.await(t, "no rule applies to anything now")
	on.await(t, "q quit")
	press := func(keys string) {
		if _, err := person.Write([]byte(keys)); err != nil {
			t.Fatal(err)
		}
	}
	press(" ")
	on.await(t, "paused; space resumes")
	press("q")
	select {
	case code := <-done:
		if code != 0 || errs.Len() > 0 {
			t.Errorf("exit %d: %s", code, errs.String())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("q does not quit")
	}
	on.await(t, "\x1b[?7h\x1b[?25h\x1b[?1049l")
}
