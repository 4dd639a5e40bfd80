// Package server is the rate limiter as a service: a gateway that limits HTTP on
// its way to upstreams, and a check API for everyone who wants only the answer.
// Both go through Server.Decide, the one road from a request to its verdict.
//
// What a configuration file says of it is in package config. It knows nothing of Redis: a
// Config brings a stint.Limiter over a Store of any kind.
package server
