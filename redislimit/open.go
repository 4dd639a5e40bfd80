package redislimit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Open connects to the server that a URL names, checks that it will do, and
// returns a Store over it, which Close ends. The forms are
//
//	redis://[user[:password]@]host[:port][/database]
//	redis+cluster://[user[:password]@]host[:port],host[:port],…
//	redis+sentinel://[user[:password]@]host[:port],host[:port],…/master[/database]
//	unix://[user[:password]@]/path/to/socket
//
// with rediss for redis where the connection is to be encrypted. The port is
// 6379, of a Sentinel 26379, where not given. Parameters may follow a "?":
//
//	namespace=NAME            what all keys start with; "stint" where not given
//	db=N                      the database, also for unix
//	ca=FILE                   PEM certificates to trust instead of the system's
//	cert=FILE, key=FILE       PEM certificate and key to show to the server
//	server_name=NAME          the name that the server's certificate must bear
//	sentinel_user, sentinel_password
//
// Errors never contain the password.
func Open(ctx context.Context, address string) (*Store, error) {
	return OpenIn(ctx, address, "")
}

// OpenIn is Open with a namespace that goes before the address's own. Empty: the
// address's.
func OpenIn(ctx context.Context, address, namespace string) (*Store, error) {
	o, options, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	if namespace != "" {
		options.Namespace = namespace
	}
	c, err := connect(o)
	if err != nil {
		return nil, err
	}
	s, err := New(ctx, c, options)
	if err != nil {
		c.Close()
		return nil, err
	}
	s.close = c.Close
	return s, nil
}

// patience is how long a server may take to accept a connection or to reply, before
// the connection is given up. Callers wait only as long as their contexts.
const patience = 2 * time.Second

// parseURL does not use net/url for the whole, which refuses lists of hosts.
func parseURL(address string) (rueidis.ClientOption, Options, error) {
	u, err := splitURL(address)
	if err != nil {
		return rueidis.ClientOption{}, Options{}, fmt.Errorf("redislimit: address: %w", err)
	}
	o := rueidis.ClientOption{
		Username:   u.user,
		Password:   u.password,
		ClientName: "stint",
		// A charge that may have been executed must not be sent again.
		DisableRetry: true,
		DisableCache: true,
		DialCtxFn:    dialChecked("tcp"),
		Dialer:       net.Dialer{Timeout: patience, KeepAlive: time.Second},
		// A connection on which nothing comes for so long is given up.
		ConnWriteTimeout: patience,
	}
	if err := u.apply(&o); err != nil {
		return o, Options{}, fmt.Errorf("redislimit: address: %w", err)
	}
	return o, Options{Namespace: u.query.Get("namespace")}, nil
}

type splitted struct {
	scheme, user, password string
	hosts                  []string
	path                   string
	query                  url.Values
}

func splitURL(address string) (u splitted, err error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return u, errors.New("want a URL such as redis://localhost:6379")
	}
	u.scheme = scheme
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(query, "@") { // or it would be told in the errors below
		return u, errors.New("an @ after a ?: escape ? and @ in the password as %3F and %40")
	}
	if u.query, err = url.ParseQuery(query); err != nil {
		return u, errors.New("parameters cannot be read: escape % and ; in them")
	}
	for name := range u.query {
		if !strings.Contains(" namespace db ca cert key server_name sentinel_user sentinel_password ", " "+name+" ") {
			return u, fmt.Errorf("unknown parameter %q", name)
		}
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, password, _ := strings.Cut(rest[:i], ":")
		rest = rest[i+1:]
		var err1, err2 error
		u.user, err1 = url.PathUnescape(user)
		u.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return u, errors.New("user or password cannot be read: escape % in them")
		}
	}
	hosts, path, _ := strings.Cut(rest, "/")
	u.path = path
	if hosts != "" {
		u.hosts = strings.Split(hosts, ",")
	}
	return u, nil
}

func (u *splitted) apply(o *rueidis.ClientOption) error {
	kind, encrypted := u.scheme, false
	if rest, ok := strings.CutPrefix(kind, "rediss"); ok {
		kind, encrypted = "redis"+rest, true
	}
	port := "6379"
	database := u.path
	switch kind {
	case "redis":
		o.ForceSingleClient = true
		if len(u.hosts) > 1 {
			return errors.New("several hosts: want redis+cluster:// or redis+sentinel://")
		}
	case "redis+cluster":
	case "redis+sentinel":
		port = "26379"
		o.Sentinel.MasterSet, database, _ = strings.Cut(u.path, "/")
		if o.Sentinel.MasterSet == "" {
			return errors.New("redis+sentinel:// needs the master's name as its path, such as redis+sentinel://h1,h2/mymaster")
		}
		o.Sentinel.Username, o.Sentinel.Password = u.query.Get("sentinel_user"), u.query.Get("sentinel_password")
		o.Sentinel.TopologyRefreshInterval = 5 * time.Second
	case "unix":
		if len(u.hosts) > 0 || u.path == "" {
			return errors.New("unix:// needs the path of a socket, such as unix:///run/redis.sock")
		}
		o.ForceSingleClient = true
		o.InitAddress = []string{"/" + u.path}
		o.DialCtxFn = dialChecked("unix")
		database = ""
	default:
		return fmt.Errorf("unknown scheme %q: one of redis, rediss, redis+cluster, rediss+cluster, redis+sentinel, rediss+sentinel, unix", u.scheme)
	}
	if kind != "unix" {
		if len(u.hosts) == 0 {
			return errors.New("no host")
		}
		for _, h := range u.hosts {
			a, err := withPort(h, port)
			if err != nil {
				return err
			}
			o.InitAddress = append(o.InitAddress, a)
		}
	}
	if encrypted {
		t, err := u.tls()
		if err != nil {
			return err
		}
		o.TLSConfig, o.Sentinel.TLSConfig = t, t
	}
	return u.selectDB(o, kind, database)
}

func (u *splitted) selectDB(o *rueidis.ClientOption, kind, database string) error {
	if q := u.query.Get("db"); q != "" {
		database = q
	}
	if database == "" {
		return nil
	}
	n, err := strconv.Atoi(database)
	if err != nil || n < 0 {
		return fmt.Errorf("database %q: must be a number such as 0", database)
	}
	if kind == "redis+cluster" && n != 0 {
		return errors.New("a Cluster has only database 0")
	}
	o.SelectDB = n
	return nil
}

func withPort(host, port string) (string, error) {
	if host == "" {
		return "", errors.New("empty host")
	}
	if _, p, err := net.SplitHostPort(host); err == nil {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			// What is wrong here may be a password that lacks its @.
			return "", errors.New("a port must be a number from 1 to 65535, and a password ends with @")
		}
		return host, nil
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if bare == "" || strings.ContainsAny(bare, "[]/ ") {
		return "", errors.New("a host cannot be read")
	}
	return net.JoinHostPort(bare, port), nil
}

func (u *splitted) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.query.Get("server_name")}
	if file := u.query.Get("ca"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: no certificate in %s", file)
		}
	}
	cert, key := u.query.Get("cert"), u.query.Get("key")
	if (cert == "") != (key == "") {
		return nil, errors.New("cert and key go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

func addresses(o rueidis.ClientOption) string { return strings.Join(o.InitAddress, ", ") }
