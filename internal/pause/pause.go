// Package pause remembers how long requests must wait because a server said so.
package pause

import (
	"sync"
	"sync/atomic"
	"time"
)

// Most is how many pauses are remembered, so that memory is bounded.
const Most = 10_000

// Pauses has until when keys are paused. The zero Pauses is empty. It may be used from many goroutines
// at once.
type Pauses[K comparable] struct {
	last  atomic.Pointer[time.Time] // when the last pause ends; nil: none runs
	mu    sync.Mutex
	until map[K]time.Time
}

// Any reports whether a pause runs, or ran until just now. While there is none, it costs one atomic
// load.
func (p *Pauses[K]) Any() bool { return p.last.Load() != nil && p.stillAny() }

// stillAny is separate so that Any is inlined.
func (p *Pauses[K]) stillAny() bool {
	last := p.last.Load()
	if last == nil {
		return false
	}
	if time.Now().Before(*last) {
		return true
	}
	p.last.CompareAndSwap(last, nil)
	return false
}

// Left is how long key is still paused; 0: not paused.
func (p *Pauses[K]) Left(key K) time.Duration {
	if !p.Any() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.until[key]
	if !ok {
		return 0
	}
	left := time.Until(until)
	if left <= 0 {
		p.drop(key)
	}
	return max(0, left)
}

// Add pauses key for d, which must be positive, unless it is paused for longer. ok is false if there is
// no room.
func (p *Pauses[K]) Add(key K, d time.Duration) (ok bool) {
	now := time.Now()
	until := now.Add(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = make(map[K]time.Time)
	}
	if len(p.until) >= Most {
		for k, u := range p.until {
			if !u.After(now) {
				delete(p.until, k)
			}
		}
	}
	old, known := p.until[key]
	if !known && len(p.until) >= Most {
		return false
	}
	if until.Before(old) {
		return true
	}
	p.until[key] = until
	if last := p.last.Load(); last == nil || until.After(*last) {
		p.last.Store(&until)
	}
	return true
}

// Lift ends the pause of key.
func (p *Pauses[K]) Lift(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(key)
}

// drop must be called with mu locked.
func (p *Pauses[K]) drop(key K) {
	delete(p.until, key)
	if len(p.until) == 0 {
		p.last.Store(nil)
	}
}
