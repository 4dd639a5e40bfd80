//go:build !race

package attack

// RaceDetector reports whether this program runs with the race detector, which takes several times
// the memory.
const RaceDetector = false
