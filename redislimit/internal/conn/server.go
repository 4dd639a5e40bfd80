package redislimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Server is what a server says of itself.
type Server struct {
	Product string // "redis" or "valkey"
	Version string // such as "7.0.15"
	Cluster bool
	// Eviction is the server's maxmemory-policy. With any but "noeviction", a server
	// that runs out of memory drops counts and bans; see DropsCounts and Store.Look.
	Eviction string

	replica, loading bool // when it was asked
}

// info reads a section of INFO into fields.
func info(ctx context.Context, c Client, section string, fields map[string]string) error {
	text, err := do(ctx, c, "INFO", section)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return nil
}

// ask reads INFO, section by section, for servers before 7.0 take one at a time.
func ask(ctx context.Context, c Client) (Server, error) {
	fields := map[string]string{}
	for _, section := range []string{"server", "cluster", "memory", "replication", "persistence"} {
		if err := info(ctx, c, section, fields); err != nil {
			return Server{}, fmt.Errorf("INFO %s: %w", section, err)
		}
	}
	s := Server{
		Product:  "redis",
		Version:  fields["redis_version"],
		Cluster:  fields["cluster_enabled"] == "1",
		Eviction: fields["maxmemory_policy"],
		replica:  fields["role"] == "slave",
		loading:  fields["loading"] == "1",
	}
	if v := fields["valkey_version"]; v != "" {
		s.Product, s.Version = "valkey", v
	}
	return s, nil
}

// check refuses servers that lack what the scripts use: SET … PXAT, of Redis 6.2.
func (s Server) check() error {
	parts := strings.SplitN(s.Version, ".", 3)
	if len(parts) < 2 {
		return fmt.Errorf("the server gives no version (%q): is it a Redis or a Valkey?", s.Version)
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return fmt.Errorf("the server's version %q cannot be read", s.Version)
	}
	if s.Product == "redis" && (major < 6 || major == 6 && minor < 2) {
		return fmt.Errorf("the server is Redis %s: Stint needs 6.2 or later, or Valkey; upgrade the server", s.Version)
	}
	return nil
}

// advice says what to do about errors that the server replies.
var advice = map[string]string{
	"NOAUTH":    "the server wants a password: redis://user:password@host, or the parameter password_file",
	"WRONGPASS": "the server does not accept this user and password",
	"NOPERM": "the server's user lacks a permission: Stint needs INFO, EVALSHA, EVAL, TIME, GET, SET, DEL, LLEN, LINDEX, LSET, RPUSH, RPOP, LTRIM, PEXPIRE and PEXPIREAT on its namespace (ACL: ~stint:*); " +
		"PTTL to look at counts; SCAN and MGET to list bans, SCAN to clear; HGET, HMGET, HSET, HDEL, PUBLISH and SUBSCRIBE to share documents (ACL: &stint:*); ZADD, ZREMRANGEBYSCORE, ZCARD and ZREVRANGE to count instances and compare their rules",
	"READONLY":    "the server is a replica: connect to the master, or by redis+sentinel://",
	"OOM":         "the server is out of memory (maxmemory) and takes no more counts: give it more",
	"MISCONF":     "the server takes no counts, for it cannot save its data (stop-writes-on-bgsave-error, AOF): see its log and disk",
	"NOREPLICAS":  "the server takes no counts, for too few replicas follow it (min-replicas-to-write)",
	"LOADING":     "the server is still loading its data: try again soon",
	"MASTERDOWN":  "the server is a replica that has lost its master",
	"CLUSTERDOWN": "the Cluster is down: some slots have no master",
	"TRYAGAIN":    "the Cluster is moving this subject to another node: try again soon",
	"BUSY":        "the server is busy with a script that does not end: SCRIPT KILL ends it",
	"MOVED":       "the server belongs to a Cluster: use redis+cluster://",
	"MAXCLIENTS":  "the server has as many clients as its maxclients lets in: raise that, or end connections that nobody needs (CLIENT LIST)",
	"NOCERT":      "the server wants a certificate to be shown (tls-auth-clients), and the address names none: give it cert=FILE and key=FILE",
	"BADCERT":     "the server does not accept the certificate that it is shown: cert must be signed by an authority in the server's tls-ca-cert-file, and be valid now",
	"NOHANDSHAKE": "the server ended the TLS handshake, as it does where it wants a certificate to be shown (tls-auth-clients) and the address names none: give it cert=FILE and key=FILE",
	"CROSSSLOT":   "the server belongs to a Cluster that Stint did not notice: use redis+cluster://",
}

// advised is a server's error with what to do about it.
type advised struct {
	text string
	error
}

func (a advised) Error() string { return a.text }
func (a advised) Unwrap() error { return a.error }

// advise adds to an error what to do about it, once. What a server says of a password is
// left out, for it says the same again.
func advise(err error) error {
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
