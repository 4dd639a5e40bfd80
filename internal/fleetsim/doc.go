// Package fleetsim simulates fleets of up to 1,000 instances that share limits and lease
// hot keys, in virtual time, with the real code over one Memory. "make fleet" writes
// docs/leases.md and docs/leases.svg.
package fleetsim
