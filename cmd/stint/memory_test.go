package main

import (
	"bytes"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/config"
)

// The collector's limit is set where a cgroup or the settings give the memory, and GOMEMLIMIT does not.
func TestLimitMemory(t *testing.T) {
	const before = 1 << 40
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(before))
	for _, c := range []struct {
		name, variable, from string
		want                 int64
	}{
		{"a cgroup", "", "cgroup", 900 << 20},
		{"the settings", "", "setting", 900 << 20},
		{"a machine, whose memory others use, too", "", "machine", before},
		{"unknown", "", "", before},
		{"GOMEMLIMIT", "2GiB", "cgroup", before},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", c.variable)
			debug.SetMemoryLimit(before)
			var log bytes.Buffer
			limitMemory(&config.Footprint{Memory: 1000 << 20, From: c.from}, slog.New(slog.NewTextHandler(&log, nil)))
			if got := debug.SetMemoryLimit(-1); got != c.want || strings.Contains(log.String(), "limit=900MiB from="+c.from) != (c.want != before) {
				t.Errorf("limit %d, want %d: %s", got, c.want, &log)
			}
		})
	}
}
