package redislimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// What a test of a user's leaves in its bubble is not used outside of it, which would end the
// process.
func TestBubbleLeavesNothingBehind(t *testing.T) {
	ask := func(ctx context.Context) {
		s, err := New(ctx, silent{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_, _ = s.Take(ctx, by(0, stint.MustLimit("10 per 1h"), "a"), nil)
	}
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			ask(t.Context())
			time.Sleep(3 * time.Second) // a call of a silent Client ends after two
		})
		ask(t.Context())
	}
}
