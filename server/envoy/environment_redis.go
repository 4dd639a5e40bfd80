package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/stintdev/stint/server/config"
)

// redisNames are the variables that say where and how to reach Redis.
var redisNames = []string{"REDIS_URL", "REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_AUTH", "REDIS_TLS", "REDIS_SENTINEL_AUTH"}

// redis makes one address of the variables REDIS_*. If none of them says where Redis is, counts
// are kept in memory.
func (e *environment) redis(s *Settings) Redis {
	r := Redis{Store: "memory", Chosen: e.set(redisNames...), DecisionTimeout: e.duration("STINT_DECISION_TIMEOUT", 0, time.Millisecond)}
	if s.KeyPrefix != "" && !s.SharedCounters {
		r.Namespace = namespaceOf(s.KeyPrefix)
	}
	timeout := e.duration("REDIS_TIMEOUT", 0, 0)
	address := e.values["REDIS_URL"]
	if !r.Chosen || address == "memory" {
		return r
	}
	if scheme, _, ok := strings.Cut(address, "://"); ok && scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		e.redisAlone("is an address of Stint, which has all settings")
		r.Store = address
		return r
	}
	t := e.redisTarget(address)
	if t == nil {
		return r
	}
	if timeout > 0 {
		t.query.Set("timeout", min(max(timeout, 10*time.Millisecond), time.Minute).String())
	}
	e.redisTLS(t)
	r.Store = t.address()
	return r
}

// redisAlone reports the variables that contradict a REDIS_URL that has everything.
func (e *environment) redisAlone(why string) {
	for _, name := range []string{"REDIS_AUTH", "REDIS_TLS", "REDIS_SENTINEL_AUTH"} {
		if e.set(name) {
			e.report(name, "REDIS_URL %s: unset this", why)
		}
	}
}

// redisTarget is an address in parts.
type redisTarget struct {
	kind           string // redis, redis+cluster, redis+sentinel or unix
	encrypted      bool
	user, password string
	hosts          string
	path           string // after the hosts, with its slash
	query          url.Values
}

func (t *redisTarget) address() string {
	scheme := t.kind
	if rest, ok := strings.CutPrefix(scheme, "redis"); ok && t.encrypted {
		scheme = "rediss" + rest
	}
	at := ""
	if t.user != "" || t.password != "" {
		at = escape(t.user) + ":" + escape(t.password) + "@"
	}
	query := ""
	if len(t.query) > 0 {
		query = "?" + t.query.Encode()
	}
	return scheme + "://" + at + t.hosts + t.path + query
}

// escape escapes all that may end a user or a password in an address.
func escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// redisTarget reads REDIS_TYPE, REDIS_SOCKET_TYPE, REDIS_URL and the passwords. nil: something is wrong.
func (e *environment) redisTarget(address string) *redisTarget {
	t := &redisTarget{kind: "redis", query: url.Values{}}
	kind := e.choice("REDIS_TYPE", "SINGLE", "CLUSTER", "SENTINEL")
	if address == "" {
		if kind != "SINGLE" || e.values["REDIS_SOCKET_TYPE"] == "tcp" {
			e.report("REDIS_URL", "is missing")
			return nil
		}
		address = "/var/run/nutcracker/ratelimit.sock" // the default of envoyproxy/ratelimit
	}
	if scheme, rest, ok := strings.Cut(address, "://"); ok {
		if rest = e.redisURL(t, scheme, rest); rest == "" {
			return nil
		}
		address = rest
	}
	auth := e.values["REDIS_AUTH"]
	if auth != "" && t.password != "" {
		e.report("REDIS_AUTH", "REDIS_URL has a password, too: give one of them")
	}
	if user, password, ok := strings.Cut(auth, ":"); ok {
		t.user, t.password = user, password
	} else if auth != "" {
		t.password = auth
	}
	sentinelAuth := e.values["REDIS_SENTINEL_AUTH"]
	switch kind {
	case "CLUSTER":
		t.kind, t.hosts = "redis+cluster", address
		return t
	case "SENTINEL":
		master, hosts, ok := strings.Cut(address, ",")
		if !ok || master == "" || hosts == "" {
			e.report("REDIS_URL", "with REDIS_TYPE=SENTINEL: want the name of the master and the Sentinels, as in mymaster,host1:26379,host2:26379")
			return nil
		}
		t.kind, t.hosts, t.path = "redis+sentinel", hosts, "/"+master
		if user, password, ok := strings.Cut(sentinelAuth, ":"); ok {
			t.query.Set("sentinel_user", user)
			t.query.Set("sentinel_password", password)
		} else if sentinelAuth != "" {
			t.query.Set("sentinel_password", sentinelAuth)
		}
		return t
	}
	e.redisSingle(t, address)
	return t
}

