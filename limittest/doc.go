// Package limittest is the kit that every stint.Store must pass, those of this
// module and those of strangers:
//
//	func TestStore(t *testing.T) {
//		limittest.Kit{New: func(t *testing.T) stint.Store { return newStore(t) }}.Run(t)
//	}
//
// It holds a store to the contract in every number: to cases with known answers,
// to a slow and obvious [Model] over many random steps, to what must be true of
// each algorithm whatever happens, when clocks jump, too, and, under concurrency,
// to some order of the calls.
//
// Most of the kit hands in the instants, by Request.At, and runs through years in
// a second. A Store must count such requests by that time alone: it must not let
// them expire by its own clock. The kit makes no use of what the contract leaves
// open: when a Store drops what equals an unused key, how it answers with waits of
// 2^52 µs (142 years) or longer, and which of two equally long bans it names when
// one request leads to both. Records, which a Recorder shows by its own clock, are
// tested by that.
//
// [Twins] holds two stores equal to each other, and [Faulty] lets a store fail
// where a test wants it to.
package limittest
