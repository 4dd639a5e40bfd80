// Package attack reads from the environment how long the tests of attacks run, and from what seed.
package attack

import (
	"os"
	"testing"
	"time"
)

// Time returns how long a test attacks: STINT_ATTACK, a duration such as 10m, or short if it is
// unset.
func Time(t testing.TB, short time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("STINT_ATTACK")
	if text == "" {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal("STINT_ATTACK: ", err)
	}
	return d
}
