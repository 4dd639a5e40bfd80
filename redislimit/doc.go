// Package redislimit keeps limits in Redis or Valkey, so that a fleet shares them.
//
//	store, err := redislimit.Open(ctx, "redis://localhost:6379")
//	limiter := stint.NewLimiter(store)
//
// Open returns a fleet.Store around the Store that Connect returns. It decides within 25 ms:
// if the server does not answer, by this instance's share of the limits. With the bare Store
// of Connect, callers wait until their contexts are done, and get errors.
//
// The server decides a request by its own clock, all or nothing, with the same arithmetic
// as in memory. While two calls are under way, further requests are collected and sent
// together in the next call, in their order; identical requests are sent as one with a
// count. No request waits for others to come. The server must be Redis 6.2 or later, or any
// Valkey: a single server, behind Sentinels, or a Cluster.
//
// # Keys
//
// In namespace stint, the count of key "alice" under a token bucket of one minute named
// login has the key
//
//	stint:{5:alice}t1m:login
//
// The limited key is in the hash tag, so that all its counts share a slot of a Cluster. Its
// length comes first, so that no key can imitate another. A key of more than 64 bytes is
// replaced by its hash. Every count expires in the millisecond after it has become unused.
//
// Holds of requests in flight are separate from the count, at stint:{5:alice}h and the
// limit's ID: a hash with a head and one field for each hold, at most 100 bytes each. A limit
// that is not held has no such key. An in_flight limit has only this key.
//
// The fleet also shares Documents: each is a hash at NAMESPACE:{doc:NAME}, which does not
// expire. Changes of documents are published on the channel NAMESPACE:{doc}.
//
// Instances count each other at NAMESPACE:{members}, and announce their rules at
// NAMESPACE:{announced}. The keys of refunds and resets are published on the channel
// NAMESPACE:{invalidated}. Each instance publishes to itself on NAMESPACE:{hello}:ID.
//
// Two services on one Redis need different namespaces (Options.Namespace, or ?namespace= in
// the address). In the same namespace they share documents, bans, the kill switch, and the
// counts of limits with equal names and keys. Different databases (SELECT) do not suffice,
// because channels are shared by all databases.
//
// # Clusters
//
// In a Cluster, a request whose asks have several keys takes one round trip for each slot,
// all at the same time. If some slots refuse, a second round trip refunds what the others
// charged. No limit is ever exceeded, but a refused request may take units until then, and
// the ResetAfter of an ask that would have allowed it includes those units. If a refund
// fails, the units stay taken. Slots with leaky buckets are asked last, one by one, because
// a place in a queue cannot be refunded: it is lost if a second queue refuses. If asks have
// penalties, an earlier round trip looks for bans; if it finds one, another one asks how
// long the limits refuse. Units that a refused request held in some slots are settled with
// cost 0.
//
// # Errors
//
// An error that wraps fleet.ErrNotCharged means that nothing was charged: the server refused
// the call (for example with READONLY, OOM, LOADING or CLUSTERDOWN), no connection could be
// made, or the request's context or Deadline ended before it was sent. After any other
// error, the request may have been charged: it was sent but not answered in time, the
// connection was lost, or the server refused a command of the script (NOPERM). A call is
// sent again only if the server says that nothing ran: NOSCRIPT, and in a Cluster MOVED, ASK
// and TRYAGAIN.
//
// Calls return when their contexts are done, whatever the server does. A connection on which
// the server breaks the protocol is closed.
//
// # Permissions
//
// A Redis user needs these permissions, for namespace stint:
//
//	to decide                 ~stint:* +info +evalsha +eval +time +get +set +del
//	                          +llen +lindex +lset +rpush +rpop +ltrim
//	                          +pexpire +pexpireat
//	in a Cluster, besides     +cluster|slots +cluster|shards
//	to hold units, and list   +hget +hmget +hset +hdel +hgetall
//	  them (Holds, Held)
//	to look at counts         +pttl
//	  (Inspect)
//	to list bans (Banned)     +scan +mget
//	to Clear                  +scan
//	to share documents        +hget +hmget +hset +hdel
//	to Watch them             &stint:* +publish +subscribe
//	to Notify                 &stint:* +publish +subscribe
//	to count instances        +zadd +zremrangebyscore +zcard
//	  (Heartbeat)
//	to Announce               +zadd +zremrangebyscore +zrevrange
//	to count in EnvoyKeys     +incrby +decrby +ttl +expire, and ~ the keys
//	to Report                 +zadd +zrange +zrem +hset +hget +hdel
//
// Violate and Record need the permissions to decide. Without those to publish and subscribe,
// documents are still shared, but an instance sees a change only when it asks.
package redislimit
