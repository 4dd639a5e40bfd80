package server

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// memory is how many bytes this process may use, and which of "cgroup" and "machine"
// says so; 0 and "" where neither does. root is the root of the file system.
func memory(root fs.FS) (n int64, from string) {
	n, from = machineMemory(root), "machine"
	if limit := cgroupMemory(root); limit > 0 && (n == 0 || limit < n) {
		n, from = limit, "cgroup"
	}
	if n == 0 {
		return 0, ""
	}
	return n, from
}

func machineMemory(root fs.FS) int64 {
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// cgroupMemory is the smallest limit among this process's cgroup and those above it, of
// version 2 or 1; 0: none is set. In a container, the path in /proc/self/cgroup may be
// that of the machine, which is not there: its root is looked at all the same.
func cgroupMemory(root fs.FS) int64 {
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	var least int64
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		at, file := "sys/fs/cgroup", "memory.max"
		switch {
		case f[1] == "": // version 2
		case strings.Contains(","+f[1]+",", ",memory,"):
			at, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
			limit, err := fs.ReadFile(root, path.Join(at, dir, file))
			n, wrong := strconv.ParseInt(string(bytes.TrimSpace(limit)), 10, 64) // "max" is no number
			if err == nil && wrong == nil && n > 0 && (least == 0 || n < least) {
				least = n
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

var rootFS = os.DirFS("/")
