package fleet_test

import (
	"testing"

	"github.com/stintdev/stint/internal/golden"
)

// What one instance does, decision by decision and call by call, in stories that somebody
// wrote and in stories drawn at random.
func TestStories(t *testing.T) { golden.Run(t, "testdata/stories.txt", tell) }

func TestDrawnStories(t *testing.T) { golden.Run(t, "testdata/drawn.txt", tell) }
