package main

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

type machine struct {
	CPU, System, Go, Redis, Commit string
	LoadBefore, LoadAfter          string
	Processors                     int
	Modules                        []string
}

// limiters are the modules of the limiters that Stint is compared with, and of what they share.
var limiters = []string{"golang.org/x/time", "github.com/sethvargo/go-limiter", "github.com/ulule/limiter/v3", "github.com/throttled/throttled/v2",
	"github.com/go-redis/redis_rate/v10", "github.com/redis/go-redis/v9", "github.com/redis/rueidis", "google.golang.org/grpc"}

// thisMachine describes where the benchmarks run. redis is nil if they need none; compared are the modules
// that Modules has with their versions.
func thisMachine(redis *redisServer, compared []string) machine {
	m := machine{CPU: runtime.GOARCH, System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Processors: runtime.NumCPU(), Commit: commit(), LoadBefore: load()}
	if redis != nil {
		m.Redis = redis.version()
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
			}
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += ", kernel " + strings.TrimSpace(string(text))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.Contains(compared, d.Path) {
				m.Modules = append(m.Modules, d.Path+" "+d.Version)
			}
		}
	}
	return m
}

// commit is the repository's commit, and whether there are uncommitted changes.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
