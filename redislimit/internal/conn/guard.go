package conn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// A server or proxy that breaks the protocol must cost a connection only. rueidis panics at a reply
// that it did not ask for, where nobody can recover, and allocates whatever length a reply claims, so
// replies pass here first.

var errNotAsked = errors.New("the server sent a reply to no command")

func dialGuarded(network string, encryption *tls.Config) dialer {
	return func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		var c net.Conn
		var err error
		if encryption != nil {
			c, err = (&tls.Dialer{NetDialer: d, Config: encryption}).DialContext(ctx, network, address)
		} else {
			c, err = d.DialContext(ctx, network, address)
		}
		if err != nil {
			return nil, err
		}
		return &guarded{Conn: c, sentinel: d.Resolver == sentinels}, nil
	}
}

type sentinelAddr struct{ net.Addr }

func (c *guarded) RemoteAddr() net.Addr {
	if c.sentinel {
		return sentinelAddr{c.Conn.RemoteAddr()}
	}
	return c.Conn.RemoteAddr()
}

// guarded is a connection that yields well-formed replies, no more than commands were sent, or an
// error. One goroutine may read while another writes.
type guarded struct {
	net.Conn
	commands, replies frames
	sent              atomic.Int64 // commands
	came              int64        // replies
	subscribed        atomic.Bool  // messages may come that are no replies
	sentinel          bool         // it leads to a Sentinel
	uncounted         bool         // the server speaks a protocol where these look like replies
	speaks, full      atomic.Bool  // something came; and it was that the server has no room
}

var subscribing = []byte("SUBSCRIBE\r\n")

func (c *guarded) Write(b []byte) (int, error) {
	if !c.subscribed.Load() && bytes.Contains(b, subscribing) {
		c.subscribed.Store(true)
	}
	// Counted before they are sent, so that no reply can come before.
	n, _, err := c.commands.pass(b)
	if err != nil {
		return 0, err
	}
	c.sent.Add(int64(n))
	n, err = c.Conn.Write(b)
	if err != nil {
		err = c.whyUnsent(err)
	}
	return n, err
}

func (c *guarded) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		err = c.why(err)
	}
	if n > 0 {
		if !c.speaks.Load() {
			c.noteFirst(b[:n])
		}
		if wrong := c.check(b[:n]); wrong != nil {
			_ = c.Conn.Close()
			return 0, fmt.Errorf("connection closed: %w", wrong)
		}
	}
	return n, err
}

func (c *guarded) check(b []byte) error {
	if c.came == 0 && b[0] == '-' {
		c.uncounted = true // HELLO is refused: RESP2
	}
	replies, pushes, err := c.replies.pass(b)
	if err != nil {
		return err
	}
	c.came += int64(replies)
	if !c.uncounted && (c.came > c.sent.Load() || pushes > 0 && !c.subscribed.Load()) {
		return errNotAsked
	}
	return nil
}

// A server that refuses a connection says why, and closes it. rueidis often reports EOF or a reset
// only: it takes the reply for HELLO's, and with TLS 1.3 a missing certificate is found after the
// handshake. So a connection remembers why.

// errMaxClients is what a server says that has no room for a connection.
var errMaxClients = errors.New("ERR max number of clients reached")

func (c *guarded) noteFirst(first []byte) {
	c.speaks.Store(true)
	if strings.HasPrefix(string(first), "-"+errMaxClients.Error()) {
		c.full.Store(true)
	}
}

// why is what the server said when it refused the connection; else err, by which a read ended.
func (c *guarded) why(err error) error {
	if c.full.Load() {
		return errMaxClients
	}
	return err
}

// refusalTimeout bounds the wait for the reason of a refusal, sent before the write failed.
const refusalTimeout = 100 * time.Millisecond

// whyUnsent is why for a write. If nothing was read yet, nobody else reads the broken connection.
func (c *guarded) whyUnsent(err error) error {
	if c.speaks.Load() {
		return c.why(err)
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(refusalTimeout))
	var said [128]byte
	n, readErr := c.Conn.Read(said[:])
	if n > 0 {
		c.noteFirst(said[:n])
	} else if refusedByTLS(readErr) != "" {
		err = readErr
	}
	_ = c.Conn.Close()
	return c.why(err)
}
