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
// For HTTP, see package httplimit. For a fleet, redislimit.Open returns a Store of
// package fleet, which decides in time whatever the network does:
//
//	store, err := redislimit.Open(ctx, "redis://localhost:6379")
//	limiter := stint.NewLimiter(store)
//
// # Say what is allowed
//
// A [Limit] says how much is allowed. [ParseLimit] and [MustLimit] read one from a text;
// [NewLimit] makes one from a [Spec], which has an [Algorithm] or a [Calendar] with windows of
// one [CalendarUnit]. [Unlimited], [NoDebt] and [DefaultHold] are values for it.
//
// # Decide
//
// A [Limiter] decides. It counts in a [Memory], or in the Store passed to [NewLimiter]. A key of
// up to [MaxKey] bytes says whom or what is counted. [Limiter.Allow] asks about one key under one
// limit, and [Limiter.Take] decides a [Request] of up to [MaxAsks] asks: it is charged under all
// their limits or, if any refuses, under none. Each [Ask] has its own key and limit.
// [Limiter.TakeBatch] decides many requests and fills in an [Answer] to each.
//
// A [Decision] is the answer: its [Outcome], when to try again (or [Never]), and the [Source] that
// decided. A denial is a Decision, too, and costs nothing. An error means that nothing could be
// decided: [ErrRequest], that the request is malformed; [ErrFull], that the Store has no room. If
// the Store does not answer, [OnError] says how to decide. [Limiter.Refund] undoes a decision.
//
// # Wait
//
// [Limiter.Wait], [Limiter.WaitN] and [Limiter.TakeWait] sleep until the caller's turn, in the order
// in which callers came. A denial is a [RefusedError] there. [Limiter.Pause] makes all callers wait
// because a server said so, and [PauseAsk] makes other instances wait, too.
//
// # Reserve
//
// If it matters how many requests run at once, [Limiter.Acquire] holds a unit while one runs. If
// the cost of a request is known only when it ends, [Limiter.Reserve] returns a [Reservation]
// that holds units meanwhile, and [Reservation.Settle] charges the final cost; [ErrHoldLost]
// means that the hold was lost before. [Limiter.Charge] charges units that are already spent.
//
// A program that settles the holds of another one passes a [HoldCall] with a [HoldAction]
// to [Limiter.Holds]. A [HoldID] names the holds of a request: see [NewHoldID] and
// [ParseHoldID].
//
// # Punish
//
// A [Penalty], which [NewPenalty] makes from a [PenaltySpec], warns keys that are refused again and
// again, and bans them. [Limiter.Violate] counts other violations, [Limiter.Pardon] forgets them, and
// [Limiter.Record] returns the [Record] of a key.
//
// # Guard a function
//
// A [Guard] limits a function for each of its callers. [Guarded] is such a function, with methods
// that read and change what is stored about a caller. [Caller] finds the caller in the context,
// where [WithSubject] and [WithClient] put it, and [Client] finds the address alone. [Messages] are
// texts for callers. [Anonymous] says what happens to calls without a key, which may share
// [AnonymousKey].
//
// # Observe
//
// [Limiter.Observe] is called after each decision, and [Limiter.ObserveHold] when a hold ends; packages
// promlimit and otellimit make metrics of them. [Limiter.Peek] looks at a key and takes nothing, and
// [Limiter.Banned] lists bans.
//
// # Write a store
//
// A [Store] keeps counts and decides; [Strictest] combines the answers to its asks. It may also be a
// [BatchTaker], [Refunder], [Resetter], [Violator], [Networked], an [Inspector], which reads what is
// [Stored], and a [Holder], which keeps each [Hold]. A layer finds those of the Store that it wraps with
// [As], and calls them with [TakeBatch], [Refund], [Reset], [Violate] and [Holds], which return
// [ErrUnsupported] if there is none. Package limittest tests Stores. To count in a database, do not
// write one: package store makes one from a method that changes rows. [Internal] is for packages of
// Stint.
package stint
