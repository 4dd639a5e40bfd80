// Package stint limits how often things happen: exactly, by five algorithms, in
// the memory of one process or, with package redislimit, in a Redis or Valkey
// that a whole fleet shares. Both decide by the same integer arithmetic.
//
//	var perMinute = stint.MustLimit("api: 100 per 1m")
//	var limiter stint.Limiter // lives in memory
//
//	d, err := limiter.Allow(ctx, "user:42", perMinute)
//	if err == nil && !d.Allowed {
//		// come back in d.RetryAfter
//	}
//
// A [Limit] says how much is allowed. A key says whom or what is counted. A
// [Limiter] asks a [Store] and is what callers use; [Memory] is the store that
// comes with it. A [Decision] is the answer: a denial is a Decision too, and an
// error means that nothing could be decided.
//
// One [Request] may face several limits under several keys: it is charged under
// all of them or, if any refuses it, under none. A refused request never costs
// anything.
//
// If the cost of a request is known only when it ends, or if it matters how many run at once,
// [Limiter.Reserve] holds units meanwhile, and [Reservation.Settle] charges what it did cost.
//
// To limit a function, see [Guard]. For HTTP, see package httplimit. For a fleet,
// redislimit.Open returns a Store of package fleet, which decides in time whatever the network
// does:
//
//	store, err := redislimit.Open(ctx, "redis://localhost:6379")
//	limiter := stint.NewLimiter(store)
package stint
