package config

import (
	"bytes"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/counts"
)

// The smallest limit among a cgroup and those above it holds, of either version, and the
// machine's memory where that is less.
func TestMemory(t *testing.T) {
	const info = "MemTotal:        4194304 kB\nMemFree:         1000 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
		from  string
	}{
		"nothing":            {nil, 0, ""},
		"the machine":        {map[string]string{"proc/meminfo": info, "proc/self/cgroup": "0::/\n"}, 4 << 30, "machine"},
		"no limit":           {map[string]string{"proc/meminfo": info, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 4 << 30, "machine"},
		"a container":        {map[string]string{"proc/meminfo": info, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20, "cgroup"},
		"a slice above":      {map[string]string{"proc/meminfo": info, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "1073741824\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 1 << 30, "cgroup"},
		"a path of the host": {map[string]string{"proc/self/cgroup": "0::/docker/1\n", "sys/fs/cgroup/memory.max": "268435456\n"}, 256 << 20, "cgroup"},
		"version 1":          {map[string]string{"proc/meminfo": info, "proc/self/cgroup": "5:cpu,memory:/x\n4:pids:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "134217728\n"}, 128 << 20, "cgroup"},
		"version 1, none":    {map[string]string{"proc/meminfo": info, "proc/self/cgroup": "5:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 4 << 30, "machine"},
		"garbage":            {map[string]string{"proc/meminfo": "MemTotal: x kB\nMemTotal:\n", "proc/self/cgroup": ":\n0::/../..\n\n", "sys/fs/cgroup/memory.max": "-5"}, 0, ""},
	} {
		root := fstest.MapFS{}
		for path, text := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if got, from := memory(root); got != c.want || from != c.from {
			t.Errorf("%s: %d, %q, want %d, %q", name, got, from, c.want, c.from)
		}
	}
}

// What the bounds allow fits, from 512 MiB on, with room for the collector; nothing is
// more than it was before; and what is given stays.
func TestFitMemory(t *testing.T) {
	withFiles(t, 1<<20)
	for _, mib := range []int64{512, 1024, 4096, 65536} {
		for i, store := range []string{"memory", "redis://localhost", "redis://localhost", "redis://localhost"} {
			s := Default()
			s.Memory, s.Store = mib<<20, store
			if i >= 2 {
				s.JWT = &JWT{KeysFile: "keys"}
			}
			if i >= 3 {
				s.Envoy = &Envoy{}
			}
			h := s.FitMemory()
			if sum := h.Sum(); sum > s.Memory*95/100 || h.From != "setting" {
				t.Errorf("%d MiB, %s: %d MiB, %+v", mib, store, sum>>20, h)
			}
			if s.MaxKeys > counts.DefaultRoom || s.Instance.InFlight > 10_000 || s.RememberedDenials > fleet.DefaultMaxDenials {
				t.Errorf("%d MiB, %s: %+v", mib, store, s)
			}
			if mib >= 4096 && (s.MaxKeys != 750_000 && s.MaxKeys != counts.DefaultRoom || s.RememberedDenials != fleet.DefaultMaxDenials) {
				t.Errorf("%d MiB, %s: less than before: %+v", mib, store, s)
			}
			again := s
			if second := s.FitMemory(); again.Instance != s.Instance || again.MaxKeys != s.MaxKeys || second.Sum() != h.Sum() {
				t.Errorf("a second call: %+v, was %+v", second, h)
			}
		}
	}
	given := Default()
	given.Memory, given.MaxKeys, given.MaxConnections, given.RememberedDenials = 1<<30, 7, 8, 0
	given.Instance = Instance{InFlight: 9, Bytes: 1 << 20}
	was := given
	if given.FitMemory(); given.MaxKeys != was.MaxKeys || given.MaxConnections != was.MaxConnections || given.RememberedDenials != 0 || given.Instance != was.Instance {
		t.Errorf("%+v, was %+v", given, was)
	}
}

// A file that says that there is more memory than there is, is warned of.
func TestMoreMemoryThanTheMachine(t *testing.T) {
	defer func(before fs.FS) { rootFS = before }(rootFS)
	rootFS = fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 1048576 kB\n")}}
	for given, want := range map[int64]bool{0: false, 1 << 30: false, 2 << 30: true} {
		var log bytes.Buffer
		s := Default()
		s.Memory = given
		h := s.FitMemory()
		h.Log(slog.New(slog.NewTextHandler(&log, nil)))
		if strings.Contains(log.String(), "server.memory exceeds the memory") != want || strings.Contains(log.String(), "available=1GiB") != want {
			t.Errorf("memory: %d: %s", given, log.String())
		}
	}
}

// withFiles has this process have so many open files; 0: not known.
func withFiles(t *testing.T, n int64) {
	before := openFiles
	openFiles = func() int64 { return n }
	t.Cleanup(func() { openFiles = before })
}

// Connections are no more than files that may be open, and a file that says more is warned of.
func TestOpenFiles(t *testing.T) {
	for _, c := range []struct {
		files, given, want int64
		warns              bool
	}{
		{0, ByMemory, 21845, false}, {1 << 20, ByMemory, 21845, false}, {20_000, ByMemory, 6624, false}, {1024, ByMemory, 298, false}, {64, ByMemory, 16, true},
		{1024, 100, 100, false}, {1024, 298, 298, false}, {1024, 299, 299, true}, {0, 50_000, 50_000, false},
	} {
		withFiles(t, c.files)
		var log bytes.Buffer
		s := Default()
		s.Memory, s.MaxConnections = 16<<30, c.given
		f := s.FitMemory()
		f.Log(slog.New(slog.NewTextHandler(&log, nil)))
		if s.MaxConnections != c.want || strings.Contains(log.String(), "open_files") != c.warns {
			t.Errorf("%d files, %d given: %d\n%s", c.files, c.given, s.MaxConnections, &log)
		}
		if n := strings.Count(log.String(), "level=INFO"); n != 1 || strings.Contains(log.String(), "keys=") {
			t.Errorf("%d lines: %s", n, &log)
		}
	}
}
