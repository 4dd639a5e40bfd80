package config

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// memory is how many bytes this process may use, and whether "cgroup" or "machine" sets that; 0
// and "" if neither does. root is the root of the file system.
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

// cgroupMemory is the smallest limit of this process's cgroup and those above it, of version 2 or 1; 0: none
// is set. In a container, /proc/self/cgroup may have the machine's path, which does not exist there: the root
// is read anyway.
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
			n, wrong := strconv.ParseInt(string(bytes.TrimSpace(limit)), 10, 64) // "max" is not a number
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

// ByteSize is a number of bytes. Its text is as in a file: 512MiB.
type ByteSize int64

// String returns the size in whole GiB, MiB, KiB or bytes. It may be rounded down.
func (b ByteSize) String() string {
	switch {
	case b >= 10<<30 || b > 0 && b%(1<<30) == 0:
		return fmt.Sprintf("%dGiB", b>>30)
	case b >= 10<<20 || b > 0 && b%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", b>>20)
	case b >= 10<<10 || b > 0 && b%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", b>>10)
	}
	return strconv.FormatInt(int64(b), 10)
}

// parseByteSize reads a number of bytes from 1 MiB on.
func parseByteSize(text string) (int64, error) {
	for unit, shift := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		digits, ok := strings.CutSuffix(text, unit)
		n, err := strconv.ParseInt(digits, 10, 32)
		if ok && err == nil && n<<shift >= 1<<20 && n < 1<<20 {
			return n << shift, nil
		}
	}
	return 0, fmt.Errorf("%.40q: want a size such as 512MiB or 4GiB, from 1MiB on", text)
}
