// Package chaos proves by test what docs/reliability.md promises: three instances
// decide by one Redis, a Cluster or a Sentinel set, under load, while it fails in
// every way that we know how to bring about. `make chaos` runs it at length and
// writes its table into that page.
package chaos
