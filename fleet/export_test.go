package fleet

import (
	"testing"
	"time"
)

// JitterNothing has breakers wait as long as they are told to, until the test ends.
func JitterNothing(t *testing.T) {
	was := jitter
	jitter = func(most time.Duration) time.Duration { return most / 2 }
	t.Cleanup(func() { jitter = was })
}

// Owed is how many bytes the ledger says that it has, and how many it has.
func Owed(f *Fallback) (noted, real int) {
	l := &f.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.debts {
		real += e.size()
	}
	for i := range l.unsettled {
		real += l.unsettled[i].size()
	}
	return l.size, real
}
