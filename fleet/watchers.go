package fleet

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// watchers are functions that are called like Fallback.Called. The zero watchers are ready.
type watchers struct {
	mu  sync.Mutex // for adding
	all atomic.Pointer[[]watcher]
}

type watcher struct {
	by     any
	called func(took time.Duration, err error)
}

func (w *watchers) called(took time.Duration, err error) {
	if all := w.all.Load(); all != nil {
		for _, one := range *all {
			one.called(took, err)
		}
	}
}

// WatchCalls makes f call called after every call of the Store for a request, in addition to Called. A
// second call by the same watcher does nothing, so that nobody counts a call twice; by must be
// comparable. It may be called while the Fallback is in use. Packages promlimit and otellimit use it to
// measure a Store of this package.
func (f *Fallback) WatchCalls(by any, called func(took time.Duration, err error)) {
	w := &f.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []watcher
	if now := w.all.Load(); now != nil {
		all = *now
	}
	if slices.ContainsFunc(all, func(one watcher) bool { return one.by == by }) {
		return
	}
	all = append(slices.Clip(all), watcher{by, called})
	w.all.Store(&all)
}
