package untouched

import "testing"

func TestRoundUp(t *testing.T) {
	for n, want := range map[float64]int64{0: 1, 1: 1, 1.2: 2, 9.6: 10, 14.4: 15, 99: 99, 99.1: 100, 100: 100, 101: 110, 1234: 1300, 99_001: 100_000} {
		if got := RoundUp(n); got != want {
			t.Errorf("%v: %d, want %d", n, got, want)
		}
	}
}

// At least three keys are above the number that leaves a share untouched.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		wished float64
		keys   int
		want   float64
	}{
		{0.999, 3000, 0.999}, {0.999, 2999, 0.995}, {0.999, 20, 0.8}, {0.999, 5, 0.5}, {0.4, 3, 0.4}, {0.97, 100, 0.97}, {0.97, 99, 0.95},
		{0.99999, 100_000, 0.9999},
	} {
		if got := Share(c.wished, c.keys); got != c.want {
			t.Errorf("%v of %d keys: %v, want %v", c.wished, c.keys, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	peaks := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for share, want := range map[float64]int64{0: 1, 0.1: 1, 0.11: 2, 0.5: 5, 0.9: 9, 0.91: 10, 1: 10} {
		if got := Quantile(peaks, share); got != want {
			t.Errorf("%v: %d, want %d", share, got, want)
		}
	}
}
