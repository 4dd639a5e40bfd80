package rules

import (
	"context"
	"os"
	"slices"
	"time"
)

// Watcher looks after a rules file, or a directory of them, for changes. It asks
// the file system now and then instead of being told, because that also sees what
// Kubernetes does to a mounted ConfigMap (it swaps a link two directories up),
// editors that replace the file, and network file systems.
type Watcher struct {
	// Path is the file or directory, by any links. It may be empty if Envoy is not nil.
	Path string
	// Envoy is a directory to look after besides; nil: none.
	Envoy *EnvoyFiles
	// Every is how often to look. 0: every half second.
	Every time.Duration
	// Now makes the Watcher read at once, changed or not. nil: nothing does.
	Now <-chan os.Signal
	// Answered is called when Changed has returned that was called because Now has asked. nil:
	// nothing is.
	Answered func()
	// Changed is given what Read finds now, and then what Envoy.Read finds, each time that
	// has come to be something else or Now has asked, or why it cannot be read. Files that
	// were added, removed or renamed are a change. It is called from one goroutine, and must be
	// given.
	Changed func(files []File, err error)
}

// Run watches until ctx is done. files is what was last known to be there.
//
// What cannot be read for a moment, such as while it is being replaced, is told
// only if it cannot be read the next time either.
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

// look returns what changes if a file does.
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