// redisURL reads a REDIS_URL with a scheme, and returns its hosts; empty: something is wrong.
func (e *environment) redisURL(t *redisTarget, scheme, rest string) string {
	t.encrypted = scheme == "rediss"
	if rest, query, ok := strings.Cut(rest, "?"); ok {
		values, err := url.ParseQuery(query)
		if err != nil {
			e.report("REDIS_URL", "its parameters cannot be read: escape %% and ; in them")
			return ""
		}
		t.query = values
		return e.redisURL(t, scheme, rest)
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, password, _ := strings.Cut(rest[:i], ":")
		rest = rest[i+1:]
		var err1, err2 error
		t.user, err1 = url.PathUnescape(user)
		t.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			e.report("REDIS_URL", "its user or password cannot be read: escape %% in them")
			return ""
		}
	}
	if scheme == "unix" {
		t.kind = "unix"
	} else if i := strings.IndexByte(rest, '/'); i >= 0 {
		t.path, rest = rest[i:], rest[:i]
	}
	if rest == "" {
		e.report("REDIS_URL", "has no host")
	}
	return rest
}

// redisSingle takes the address of one server: host:port, or the path of a socket. Where
// REDIS_SOCKET_TYPE is not set, what begins with a slash is a path.
func (e *environment) redisSingle(t *redisTarget, address string) {
	isUnix := t.kind == "unix" || strings.HasPrefix(address, "/")
	switch socket := e.values["REDIS_SOCKET_TYPE"]; {
	case socket == "tcp" && isUnix:
		e.report("REDIS_SOCKET_TYPE", "tcp, but REDIS_URL is the path of a socket")
	case socket == "unix" && !isUnix && !strings.Contains(address, "/") && strings.Contains(address, ":"):
		e.report("REDIS_SOCKET_TYPE", "unix, but REDIS_URL is host:port: set it to tcp")
	case socket == "unix":
		isUnix = true
	case socket != "" && socket != "tcp":
		e.report("REDIS_SOCKET_TYPE", "%.60q: want tcp or unix", socket)
	}
	if !isUnix {
		t.hosts = address
		return
	}
	path, err := filepath.Abs(address)
	if err != nil {
		e.report("REDIS_URL", "%v", err)
	}
	t.kind, t.path = "unix", path
}

// redisTLS adds the certificates.
func (e *environment) redisTLS(t *redisTarget) {
	names := map[string]string{"REDIS_TLS_CACERT": "ca", "REDIS_TLS_CLIENT_CERT": "cert", "REDIS_TLS_CLIENT_KEY": "key"}
	if e.boolean("REDIS_TLS", false) {
		t.encrypted = true
	}
	skip := e.boolean("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", false)
	switch {
	case !t.encrypted:
		for name := range names {
			if e.set(name) {
				e.ignore = append(e.ignore, name)
			}
		}
		return
	case t.kind == "unix":
		e.report("REDIS_TLS", "is for tcp, but REDIS_URL is the path of a socket")
		return
	}
	for name, parameter := range names {
		if e.set(name) {
			t.query.Set(parameter, e.values[name])
		}
	}
	if e.set("REDIS_TLS_CLIENT_CERT") != e.set("REDIS_TLS_CLIENT_KEY") {
		e.report("REDIS_TLS_CLIENT_CERT", "and REDIS_TLS_CLIENT_KEY must be given together")
	}
	if skip {
		t.query.Set("verify", "chain")
	}
}

// namespaceOf is a namespace for a CACHE_KEY_PREFIX, which may have any characters: the prefix
// itself where it is a namespace, else one derived from it.
func namespaceOf(prefix string) string {
	if name, err := config.ParseNamespace(prefix); err == nil {
		return name
	}
	digest := sha256.Sum256([]byte(prefix))
	return "stint-" + hex.EncodeToString(digest[:6])
}
