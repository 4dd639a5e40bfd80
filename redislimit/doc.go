// Package redislimit keeps limits in Redis or Valkey, so that a fleet shares them.
//
//	store, err := redislimit.Open(ctx, "redis://localhost:6379")
//	limiter := stint.NewLimiter(store)
//
// A request is one EVALSHA, decided on the server by its clock with the same
// arithmetic as in memory, all or nothing. It needs Redis 6.2 or later, or any
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
package redislimit
