// Command bench measures Stint beside other limiters and beside floors: the
// machine's time for the least that any limiter must do. It writes
// docs/benchmarks.md, with its figures and pictures.
//
// Each subject runs in a process of its own, so that its heap and its collector do
// not slow down others. All processes of a table live at once and take turns, so
// that disturbances of the machine affect all alike. Ratios are taken within each
// round, and the document shows their medians.
//
// It is a module of its own: the compared limiters never enter the product's
// go.mod.
package main
