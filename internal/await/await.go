// Package await is how tests wait for what happens elsewhere: in another goroutine, process
// or machine. Where everything happens in the test's own process and no socket takes part,
// testing/synctest is better.
package await

import (
	"testing"
	"time"
)

// Patience is how long a test waits. It is no measure: what takes as long is a defect, on
// the busiest machine, too.
const Patience = time.Minute

// So reports whether something becomes so, and gives up after Patience.
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

// Until waits until something is so, and ends the test if it does not become so. Only the
// test's own goroutine may call it.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	if !So(is) {
		t.Fatalf("not within %s: %s", Patience, what)
	}
}

// Hour waits until the hour, and with it every longer unit, lasts for at least so long.
func Hour(least time.Duration) {
	for time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)) < least {
		time.Sleep(time.Second)
	}
}
