// Command bench measures Stint beside other limiters and beside floors: what the
// machine takes for the least that any limiter must do. It writes
// docs/benchmarks.md, the figures it was made of and the pictures in it.
//
// Each subject lives in a process of its own, so that neither its heap nor its
// collector is another's burden. All processes of a table are alive at once and
// take turns, so that what disturbs the machine disturbs all alike. A ratio is
// taken within each round, and its median is what the document shows.
//
// It is a module of its own: what it compares with never enters the product's
// go.mod.
package main
