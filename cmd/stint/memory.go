package main

import (
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/stintdev/stint/server/config"
)

// limitMemory makes the collector work harder as nine tenths of the memory that f was
// made for are in use, where that is a limit at which this process is ended: of its
// cgroup, or of the settings. Where GOMEMLIMIT is given, that holds. ballast is memory
// that is never touched, and so counts for the collector only.
func limitMemory(f *config.Footprint, ballast int, log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" || f.From != "cgroup" && f.From != "setting" {
		return
	}
	limit := f.Memory / 10 * 9
	debug.SetMemoryLimit(limit + int64(ballast))
	log.Info("memory limit of the collector, for GOMEMLIMIT is not given", "limit", config.ByteSize(limit).String(), "from", f.From)
}
