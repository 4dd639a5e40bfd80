package rules

import (
	"bytes"
	"context"
	"os"
	"time"
)

// Watcher looks after a rules file for changes. It asks the file system now and
// then instead of being told, because that also sees what Kubernetes does to a
// mounted ConfigMap (it swaps a link two directories up), editors that replace
// the file, and network file systems.
type Watcher struct {
	// Path is the file, by any links.
	Path string
	// Every is how often to look. 0: every half second.
	Every time.Duration
	// Now makes the Watcher read the file at once, changed or not. nil: nothing
	// does.
	Now <-chan os.Signal
	// Changed is given what the file holds now, each time it has come to hold
	// something else or Now has asked, or why it cannot be read. It is called
	// from one goroutine.
	Changed func(data []byte, err error)
}

// Run watches until ctx is done. data is what the file was last known to hold.
//
// A file that cannot be read for a moment, such as while it is being replaced, is
// told only if it cannot be read the next time either.
func (w Watcher) Run(ctx context.Context, data []byte) {
	every := w.Every
	if every <= 0 {
		every = 500 * time.Millisecond
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var seen os.FileInfo // none yet: the file may have changed since data was read
	failing := 0
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-w.Now:
			asked = true
		case <-ticker.C:
			info, err := os.Stat(w.Path)
			if err == nil && failing == 0 && seen != nil && os.SameFile(seen, info) && seen.ModTime().Equal(info.ModTime()) && seen.Size() == info.Size() {
				continue
			}
			seen = info
		}
		now, err := read(w.Path)
		if err != nil {
			if failing++; failing == 2 || asked {
				w.Changed(nil, err)
			}
			continue
		}
		failing = 0
		if asked || !bytes.Equal(now, data) {
			data = now
			w.Changed(now, nil)
		}
	}
}
