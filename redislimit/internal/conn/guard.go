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

// A server or proxy that breaks the protocol must cost only a connection. rueidis panics at a reply
// that it did not ask for, where nobody can recover, and allocates whatever length a reply claims, so
// replies are checked here first.
//
// rueidis takes each reply as that to the oldest unanswered command, without further checks. There
// are two answers to SUBSCRIBE: an error, or a push for each channel. So commands and replies are
// matched here as rueidis does it; counting both is not enough, because a subscription that is
// confirmed by pushes leaves room for a reply. Nothing here unsubscribes: a connection stays
// subscribed until it is closed.

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

// guarded is a connection whose reads return well-formed replies to commands that were sent, or an
// error. One goroutine may read while another writes.
type guarded struct {
	net.Conn
	sentinel     bool        // to a Sentinel
	speaks, full atomic.Bool // something was read; and it was that the server has no room

	mu                sync.Mutex
	commands, replies frames
	sent, answered    int64 // commands
	subscribes        []subscribe
	confirmations     int  // still to come for the last SUBSCRIBE being confirmed
	subscribed        bool // SUBSCRIBE was sent
	resp2             bool // confirmations and messages are arrays
}

// subscribe is an unanswered SUBSCRIBE.
type subscribe struct {
	number   int64 // commands sent before it
	channels int
}

func (c *guarded) Write(b []byte) (int, error) {
	// Note them before sending, so that no reply comes first.
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

// hello3 is in the first command on a connection that has to speak RESP3. If the server refused
// that, rueidis subscribes by RESP2, over a connection that begins otherwise.
const hello3 = "\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"

// noteCommands notes the commands that end in b, which is to be sent.
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

// check returns an error if a reply that ends in b answers no command.
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

// isPush reports whether rueidis takes a message for a push. The lock must be held.
func (c *guarded) isPush(m message) bool {
	return m.kind == '>' || c.resp2 && c.subscribed && m.size > 0 && string(m.head) != "pong"
}

// matchPush takes a message that is not a reply, or confirms a subscription. The lock must be held.
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

// match takes the reply to the oldest unanswered command. The lock must be held.
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

// A server that refuses a connection says why, and closes it. rueidis often reports only EOF or a
// reset: it takes the reply for the one to HELLO and continues, and with TLS 1.3 the handshake has
// succeeded when the server notices that a certificate is missing. So a connection remembers why it
// was refused.

// errMaxClients is the error of a server without room for a connection.
var errMaxClients = errors.New("ERR max number of clients reached")

func (c *guarded) noteFirst(first []byte) {
	c.speaks.Store(true)
	if strings.HasPrefix(string(first), "-"+errMaxClients.Error()) {
		c.full.Store(true)
	}
}

// why is the server's reason for refusing the connection; else err, the error of a read.
func (c *guarded) why(err error) error {
	if c.full.Load() {
		return errMaxClients
	}
	return err
}

// refusalTimeout bounds the wait for the reason of a refusal that was sent before the write failed.
const refusalTimeout = 100 * time.Millisecond

// whyUnsent is why for a failed write. If nothing was read yet, nobody else reads the broken
// connection.
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
