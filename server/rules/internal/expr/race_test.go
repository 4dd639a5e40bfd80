//go:build race

package expr

// The race detector has pools drop things, which are made again.
const raceFactor = 2
