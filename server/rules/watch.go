package rules

import (
	"context"
	"os"
	"slices"
	"time"
)

// Watcher watches a rules file, or a directory of them, for changes. It polls the
// file system instead of waiting for events, because that also works for
// Kubernetes' updates of a mounted ConfigMap (it swaps a link two directories up),
// editors that replace the file, and network file systems.
type Watcher struct {
	// Path is the file or directory; it may be a link. It may be empty if Envoy is not nil.
	Path string
	// Envoy is a directory to watch in addition; nil: none.
	Envoy *EnvoyFiles
	// Every is how often to look. 0: every half second.
	Every time.Duration
	// Now makes the Watcher read at once, changed or not. It may be nil.
	Now <-chan os.Signal
	// Answered is called after a call of Changed that was due to Now. It may be nil.
	Answered func()
	// Changed gets the files of Read, followed by those of Envoy.Read, each time that they have changed or
	// Now asks; or the error of reading them. Files that were added, removed or renamed are a change. It is
	// called from one goroutine, and must be given.
	Changed func(files []File, err error)
}

// Run watches until ctx is done. files are the last known files.
//
// An error in reading is reported only if the next reading fails, too: a file that
// is being replaced may be unreadable for a moment.
func (w Watcher) Run(ctx context.Context, files []File) {
	every := w.Every
	if every <= 0 {
		every = 500 * time.Millisecond
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var seen []listing // none yet: it may have changed since files were read
	failing := 0
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-w.Now:
			asked = true
		case <-ticker.C:
			now, err := w.look()
			if err == nil && failing == 0 && slices.EqualFunc(now, seen, func(a, b listing) bool { return a.same(&b) }) {
				continue
			}
			seen = now
		}
		now, err := w.read()
		if err != nil {
			if failing++; failing == 2 || asked {
				w.changed(nil, err, asked)
			}
			continue
		}
		failing = 0
		if asked || !sameFiles(now, files) {
			files = now
			w.changed(now, nil, asked)
		}
	}
}

func (w *Watcher) changed(files []File, err error, asked bool) {
	w.Changed(files, err)
	if asked && w.Answered != nil {
		w.Answered()
	}
}

// look returns a listing that differs if a file has changed.
func (w *Watcher) look() ([]listing, error) {
	var all []listing
	if w.Path != "" {
		files, err := listFiles(w.Path)
		if err != nil {
			return nil, err
		}
		all = append(all, files)
	}
	if w.Envoy != nil {
		files, err := w.Envoy.look()
		if err != nil {
			return nil, err
		}
		all = append(all, files)
	}
	return all, nil
}

func (w *Watcher) read() ([]File, error) {
	var all []File
	if w.Path != "" {
		files, err := Read(w.Path)
		if err != nil {
			return nil, err
		}
		all = files
	}
	if w.Envoy != nil {
		files, err := w.Envoy.Read()
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
	}
	return all, nil
}
