//go:build race

package limittest

const raceDetector = true
