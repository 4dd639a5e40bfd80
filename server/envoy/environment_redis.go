package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/server/config"
)

// redisNames are the variables that say where and how to reach Redis.
var redisNames = []string{"REDIS_URL", "REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_AUTH", "REDIS_TLS", "REDIS_SENTINEL_AUTH"}

// redis reads the variables REDIS_*. If none gives an address, counts are kept in memory.
func (e *environment) redis() {
	// Longer than for a gateway's request, because Envoy sends its own timeout with each call, and Stint
	// answers before that. So a pause of Redis or Stint of 200 ms changes no answer; see BenchmarkThrottled.
	wait := e.duration("STINT_DECISION_TIMEOUT", 250*time.Millisecond, time.Millisecond)
	e.give("decision_timeout", limittext.Duration(wait), "STINT_DECISION_TIMEOUT")
	chosen, perSecond, store, second := e.set(redisNames...), e.boolean("REDIS_PERSECOND", false), "memory", ""
	if chosen {
		if e.values["REDIS_URL"] != "memory" {
			store = e.redisAddress("REDIS_", "/var/run/nutcracker/ratelimit.sock")
		}
		e.give("store", store, "REDIS_URL")
	}
	switch {
	case perSecond && store == "memory":
		e.report("REDIS_PERSECOND", "needs a REDIS_URL: counts are kept in memory")
	case perSecond:
		if second = e.redisAddress("REDIS_PERSECOND_", "/var/run/nutcracker/ratelimitpersecond.sock"); second != "memory" {
			e.give("per_second_store", second, "REDIS_PERSECOND_URL")
		}
	default:
		e.ignored("REDIS_PERSECOND_SOCKET_TYPE", "REDIS_PERSECOND_TYPE", "REDIS_PERSECOND_URL", "REDIS_PERSECOND_AUTH",
			"REDIS_PERSECOND_TLS", "REDIS_PERSECOND_SENTINEL_AUTH", "REDIS_PERSECOND_TIMEOUT")
	}
	if store == "memory" && e.boolean("STINT_ENVOY_KEYS", false) {
		e.report("STINT_ENVOY_KEYS", "needs a Redis that is shared with envoyproxy/ratelimit: set REDIS_URL")
	}
	if chosen && !strings.HasPrefix(store, "rediss") && !strings.HasPrefix(second, "rediss") {
		e.ignored("REDIS_TLS_CACERT", "REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY")
	}
}

// redisAddress makes one address from the variables with a prefix. otherwise is the socket that
// envoyproxy/ratelimit uses without a URL.
func (e *environment) redisAddress(prefix, otherwise string) string {
	timeout := e.duration(prefix+"TIMEOUT", 0, 0)
	address := e.values[prefix+"URL"]
	if scheme, _, ok := strings.Cut(address, "://"); ok && scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		for _, name := range []string{"AUTH", "TLS", "SENTINEL_AUTH"} {
			if e.set(prefix + name) {
				e.report(prefix+name, "%sURL is an address of Stint, which has all settings: unset this", prefix)
			}
		}
		return address
	}
	t := &redisTarget{prefix: prefix, kind: "redis", query: url.Values{}}
	if !e.redisTarget(t, address, otherwise) {
		return "memory"
	}
	if timeout > 0 {
		t.query.Set("timeout", min(max(timeout, 10*time.Millisecond), time.Minute).String())
	}
	e.redisTLS(t)
	return t.address()
}

