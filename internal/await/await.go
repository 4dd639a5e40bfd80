// Package await lets tests wait for events in another goroutine, process or machine. If everything
// happens in the test's own process without sockets, testing/synctest is better.
package await

import (
	"testing"
	"time"
)

// Patience is how long a test waits. It does not measure anything: a wait this long is a defect
// even on the busiest machine.
const Patience = time.Minute

// So waits until is returns true. It returns false if that takes longer than Patience.
func So(is func() bool) bool {
	pause := time.Millisecond
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(pause) {
		if is() {
			return true
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
	return is()
}

// Until waits until is returns true, and ends the test if it does not. Only the test's own
// goroutine may call it.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	if !So(is) {
		t.Fatalf("not within %s: %s", Patience, what)
	}
}

// Hour waits until the current hour, and so every longer unit, has at least the given time left.
func Hour(least time.Duration) {
	for time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)) < least {
		time.Sleep(time.Second)
	}
}
