package server

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// fullListener keeps a number of connections open, and closes what comes beyond as
// it comes: who waited in the kernel's queue instead would learn nothing until
// connections that an attacker holds time out.
type fullListener struct {
	net.Listener
	room    int64
	open    atomic.Int64
	refused prometheus.Counter
}

// atMost is l with as many connections as the settings say. Those that were upgraded
// count as well.
func (s *Server) atMost(name string, l net.Listener) net.Listener {
	if s.settings.MaxConnections == 0 {
		return l
	}
	return &fullListener{Listener: l, room: s.settings.MaxConnections, refused: s.metrics.connectionsRefused.WithLabelValues(name)}
}

// Accept is for net.Listener. It is called by one goroutine at a time.
func (l *fullListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) > l.room {
			l.open.Add(-1)
			l.refused.Inc()
			_ = c.Close()
			continue
		}
		leave := sync.OnceFunc(func() { l.open.Add(-1) })
		if tcp, ok := c.(*net.TCPConn); ok { // which can do more than a net.Conn
			return &countedTCP{tcp, leave}, nil
		}
		return &countedConn{c, leave}, nil
	}
}

type countedTCP struct {
	*net.TCPConn
	leave func()
}

func (c *countedTCP) Close() error {
	c.leave()
	return c.TCPConn.Close()
}

type countedConn struct {
	net.Conn
	leave func()
}

func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
