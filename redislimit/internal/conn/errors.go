package conn

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
)

var advice = map[string]string{
	"NOAUTH":    "the server requires a password: redis://user:password@host, or the parameter password_file",
	"WRONGPASS": "the server does not accept this user and password",
	"NOPERM": "the server's user lacks a permission: Stint needs INFO, EVALSHA, EVAL, TIME, GET, SET, DEL, LLEN, LINDEX, LSET, RPUSH, RPOP, LTRIM, PEXPIRE and PEXPIREAT on its namespace (ACL: ~stint:*); " +
		"HGET, HMGET, HSET, HDEL and HGETALL to hold units; PTTL to look at counts; SCAN and MGET to list bans, SCAN to clear; HGET, HMGET, HSET, HDEL, PUBLISH and SUBSCRIBE to share documents (ACL: &stint:*); ZADD, ZREMRANGEBYSCORE, ZCARD and ZREVRANGE to count instances and compare their rules",
	"READONLY":    "the server is a replica: connect to the master, or use redis+sentinel://",
	"OOM":         "the server is out of memory (maxmemory) and refuses new counts: raise maxmemory",
	"MISCONF":     "the server refuses writes because it cannot save its data (stop-writes-on-bgsave-error, AOF): look at its log and its disk",
	"NOREPLICAS":  "the server refuses writes because too few replicas follow it (min-replicas-to-write)",
	"LOADING":     "the server is still loading its data: try again soon",
	"MASTERDOWN":  "the server is a replica that has lost its master",
	"CLUSTERDOWN": "the Cluster is down: some slots have no master",
	"TRYAGAIN":    "the Cluster is moving this subject to another node: try again soon",
	"BUSY":        "the server is busy with a script that does not end: stop it with SCRIPT KILL",
	"MOVED":       "the server belongs to a Cluster: use redis+cluster://",
	"MAXCLIENTS":  "the server has as many clients as its maxclients allows: raise maxclients, or close connections that are not needed (CLIENT LIST)",
	"NOCERT":      "the server requires a client certificate (tls-auth-clients), and the address names none: add cert=FILE and key=FILE to it",
	"BADCERT":     "the server does not accept this client certificate: cert must be signed by an authority in the server's tls-ca-cert-file, and be valid now",
	"NOHANDSHAKE": "the server ended the TLS handshake, as it does when it requires a client certificate (tls-auth-clients) and gets none: add cert=FILE and key=FILE to the address",
	"CROSSSLOT":   "the server belongs to a Cluster: use redis+cluster://",
}

type advised struct {
	text string
	error
}

func (a advised) Error() string { return a.text }
func (a advised) Unwrap() error { return a.error }

// Explain adds advice to an error, once. It leaves out the server's text about a password, which
// says the same.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	word := code(err)
	a, ok := advice[word]
	if !ok || errors.As(err, new(advised)) {
		return err
	}
	if word == "NOAUTH" || word == "WRONGPASS" {
		return advised{a + " (" + word + ")", err}
	}
	return advised{a + ": " + err.Error(), err}
}

// code is the server's code in err, if there is advice for it; else empty.
func code(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		word, _, _ := strings.Cut(err.Error(), " ")
		if _, known := advice[word]; known || word == "NOSCRIPT" {
			return word
		}
		// Before Redis 7, an error within a script is wrapped in another one.
		if text := err.Error(); strings.HasPrefix(text, "ERR Error running script") || strings.HasPrefix(text, "@user_script") {
			for _, word := range append([]string{"READONLY"}, writesRefused...) {
				if strings.Contains(text, ": -"+word+" ") {
					return word
				}
			}
		}
		if strings.HasPrefix(err.Error(), errMaxClients.Error()) {
			return "MAXCLIENTS"
		}
		if word := refusedByTLS(err); word != "" {
			return word
		}
		// The error for a missing permission of a command within a script has no code.
		if text := strings.TrimPrefix(err.Error(), "ERR "); strings.HasPrefix(text, "The user executing the script can't") || strings.HasPrefix(text, "ACL failure in script") {
			return "NOPERM"
		}
	}
	return ""
}

// IsWrongType reports whether a server replied that a key holds another type. From within a script,
// some servers put other words before it.
func IsWrongType(err error) bool {
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && strings.Contains(err.Error(), "WRONGTYPE")
}

// refusals are codes of errors that mean that nothing was written. NOPERM may come from within a
// script.
var refusals = map[string]bool{
	"READONLY": true, "LOADING": true, "MASTERDOWN": true, "CLUSTERDOWN": true,
	"BUSY": true, "TRYAGAIN": true, "MOVED": true, "NOAUTH": true, "WRONGPASS": true, "CROSSSLOT": true,
}

// writesRefused are the codes of a server that refuses writes for now: out of memory, unable to
// save, or without enough replicas.
var writesRefused = []string{"OOM", "MISCONF", "NOREPLICAS"}

// NothingWritten reports whether the call was not sent, or refused before it ran. (A script that
// has written is no longer refused for lack of memory.)
func NothingWritten(err error) bool {
	var dial *net.OpError
	word := code(err)
	return refusals[word] || slices.Contains(writesRefused, word) ||
		errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, new(notConnected))
}

// WritesRefused reports whether the server refuses only writes.
func WritesRefused(err error) bool { return slices.Contains(writesRefused, code(err)) }

// alerts are crypto/tls's texts for TLS alerts of a server, which have no type, with their codes in
// advice.
var alerts = map[string]string{
	"certificate required":          "NOCERT",
	"bad certificate":               "BADCERT",
	"unsupported certificate":       "BADCERT",
	"revoked certificate":           "BADCERT",
	"expired certificate":           "BADCERT",
	"unknown certificate":           "BADCERT",
	"unknown certificate authority": "BADCERT",
	"handshake failure":             "NOHANDSHAKE",
}

func refusedByTLS(err error) string {
	if err == nil {
		return ""
	}
	_, alert, _ := strings.Cut(err.Error(), "remote error: tls: ")
	return alerts[alert]
}
