// Package limittest tests implementations of stint.Store:
//
//	func TestStore(t *testing.T) {
//		limittest.Kit{New: func(t *testing.T) stint.Store { return newStore(t) }}.Run(t)
//	}
//
// The kit checks every number of the answers: in cases with known answers, against a slow
// and simple Model over many random steps, against properties that each algorithm always
// has, even when clocks jump, and, with concurrent calls, against some order of these
// calls.
//
// Most of the kit sets the instants of requests, by Request.At, and covers years in a
// second. A Store must count such requests only by that time, and must not let them expire by its
// own clock. The kit does not test what the contract leaves open: when a Store drops a count that
// equals an unused key, how it answers when a wait is 2^52 µs (142 years) or longer, and which of
// two equally long bans it names when one request leads to both. It tests an Inspector by the
// Store's own clock.
//
// If a Store is a stint.Holder, the kit also tests its holds, and lets clocks step back by less than
// a second after a hold expired: for requests with an instant, a Store must keep the record for that
// long. It does not test the answer of a HoldRenew with Again about a hold that was released two
// times HoldCall.For ago or earlier.
//
// Twins compares two stores with each other. Faulty makes a store fail where a test wants
// it to.
package limittest
