package conn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// defaultTimeout is the default of the parameter timeout.
const defaultTimeout = 2 * time.Second

// Target is a parsed address: what to connect to, and how.
type Target struct {
	// Namespace is the parameter of that name, unchecked; empty: none.
	Namespace string

	option  rueidis.ClientOption
	network string
	files   secretFiles
}

// sentinels marks the dialer of connections to Sentinels; it resolves names like any other.
var sentinels = new(net.Resolver)

// Parse reads an address; see redislimit.Connect. It reads no file. Its errors contain no password.
func Parse(address string) (*Target, error) {
	u, err := splitAddress(address)
	if err != nil {
		return nil, err
	}
	t := &Target{
		option: rueidis.ClientOption{
			Username:   u.user,
			Password:   u.password,
			ClientName: "stint",
			// A charge that may have been executed must not be sent again.
			DisableRetry: true,
			DisableCache: true,
			Dialer:       net.Dialer{KeepAlive: time.Second},
		},
		Namespace: u.query.Get("namespace"),
	}
	if err := u.apply(t); err != nil {
		return nil, err
	}
	return t, nil
}

var parameters = []string{"namespace", "db", "password_file", "ca", "cert", "key", "server_name", "verify", "timeout", "connections",
	"sentinel_user", "sentinel_password", "sentinel_password_file"}

// parts of an address. net/url refuses lists of hosts.
type parts struct {
	scheme, user, password string
	hosts                  []string
	path                   string
	query                  url.Values
}

func splitAddress(address string) (u parts, err error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return u, errors.New("must be a URL such as redis://localhost:6379")
	}
	u.scheme = scheme
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(query, "@") { // the errors below would contain it
		return u, errors.New("an @ after a ?: escape ? and @ in the password as %3F and %40")
	}
	if u.query, err = url.ParseQuery(query); err != nil {
		return u, errors.New("parameters cannot be read: escape % and ; in them")
	}
	for name, values := range u.query {
		if !slices.Contains(parameters, name) {
			return u, fmt.Errorf("unknown parameter %.60q: one of %s", name, strings.Join(parameters, ", "))
		}
		if len(values) > 1 || values[0] == "" {
			return u, fmt.Errorf("parameter %s must be given once, and have a value", name)
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

func (u *parts) apply(t *Target) error {
	o := &t.option
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
			return errors.New("several hosts need redis+cluster:// or redis+sentinel://")
		}
	case "redis+cluster":
	case "redis+sentinel":
		port = "26379"
		o.Sentinel.MasterSet, database, _ = strings.Cut(u.path, "/")
		if o.Sentinel.MasterSet == "" {
			return errors.New("redis+sentinel:// needs the master's name as its path, such as redis+sentinel://h1,h2/mymaster")
		}
		o.Sentinel.TopologyRefreshInterval = 5 * time.Second
	case "unix":
		if len(u.hosts) > 0 || u.path == "" {
			return errors.New("unix:// needs the path of a socket, such as unix:///run/redis.sock")
		}
		o.ForceSingleClient = true
		o.InitAddress = []string{"/" + u.path}
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
	if err := u.secure(t, kind, encrypted); err != nil {
		return err
	}
	if err := u.pace(o); err != nil {
		return err
	}
	t.network = "tcp"
	if kind == "unix" {
		t.network = "unix"
	}
	return u.selectDB(o, kind, database)
}

func (u *parts) selectDB(o *rueidis.ClientOption, kind, database string) error {
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
			// This may be a password without its @, so it is not repeated.
			return "", errors.New("a port must be a number from 1 to 65535, and a password ends with @")
		}
		return host, nil
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if bare == "" || strings.ContainsAny(bare, "[]/ ") {
		return "", errors.New("a host must be a name or an address such as [::1]")
	}
	return net.JoinHostPort(bare, port), nil
}

func (u *parts) secure(t *Target, kind string, encrypted bool) error {
	o, get := &t.option, u.query.Get
	t.files = secretFiles{
		password: get("password_file"), sentinelPassword: get("sentinel_password_file"),
		ca: get("ca"), cert: get("cert"), key: get("key"), serverName: get("server_name"), chainOnly: get("verify") == "chain", encrypted: encrypted,
	}
	f := &t.files
	if f.password != "" && u.password != "" {
		return errors.New("both a password and a password_file: give one of them")
	}
	if kind != "redis+sentinel" {
		for _, name := range []string{"sentinel_user", "sentinel_password", "sentinel_password_file"} {
			if get(name) != "" {
				return fmt.Errorf("%s is only for redis+sentinel://", name)
			}
		}
	}
	o.Sentinel.Username, o.Sentinel.Password = get("sentinel_user"), get("sentinel_password")
	if f.sentinelPassword != "" && o.Sentinel.Password != "" {
		return errors.New("both a sentinel_password and a sentinel_password_file: give one of them")
	}
	switch verify := get("verify"); {
	case verify != "" && verify != "chain":
		return fmt.Errorf("verify %.60q: want chain", verify)
	case f.chainOnly && f.serverName != "":
		return errors.New("both verify=chain and server_name: with verify=chain no name is checked")
	case !encrypted && f.ca+f.cert+f.key+f.serverName+verify != "":
		return errors.New("ca, cert, key, server_name and verify need an encrypted connection: write rediss in place of redis")
	case (f.cert == "") != (f.key == ""):
		return errors.New("cert and key must be given together")
	case encrypted:
		o.TLSConfig, o.Sentinel.TLSConfig = new(tls.Config), new(tls.Config) // of a Cluster's ports, rueidis takes the encrypted
	}
	return nil
}

func (u *parts) pace(o *rueidis.ClientOption) error {
	timeout := defaultTimeout
	if text := u.query.Get("timeout"); text != "" {
		var err error
		if timeout, err = time.ParseDuration(text); err != nil || timeout < 10*time.Millisecond || timeout > time.Minute {
			return fmt.Errorf("timeout %.60q: must be a duration from 10ms to 1m, such as 2s", text)
		}
	}
	o.Dialer.Timeout = timeout
	o.Sentinel.Dialer = o.Dialer
	o.Sentinel.Dialer.Resolver = sentinels
	// A connection on which nothing arrives for this long is given up.
	o.ConnWriteTimeout = timeout
	if text := u.query.Get("connections"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1<<rueidis.MaxPipelineMultiplex || n&(n-1) != 0 {
			return fmt.Errorf("connections %.60q: must be 1, 2, 4, 8, … or %d", text, 1<<rueidis.MaxPipelineMultiplex)
		}
		// The power of two; for rueidis, 0 is its default, and less means one connection.
		if o.PipelineMultiplex = bits.Len(uint(n)) - 1; n == 1 {
			o.PipelineMultiplex = -1
		}
	}
	return nil
}
