package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// command is the command line of a program, which is built as a tool of a module.
type command struct {
	module, tool string
	arguments    []string
}

var (
	stintCommand = command{".", "stint", []string{"envoy", "--admin-listen=off", "--probe-listen=off"}}
	peerCommand  = command{"ratelimit", "service_cmd", nil} // it needs other versions
)

func (c *command) build() (*exec.Cmd, error) {
	tool := exec.Command("go", "-C", c.module, "tool", "-n", c.tool)
	tool.Env = append(os.Environ(), "GOWORK=off") // a workspace has other versions than the module, or none
	path, err := tool.Output()
	if err != nil {
		return nil, fmt.Errorf("%s cannot be built: %w", c.tool, err)
	}
	return exec.Command(strings.TrimSpace(string(path)), c.arguments...), nil
}

// program starts a program that serves Envoy's rate limit service. more is added to its environment.
func (c envoyCall) program(which command, more ...string) func(place, spec) (*limiter, error) {
	return func(at place, _ spec) (*limiter, error) {
		dir, err := os.MkdirTemp("", "stint-bench-")
		if err != nil {
			return nil, err
		}
		p := &envoyProcess{dir: dir}
		if err := p.start(&which, c.file(), at.redis, more); err != nil {
			p.end()
			return nil, err
		}
		l, err := c.dial(p.addr)
		if err != nil {
			p.end()
			return nil, err
		}
		l.used, l.close = p.used, closing(l.close, p.end)
		return l, nil
	}
}

// envoyProcess is the process of such a program.
type envoyProcess struct {
	dir, addr, debug string
	process          *exec.Cmd
	profile          chan profiledProcess // of the running profile; nil: none
}

type profiledProcess struct {
	text []byte
	err  error
}

func (p *envoyProcess) start(which *command, file []byte, redis string, more []string) (err error) {
	if p.process, err = which.build(); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(p.dir, "config"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.dir, "config", "bench.yaml"), file, 0o644); err != nil {
		return err
	}
	if p.addr, err = freeAddress(); err != nil {
		return err
	}
	if p.debug, err = freeAddress(); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(p.addr)
	_, debugPort, _ := net.SplitHostPort(p.debug)
	p.process.Env = append(os.Environ(), "RUNTIME_ROOT="+p.dir, "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "LOG_LEVEL=ERROR",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis, "HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT="+debugPort, "GRPC_HOST=127.0.0.1", "GRPC_PORT="+port)
	p.process.Env = append(p.process.Env, more...)
	return p.process.Start()
}

// freeAddress is an address at which nothing listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// used returns the CPU time of the process; how much it allocates is not known. A profile lasts for
// profileSeconds, and the next call waits for its end.
func (p *envoyProcess) used(profile bool) (u usage, err error) {
	if p.profile != nil {
		taken := <-p.profile
		if p.profile = nil; taken.err != nil {
			return u, taken.err
		}
		u.Profile = taken.text
	}
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.process.Process.Pid<<3|cpuTime), &t); err != nil {
		return u, err
	}
	u.CPU = float64(t.Nano()) / 1e9
	if profile {
		p.profile = make(chan profiledProcess, 1)
		go func() {
			text, err := p.takeProfile()
			p.profile <- profiledProcess{text, err}
		}()
	}
	return u, nil
}

// cpuTime is Linux' CPUCLOCK_SCHED: with the complement of a process ID above it, it names the clock of that
// process's CPU time, which is finer than /proc. See clock_getcpuclockid(3).
const cpuTime = 2

const profileSeconds = 2

func (p *envoyProcess) takeProfile() ([]byte, error) {
	r, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", p.debug, profileSeconds))
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = errors.New(r.Status)
	}
	return text, err
}

func (p *envoyProcess) end() {
	if p.process != nil && p.process.Process != nil {
		_ = p.process.Process.Kill()
		_ = p.process.Wait()
	}
	_ = os.RemoveAll(p.dir)
}
