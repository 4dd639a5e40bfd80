package conn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A server or proxy that breaks the protocol must cost a connection only. rueidis panics at a reply
// that it did not ask for, where nobody can recover, and allocates whatever length a reply claims, so
// replies pass here first.
//
// rueidis takes each reply for one to the oldest command that has none, and does not look at
// what else it is. There are two answers to SUBSCRIBE: an error, or a push for each
// channel. So commands and replies are matched here as rueidis does it; a count of both is
// not enough, because a subscription that is confirmed by pushes leaves room for a reply.
// Nothing here unsubscribes: a connection that subscribes does so until it is closed.

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

// guarded is a connection from which well-formed replies are read, each one to a command
// that was sent, or an error. One goroutine may read while another writes.
type guarded struct {
	net.Conn
	sentinel     bool        // it leads to a Sentinel
	speaks, full atomic.Bool // something came; and it was that the server has no room

	mu                sync.Mutex
	commands, replies frames
	sent, answered    int64 // commands
	subscribes        []subscribe
	confirmations     int  // that are still to come of the last SUBSCRIBE that was confirmed
	subscribed        bool // SUBSCRIBE was sent
	resp2             bool // its confirmations, and the messages, are arrays
}

// subscribe is a SUBSCRIBE that has no answer.
type subscribe struct {
	number   int64 // how many commands were sent before it
	channels int
}

func (c *guarded) Write(b []byte) (int, error) {
	// Noted before they are sent, so that no reply can come before.
	if err := c.noteCommands(b); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
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

// hello3 is how the first command to a server goes on that has to speak RESP3. rueidis
// subscribes by RESP2, over a connection that begins otherwise, where that was refused.
const hello3 = "\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"

// noteCommands notes the commands that end in what is to be sent.
func (c *guarded) noteCommands(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == 0 && len(b) > len("*2") && !bytes.HasPrefix(b[len("*2"):], []byte(hello3)) {
		c.resp2 = true
	}
	return c.commands.pass(b, func(m message) error {
		switch string(m.head) {
		case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
			c.subscribed = true
			c.subscribes = append(c.subscribes, subscribe{c.sent, m.size - 1})
		}
		c.sent++
		return nil
	})
}

// check returns an error for replies that end in b to no command.
func (c *guarded) check(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replies.pass(b, func(m message) error {
		if c.isPush(m) {
			return c.matchPush(m)
		}
		return c.match(m)
	})
}

// isPush tells whether rueidis takes a message for a push. The lock is held.
func (c *guarded) isPush(m message) bool {
	return m.kind == '>' || c.resp2 && c.subscribed && m.size > 0 && string(m.head) != "pong"
}

// matchPush takes what is no reply, or confirms a subscription. The lock is held.
func (c *guarded) matchPush(m message) error {
	switch string(m.head) {
	case "subscribe", "psubscribe", "ssubscribe":
		switch {
		case m.size < 3:
			return errNotAsked
		case c.confirmations > 0:
			c.confirmations--
		case len(c.subscribes) > 0 && c.subscribes[0].number == c.answered:
			c.confirmations = c.subscribes[0].channels - 1
			c.subscribes = c.subscribes[1:]
			c.answered++
		default:
			return errNotAsked
		}
	case "unsubscribe", "punsubscribe", "sunsubscribe":
		return errNotAsked // rueidis would count it as a confirmation
	}
	if !c.subscribed {
		return errNotAsked
	}
	return nil
}

// match takes the reply to the oldest command that has none. The lock is held.
func (c *guarded) match(m message) error {
	if c.answered == c.sent {
		return errNotAsked
	}
	if len(c.subscribes) > 0 && c.subscribes[0].number == c.answered {
		// rueidis panics at QUEUED, even if it is an error.
		if m.kind != '-' || string(m.head) == "QUEUED" {
			return errNotAsked
		}
		c.subscribes = c.subscribes[1:]
	}
	c.answered++
	return nil
}

// A server that refuses a connection says why, and closes it. What rueidis reports is often
// no more than EOF or a reset: it takes the reply for one to HELLO and continues, and with
// TLS 1.3 the handshake has succeeded when the server finds that a certificate is missing.
// So a connection remembers why it was refused.

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
