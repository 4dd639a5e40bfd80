package redislimit

import (
	"cmp"
	"context"
	"fmt"

	"github.com/stintdev/stint/redislimit/internal/conn"
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
//	password_file=FILE        the password, in place of one in the URL
//	ca=FILE                   PEM certificates to trust instead of the system's
//	cert=FILE, key=FILE       PEM certificate and key to show to the server
//	server_name=NAME          the name that the server's certificate must bear
//	timeout=2s                how long a server may take to accept a connection,
//	                          and to reply before the connection is given up;
//	                          from 10ms to 1m
//	connections=N             to each server: 1, 2, 4, … 256. Where not given, 1 to
//	                          a node of a Cluster, else 1 to 4 by GOMAXPROCS
//	sentinel_user, sentinel_password, sentinel_password_file
//
// Files are looked at every second: a new password or certificate is tried on new
// connections, which take the place of the old ones if the server accepts them. A server
// that says that it is a replica is left in the same way, and its name is resolved again.
// See Store.SetLog. Errors never contain a password.
//
// The Store itself waits as long as the contexts of its callers and fails while the
// server is away: see Store.WithFallback.
func Open(ctx context.Context, address string) (*Store, error) {
	return OpenIn(ctx, address, "")
}

// OpenIn is Open with a namespace that goes before the address's own. Empty: the
// address's.
func OpenIn(ctx context.Context, address, namespace string) (*Store, error) {
	s, err := openAddress(address, namespace)
	if err != nil {
		return nil, err
	}
	if err := s.conn.Connect(ctx); err != nil {
		return nil, fmt.Errorf("redislimit: %w", err)
	}
	return s, nil
}

// CheckAddress returns an error if Open would refuse the address as such. It reads
// no file and connects to nothing.
func CheckAddress(address string) error {
	_, err := parseAddress(address)
	return err
}

// openAddress is a Store that is to be connected to an address.
func openAddress(address, namespace string) (*Store, error) {
	t, err := parseAddress(address)
	var c *conn.Conn
	if err == nil {
		c, err = conn.New(t)
	}
	if err != nil {
		return nil, fmt.Errorf("redislimit: address: %w", err)
	}
	return newStore(c, Options{Namespace: cmp.Or(namespace, t.Namespace)})
}

// parseAddress reads an address with its namespace.
func parseAddress(address string) (*conn.Target, error) {
	t, err := conn.Parse(address)
	if err == nil && t.Namespace != "" {
		err = checkNamespace(t.Namespace)
	}
	return t, err
}
