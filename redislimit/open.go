package redislimit

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// Open returns a fleet.Store, with its defaults, over the server that address names. The
// server may be down: Open connects in the background for as long as it takes. Until then,
// and whenever the server does not answer within fleet.DefaultDeadline, this instance
// decides by its share of the limits, and the log says so. Close stops everything.
//
// Open waits for the first attempt to connect, at most a second or until ctx is done, so
// that a server that is up decides from the first request. It returns an error only if the
// address is wrong or names a file that cannot be read. See Connect for the forms of
// addresses, and for a Store with other options of package fleet.
func Open(ctx context.Context, address string) (*fleet.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, firstAttempt)
	defer cancel()
	s, err := Connect(ctx, address, Options{Background: true})
	if err != nil {
		return nil, err
	}
	return fleet.New(s, fleet.Options{OnClose: s.Close}), nil
}

// firstAttempt bounds how long Open waits for a server. One that is up answers in
// milliseconds.
const firstAttempt = time.Second

// Connect connects to the server at a URL, checks that it is suitable, and returns a bare
// Store over it. Close closes the Store. A bare Store waits until the contexts of its
// callers are done, and fails while the server is down; fleet.New makes it answer in time.
// The forms of addresses are
//
//	redis://[user[:password]@]host[:port][/database]
//	redis+cluster://[user[:password]@]host[:port],host[:port],…
//	redis+sentinel://[user[:password]@]host[:port],host[:port],…/master[/database]
//	unix://[user[:password]@]/path/to/socket
//
// Use rediss instead of redis to encrypt connections. The default port is 6379; for a
// Sentinel it is 26379. Parameters may follow a "?":
//
//	namespace=NAME            what all keys start with; the default is "stint"
//	db=N                      the database, also for unix
//	password_file=FILE        the password, in place of one in the URL
//	ca=FILE                   PEM certificates to trust instead of the system's
//	cert=FILE, key=FILE       PEM certificate and key to show to the server
//	server_name=NAME          the name that the server's certificate must have
//	verify=chain              the server's certificate may have any name
//	timeout=2s                how long a server may take to accept a connection,
//	                          and to reply before the connection is given up;
//	                          from 10ms to 1m
//	connections=N             to each server: 1, 2, 4, … 256. The default is 1 to
//	                          a node of a Cluster, else 1 to 4 by GOMAXPROCS
//	sentinel_user, sentinel_password, sentinel_password_file
//
// Connect looks at the files every second. It tries a new password or certificate on new
// connections, and replaces the old ones if the server accepts it. It also replaces the
// connections to a server that has become a replica, and resolves the server's name again.
// See Options.Log. Errors never contain a password.
func Connect(ctx context.Context, address string, o Options) (*Store, error) {
	t, err := parseAddress(address)
	var c *conn.Conn
	if err == nil {
		c, err = conn.New(t, o.Log)
	}
	if err != nil {
		return nil, fmt.Errorf("redislimit: address: %w", err)
	}
	o.Namespace = cmp.Or(o.Namespace, t.Namespace)
	s, err := newStore(c, o)
	if err != nil {
		return nil, err
	}
	if !o.Background {
		if err := c.Connect(ctx); err != nil {
			return nil, fmt.Errorf("redislimit: %w", err)
		}
		return s, nil
	}
	c.ConnectInBackground(func(server conn.Server, err error) {
		if err != nil {
			err = fmt.Errorf("redislimit: %w", err)
		}
		if o.Attempted != nil {
			o.Attempted(Server(server), err)
		}
	})
	_, _ = c.Await(ctx, 0) // how it went is what calls report
	return s, nil
}

// CheckAddress returns an error if Connect would refuse the address itself. It reads no
// file and connects to nothing.
func CheckAddress(address string) error {
	_, err := parseAddress(address)
	return err
}

func parseAddress(address string) (*conn.Target, error) {
	t, err := conn.Parse(address)
	if err == nil && t.Namespace != "" {
		err = checkNamespace(t.Namespace)
	}
	return t, err
}
