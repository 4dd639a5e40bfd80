//go:build !race

package rules

const raceFactor = 1