// redisTarget is an address in parts.
type redisTarget struct {
	prefix         string // of the variables
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

// escape escapes all characters that may end a user or a password in an address.
func escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// redisTarget reads TYPE, SOCKET_TYPE, URL and the passwords into t. false: something is wrong.
func (e *environment) redisTarget(t *redisTarget, address, otherwise string) bool {
	kind := e.choice(t.prefix+"TYPE", "SINGLE", "CLUSTER", "SENTINEL")
	if address == "" {
		if kind != "SINGLE" || e.values[t.prefix+"SOCKET_TYPE"] == "tcp" {
			e.report(t.prefix+"URL", "is missing")
			return false
		}
		address = otherwise
	}
	if scheme, rest, ok := strings.Cut(address, "://"); ok {
		if rest = e.redisURL(t, scheme, rest); rest == "" {
			return false
		}
		address = rest
	}
	auth := e.values[t.prefix+"AUTH"]
	if auth != "" && t.password != "" {
		e.report(t.prefix+"AUTH", "%sURL has a password, too: give one of them", t.prefix)
	}
	if user, password, ok := strings.Cut(auth, ":"); ok {
		t.user, t.password = user, password
	} else if auth != "" {
		t.password = auth
	}
	sentinelAuth := e.values[t.prefix+"SENTINEL_AUTH"]
	switch kind {
	case "CLUSTER":
		t.kind, t.hosts = "redis+cluster", address
		return true
	case "SENTINEL":
		master, hosts, ok := strings.Cut(address, ",")
		if !ok || master == "" || hosts == "" {
			e.report(t.prefix+"URL", "with %sTYPE=SENTINEL: want the name of the master and the Sentinels, as in mymaster,host1:26379,host2:26379", t.prefix)
			return false
		}
		t.kind, t.hosts, t.path = "redis+sentinel", hosts, "/"+master
		if user, password, ok := strings.Cut(sentinelAuth, ":"); ok {
			t.query.Set("sentinel_user", user)
			t.query.Set("sentinel_password", password)
		} else if sentinelAuth != "" {
			t.query.Set("sentinel_password", sentinelAuth)
		}
		return true
	}
	e.redisSingle(t, address)
	return true
}

// redisURL reads a REDIS_URL with a scheme, and returns its hosts; empty: something is wrong.
func (e *environment) redisURL(t *redisTarget, scheme, rest string) string {
	t.encrypted = scheme == "rediss"
	if rest, query, ok := strings.Cut(rest, "?"); ok {
		values, err := url.ParseQuery(query)
		if err != nil {
			e.report(t.prefix+"URL", "its parameters cannot be read: escape %% and ; in them")
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
			e.report(t.prefix+"URL", "its user or password cannot be read: escape %% in them")
			return ""
		}
	}
	if scheme == "unix" {
		t.kind = "unix"
	} else if i := strings.IndexByte(rest, '/'); i >= 0 {
		t.path, rest = rest[i:], rest[:i]
	}
	if rest == "" {
		e.report(t.prefix+"URL", "has no host")
	}
	return rest
}

// redisSingle takes the address of one server: host:port, or the path of a socket. Where
// REDIS_SOCKET_TYPE is not set, what begins with a slash is a path.
func (e *environment) redisSingle(t *redisTarget, address string) {
	isUnix := t.kind == "unix" || strings.HasPrefix(address, "/")
	switch socket := e.values[t.prefix+"SOCKET_TYPE"]; {
	case socket == "tcp" && isUnix:
		e.report(t.prefix+"SOCKET_TYPE", "tcp, but %sURL is the path of a socket", t.prefix)
	case socket == "unix" && !isUnix && !strings.Contains(address, "/") && strings.Contains(address, ":"):
		e.report(t.prefix+"SOCKET_TYPE", "unix, but %sURL is host:port: set it to tcp", t.prefix)
	case socket == "unix":
		isUnix = true
	case socket != "" && socket != "tcp":
		e.report(t.prefix+"SOCKET_TYPE", "%.60q: want tcp or unix", socket)
	}
	if !isUnix {
		t.hosts = address
		return
	}
	path, err := filepath.Abs(address)
	if err != nil {
		e.report(t.prefix+"URL", "%v", err)
	}
	t.kind, t.path = "unix", path
}

// redisTLS adds the certificates, which both Redises share.
func (e *environment) redisTLS(t *redisTarget) {
	names := map[string]string{"REDIS_TLS_CACERT": "ca", "REDIS_TLS_CLIENT_CERT": "cert", "REDIS_TLS_CLIENT_KEY": "key"}
	if e.boolean(t.prefix+"TLS", false) {
		t.encrypted = true
	}
	skip := e.boolean("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", false)
	switch {
	case !t.encrypted:
		return
	case t.kind == "unix":
		e.report(t.prefix+"TLS", "is for tcp, but %sURL is the path of a socket", t.prefix)
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

// namespaceOf is a namespace for a CACHE_KEY_PREFIX, which may have any characters: the prefix itself if it
// is a valid namespace, else one derived from it.
func namespaceOf(prefix string) string {
	if name, err := config.ParseNamespace(prefix); err == nil {
		return name
	}
	digest := sha256.Sum256([]byte(prefix))
	return "stint-" + hex.EncodeToString(digest[:6])
}
