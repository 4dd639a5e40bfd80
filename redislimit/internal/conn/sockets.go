package conn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// farewell is how long a closed engine waits for replies; rueidis waits as long for each socket.
const farewell = time.Second

// sockets are the connections of an engine. When closed, rueidis forgets some connections of a
// Cluster, so Close ends them here.
type sockets struct {
	over   context.Context // done when no more may be made
	refuse context.CancelFunc
	none   chan struct{} // closed when none is left after over

	mu   sync.Mutex
	open map[*socket]struct{}
}

func newSockets() *sockets {
	s := &sockets{none: make(chan struct{}), open: map[*socket]struct{}{}}
	s.over, s.refuse = context.WithCancel(context.Background())
	return s
}

type socket struct {
	*guarded
	of *sockets
}

func (c *socket) Close() error {
	c.of.forget(c)
	return c.guarded.Close()
}

type dialer func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

func (s *sockets) dial(by dialer) dialer {
	return func(ctx context.Context, address string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.over, cancel)()
		c, err := by(ctx, address, d, t)
		if err == nil {
			c = s.add(c.(*guarded))
		}
		// Exactly this error stops rueidis from looking for other nodes every second, forever.
		if s.over.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			return nil, rueidis.ErrClosing
		}
		return c, err
	}
}

func (s *sockets) add(c *guarded) *socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &socket{c, s}
	s.open[k] = struct{}{}
	return k
}

func (s *sockets) forget(c *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	s.signalNone()
}

func (s *sockets) shown() (all []*x509.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		if t, ok := c.Conn.(*tls.Conn); ok {
			if peers := t.ConnectionState().PeerCertificates; len(peers) > 0 {
				all = append(all, peers[0])
			}
		}
	}
	return all
}

// signalNone ends the wait of end once no connection is open. The lock must be held.
func (s *sockets) signalNone() {
	if s.over.Err() == nil || len(s.open) > 0 {
		return
	}
	select {
	case <-s.none:
	default:
		close(s.none)
	}
}

// end makes rueidis close its connections, and ends the rest after farewell.
func (s *sockets) end(closeAll func()) {
	s.refuse()
	s.mu.Lock()
	s.signalNone()
	s.mu.Unlock()
	late := time.AfterFunc(farewell, s.sever)
	closeAll()
	<-s.none
	late.Stop()
}

// sever ends connections below TLS, which would wait for a server that may not answer.
func (s *sockets) sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		raw := c.Conn
		if t, ok := raw.(*tls.Conn); ok {
			raw = t.NetConn()
		}
		_ = raw.Close()
		delete(s.open, c)
	}
	s.signalNone()
}
