// Package redislimit keeps limits in Redis or Valkey, so that a fleet shares them.
//
//	store, err := redislimit.Open(ctx, "redis://localhost:6379")
//	limiter := stint.NewLimiter(store)
//
// A decision comes in 25 ms whatever the server does, by this instance's share of the limits
// if it must: Open puts a fleet.Store around the Store that Connect returns. Over that one
// alone, callers wait as long as their contexts, and get errors.
//
// A request is decided on the server by its clock with the same arithmetic as in
// memory, all or nothing. Requests that come while two calls are under way go
// together in the next one, first come, first served, and identical ones as one
// with a count; no request waits for others to come. The server must be Redis 6.2 or later, or any
// Valkey, single, behind Sentinels or in a Cluster.
//
// # Keys
//
// Under namespace stint, the count of key "alice" under a token bucket of one
// minute named login lies at
//
//	stint:{5:alice}t1m:login
//
// The subject stands in the hash tag, so that all limits of one subject share a
// slot of a Cluster, and behind its length, so that no subject can imitate
// another. A subject of more than 64 bytes is replaced by a hash of it. Every key
// expires by itself in the millisecond after it has become unused.
//
// What a fleet shares beside its counts is in Documents: each one a hash at
// NAMESPACE:{doc:NAME}, which does not expire. Changes of documents are published on the
// channel NAMESPACE:{doc}.
//
// Instances count each other at NAMESPACE:{members}, and announce which rules they have
// at NAMESPACE:{announced}. The keys of refunds and resets are published on the channel
// NAMESPACE:{invalidated}, and each instance publishes to itself on NAMESPACE:{hello}:ID.
//
// Two services on one Redis need a namespace each (Options.Namespace, or ?namespace=
// in the address): in the same one they share the counts of limits that have equal
// names and keys, and each other's documents, bans and kill switch. Databases (SELECT)
// do not separate them wholly, since channels belong to no database.
//
// # Clusters
//
// In a Cluster, a request whose asks have several subjects takes one round trip for each
// slot, at the same time, and where some refuse a second one, to refund what the others
// took: no limit is ever exceeded, but a refused request may hold units for that long, and
// the ResetAfter of an ask that would have allowed it is as if it had. If a refund fails,
// the units stay taken. Slots with leaky buckets are asked after the others, one by one,
// since a place in a queue is not refunded: it is lost where a second queue refuses. Where
// asks have penalties, a round trip before looks for bans, and where a ban runs, another
// one finds how long the limits refuse.
//
// # Errors
//
// A request that fails has charged nothing where the server refused the call, such as
// with READONLY, OOM, LOADING or CLUSTERDOWN, where no connection could be made, or where
// its context was done, or its Deadline had passed, before it was sent: then the error
// wraps stint.ErrNotCharged. Where that was so before an answer came, the connection was
// lost, or the server refused a command of the script (NOPERM), it may have been charged.
// No call is sent again, unless the server said that nothing ran: NOSCRIPT, and in a
// Cluster MOVED, ASK and TRYAGAIN.
//
// Calls return when their contexts are done, whatever the server does. A server that
// breaks the protocol loses its connection.
//
// # Permissions
//
// What a Redis user must be allowed, for namespace stint:
//
//	to decide                 ~stint:* +info +evalsha +eval +time +get +set +del
//	                          +llen +lindex +lset +rpush +rpop +ltrim
//	                          +pexpire +pexpireat
//	to look at counts         +pttl
//	  (Inspect)
//	to list bans (Banned)     +scan +mget
//	to Clear                  +scan
//	to share documents        +hget +hmget +hset +hdel
//	to Watch them             &stint:* +publish +subscribe
//	to Listen                 &stint:* +publish +subscribe
//	to count instances        +zadd +zremrangebyscore +zcard
//	  (Heartbeat)
//	to Announce               +zadd +zremrangebyscore +zrevrange
//
// Violations and Record need no more than decisions do. A user who may not publish or
// subscribe still shares documents; changes then arrive when callers ask.
package redislimit
