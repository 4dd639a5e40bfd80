package container_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/container"
)

// The program is this test itself, with the libraries of the machine.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "inside" {
		os.Exit(inside(os.Args[2]))
	}
	os.Exit(m.Run())
}

// inside does what a program in the container may try.
func inside(what string) int {
	switch what {
	case "write":
		for _, at := range []string{"/written", "/protected/written", "/usr/bin/written"} {
			if os.WriteFile(at, nil, 0o600) == nil {
				return 1
			}
		}
		if os.WriteFile("/open/written", []byte(os.Getenv("TEXT")), 0o600) != nil || len(os.Environ()) != 1 {
			return 2
		}
	case "listen":
		l, err := net.Listen("tcp", ":8080")
		if err != nil {
			return 1
		}
		conn, err := l.Accept()
		if err != nil {
			return 1
		}
		_, _ = io.WriteString(conn, conn.RemoteAddr().String())
		_ = conn.Close()
	}
	return 0
}

func TestContainer(t *testing.T) {
	container.Need(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	folder := func(name string, mode os.FileMode) string {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, mode); err != nil {
			t.Fatal(err)
		}
		return at
	}
	o := container.Options{
		Root: folder("root", 0o755), User: 65532, Group: 65532, Groups: []uint32{65533}, OwnNetwork: true,
		Mounts: append(container.Libraries(), container.Mount{From: self, At: "/usr/bin/self"},
			container.Mount{From: folder("protected", 0o777), At: "/protected"}, container.Mount{From: folder("open", 0o777), At: "/open", Writable: true}),
	}
	c := container.New(t, o)
	if code, out := c.Run(t, []string{"TEXT=x"}, "/usr/bin/self", "inside", "write"); code != 0 {
		t.Errorf("exit %d: %s", code, out)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "open/written")); string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}

	p := c.Start(t, nil, "/usr/bin/self", "inside", "listen")
	got := p.Status(t, "Uid", "Gid", "Groups", "NSpid", "NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
	_, inner, _ := strings.Cut(got, "65533|")
	if none := "0000000000000000"; !strings.HasPrefix(got, "65532 65532 65532 65532|65532 65532 65532 65532|65533|") ||
		!strings.HasSuffix(inner, " 1|1|"+strings.Join([]string{none, none, none, none, none}, "|")) {
		t.Errorf("it runs as %s", got)
	}
	var conn net.Conn
	await.Until(t, "it listens", func() bool {
		conn, err = c.Dial(t.Context(), "tcp", "10.1.2.3:8080")
		return err == nil
	})
	defer conn.Close()
	said, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(said), "10.") {
		t.Errorf("connected from %s", said)
	}
	if err := p.Ended(); err != nil {
		t.Error(err)
	}
}
