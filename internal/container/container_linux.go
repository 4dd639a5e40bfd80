package container

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Mount is a file or a folder of the machine that a container has, too.
type Mount struct {
	From     string
	At       string // an absolute path in the container; the place is made if it is not there
	Writable bool
}

// Libraries are the shared libraries of the machine, for a program that was not linked with all it needs.
func Libraries() (all []Mount) {
	for _, folder := range []string{"/lib", "/lib64", "/usr/lib"} {
		if _, err := os.Stat(folder); err == nil {
			all = append(all, Mount{From: folder, At: folder})
		}
	}
	return all
}

// Options describe a Container.
type Options struct {
	Root        string   // the folder that becomes /; others must be able to enter it
	Mounts      []Mount  // in this order; /proc is there without one
	User, Group uint32   // of its processes
	Groups      []uint32 // more of them
	OwnNetwork  bool     // false: that of the machine
}

// Container is a place in which processes run. They have no capabilities, and gain none.
type Container struct {
	options Options
	// A thread is in the container, and others are not. What is sent runs on this thread.
	inside chan func()
	ended  chan struct{} // closed when the test ends
}

// Need skips a test that cannot make containers here.
func Need(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may make a container and become its user")
	}
	if err := namespaces(); err != nil {
		t.Skipf("no namespaces may be made here: %v", err)
	}
}

// namespaces reports whether they can be made here.
var namespaces = sync.OnceValue(func() error {
	made := make(chan error)
	go func() {
		runtime.LockOSThread()
		made <- unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET)
		keepThread()
	}()
	return <-made
})

// keepThread never returns. Nobody else may get a thread that is in a container, and it may not end: before it
// was in one, it may have started a process, such as Redis, that is killed when its thread ends.
func keepThread() { select {} }

// New makes a container, which is there until the test ends.
func New(t testing.TB, o Options) *Container {
	t.Helper()
	c := &Container{options: o, inside: make(chan func()), ended: make(chan struct{})}
	made := make(chan error)
	go func() {
		runtime.LockOSThread()
		made <- c.enter()
		for {
			select {
			case call := <-c.inside:
				call()
			case <-c.ended:
				keepThread()
			}
		}
	}()
	t.Cleanup(func() { close(c.ended) })
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	return c
}

// do calls f on the thread in the container.
func (c *Container) do(f func() error) error {
	done := make(chan error, 1)
	select {
	case c.inside <- func() { done <- f() }:
		return <-done
	case <-c.ended:
		return net.ErrClosed
	}
}

// enter takes this thread into the container, but for the root folder and the user, which each of its
// processes takes.
func (c *Container) enter() error {
	namespaces := unix.CLONE_NEWNS
	if c.options.OwnNetwork {
		namespaces |= unix.CLONE_NEWNET
	}
	if err := unix.Unshare(namespaces); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := c.mountAll(); err != nil {
		return err
	}
	if c.options.OwnNetwork {
		if err := connect(); err != nil {
			return fmt.Errorf("the network: %w", err)
		}
	}
	// Processes inherit both. The thread itself keeps its capabilities, with which a process changes its
	// root folder and its user before it begins.
	for capability := uintptr(0); ; capability++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) { // there are no more
			break
		}
		if err != nil {
			return fmt.Errorf("dropping capability %d: %w", capability, err)
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

func (c *Container) mountAll() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts from the machine: %w", err)
	}
	root := Mount{From: c.options.Root, At: "/"}
	if err := c.mount(root); err != nil {
		return err
	}
	for _, m := range append([]Mount{{From: "/proc", At: "/proc", Writable: true}}, c.options.Mounts...) {
		err := c.mount(m)
		if err == nil && !m.Writable {
			err = c.protect(m)
		}
		if err != nil {
			return err
		}
	}
	if err := c.protect(root); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.options.Root, "written"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("the root folder can be written: %w", err)
	}
	return nil
}

func (c *Container) mount(m Mount) error {
	at := filepath.Join(c.options.Root, m.At)
	info, err := os.Stat(m.From)
	if err == nil && info.IsDir() {
		err = os.MkdirAll(at, 0o755)
	} else if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), makeFile(at))
	}
	if err == nil {
		err = unix.Mount(m.From, at, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("mounting %s at %s: %w", m.From, m.At, err)
	}
	return nil
}

func makeFile(at string) error {
	f, err := os.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func (c *Container) protect(m Mount) error {
	if err := unix.Mount("", filepath.Join(c.options.Root, m.At), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("protecting %s: %w", m.At, err)
	}
	return nil
}

// command is a program in the container, by its path there, with no variables but env.
func (c *Container) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append([]string{}, env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:     c.options.Root,
		Credential: &syscall.Credential{Uid: c.options.User, Gid: c.options.Group, Groups: c.options.Groups},
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	return cmd
}

// Process is a program that runs in a container, as its first process.
type Process struct {
	*exec.Cmd
	output
	// Ended waits until the process has ended, and returns why it failed.
	Ended func() error
}

// Start starts a program, which is killed when the test ends.
func (c *Container) Start(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{Cmd: c.command(env, args...)}
	p.Stdout, p.Stderr = &p.output, &p.output
	if err := c.do(p.Cmd.Start); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	p.Ended = sync.OnceValue(func() error { return <-ended })
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Ended()
	})
	return p
}

// Run runs a program to its end, and returns its exit code and all that it wrote.
func (c *Container) Run(t testing.TB, env []string, args ...string) (code int, out string) {
	t.Helper()
	p := c.Start(t, env, args...)
	if err := p.Ended(); p.ProcessState == nil {
		t.Fatalf("%q: %v", args, err)
	}
	return p.ProcessState.ExitCode(), p.Log()
}

// Status returns fields of what the system says of the process, such as Uid.
func (p *Process) Status(t testing.TB, names ...string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, name := range names {
		_, rest, _ := strings.Cut(string(text), "\n"+name+":")
		line, _, _ := strings.Cut(rest, "\n")
		values = append(values, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(values, "|")
}

// output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write is for the process.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// Log is what the process has written so far.
func (o *output) Log() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
