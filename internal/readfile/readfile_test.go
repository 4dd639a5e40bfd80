package readfile

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestUpTo(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64]string{0: "", 3: "tex", 4: "text", 9: "text"} {
		if got, err := UpTo(path, most); string(got) != want || err != nil {
			t.Errorf("%d: %q, %v", most, got, err)
		}
	}
	if got, err := UpTo(os.DevNull, 9); len(got) != 0 || err != nil {
		t.Errorf("%s: %q, %v", os.DevNull, got, err)
	}
	if _, err := UpTo(dir, 9); err == nil {
		t.Error("a directory was read")
	}
	if _, err := UpTo(filepath.Join(dir, "none"), 9); !os.IsNotExist(err) {
		t.Errorf("none: %v", err)
	}
}

// A pipe is read if somebody writes to it, and never waited for without end.
func TestPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := UpTo(path, 9); err == nil || !strings.Contains(err.Error(), "nobody writes") {
		t.Errorf("without a writer: %v", err)
	}
	w, err := os.OpenFile(path, os.O_RDWR, 0) // which waits for nobody
	if err != nil {
		t.Fatal(err)
	}
	if _, err := upTo(path, 9, time.Millisecond); err == nil || !strings.Contains(err.Error(), "does not end within") {
		t.Errorf("with a silent writer: %v", err)
	}
	if _, err := w.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	if _, err := upTo(path, 9, time.Millisecond); err == nil {
		t.Error("half of what comes was taken for all")
	}
	w.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		_, _ = w.WriteString("all of it")
		w.Close()
	}()
	if got, err := UpTo("/dev/fd/"+strconv.Itoa(int(r.Fd())), 99); string(got) != "all of it" || err != nil {
		t.Errorf("a pipe of a shell: %q, %v", got, err)
	}
}
