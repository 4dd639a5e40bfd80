package attack

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Seed returns the seed of a random test, and logs it: STINT_SEED, to repeat a run, or a new one each
// time if that is unset.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("STINT_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal("STINT_SEED: ", err)
		}
	}
	t.Logf("seed %d", seed)
	return seed
}
