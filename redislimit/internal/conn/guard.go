package redislimit

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
)

// A server that says what no server should, or something between that garbles it,
// must cost a connection and nothing more. rueidis panics, in a goroutine of its own
// where nobody can recover, at a reply that nobody asked for, and makes room for
// whatever length a reply claims to have. So replies pass here first.

// What a reply may come to. Documents, the largest that there is, have 4 MiB.
const (
	longestString = 64 << 20
	longestLine   = 64 << 10
	longestArray  = 1 << 20
	deepest       = 8
)

var errNotAsked = errors.New("the server replied to what was not asked")

// dialChecked makes a dialer that checks what comes. encryption nil: none.
func dialChecked(network string, encryption *tls.Config) dialer {
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
		return &checked{Conn: c, sentinel: d.Resolver == sentinels}, nil
	}
}

// sentinelAddr is the address of a Sentinel.
type sentinelAddr struct{ net.Addr }

// RemoteAddr tells Sentinels from servers, for who authenticates.
func (c *checked) RemoteAddr() net.Addr {
	if c.sentinel {
		return sentinelAddr{c.Conn.RemoteAddr()}
	}
	return c.Conn.RemoteAddr()
}

// checked is a connection that yields well-formed replies, no more of them than
// commands were sent, or an error. One goroutine may read while another writes.
type checked struct {
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

func (c *checked) Write(b []byte) (int, error) {
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

func (c *checked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		err = c.why(err)
	}
	if n > 0 {
		if !c.speaks.Load() {
			c.heard(b[:n])
		}
		if wrong := c.check(b[:n]); wrong != nil {
			_ = c.Conn.Close()
			return 0, fmt.Errorf("the connection is given up: %w", wrong)
		}
	}
	return n, err
}

func (c *checked) check(b []byte) error {
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

// frames finds where messages of the Redis protocol end, however they come in
// pieces.
type frames struct {
	line []byte       // the part that has come of a line
	body int          // bytes that are still to come of a string, with its end
	left [deepest]int // what is still to come of each array that is open
	open int          // how many are
	push bool         // the message is none that was asked for
}

// pass takes a piece and counts the messages that end in it: those that answer,
// and those that tell of something.
func (f *frames) pass(b []byte) (messages, pushes int, err error) {
	for len(b) > 0 {
		if f.body > 0 {
			n := min(f.body, len(b))
			b = b[n:]
			if f.body -= n; f.body > 0 {
				return messages, pushes, nil
			}
		} else {
			i := bytes.IndexByte(b, '\n')
			if i < 0 {
				if len(f.line)+len(b) > longestLine {
					return 0, 0, errors.New("a line of a reply does not end")
				}
				f.line = append(f.line, b...)
				return messages, pushes, nil
			}
			line := b[:i+1]
			if len(f.line) > 0 {
				f.line = append(f.line, line...)
				line = f.line
			}
			b = b[i+1:]
			whole, err := f.begin(line)
			f.line = f.line[:0]
			if err != nil {
				return 0, 0, err
			}
			if !whole {
				continue
			}
		}
		for f.open > 0 {
			if f.left[f.open-1]--; f.left[f.open-1] > 0 {
				break
			}
			f.open--
		}
		switch {
		case f.open > 0:
		case f.push:
			pushes++
			f.push = false
		default:
			messages++
		}
	}
	return messages, pushes, nil
}

// begin takes a line, which is a whole element or begins one.
func (f *frames) begin(line []byte) (whole bool, err error) {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return false, notRESP(line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+', '-', ',', '(':
		return true, nil
	case '_':
		if len(rest) == 0 {
			return true, nil
		}
	case '#':
		if len(rest) == 1 {
			return true, nil
		}
	case ':':
		if _, err := strconv.ParseInt(string(rest), 10, 64); err == nil {
			return true, nil
		}
	case '$', '=', '!':
		n, err := strconv.Atoi(string(rest))
		if err == nil && n == -1 {
			return true, nil
		}
		if err == nil && n >= 0 && n <= longestString {
			f.body = n + 2
			return false, nil
		}
	case '*', '~', '%', '>':
		n, err := strconv.Atoi(string(rest))
		if err != nil || n < -1 || n > longestArray || kind == '>' && f.open > 0 {
			break
		}
		if n <= 0 {
			return true, nil
		}
		if kind == '%' {
			n *= 2
		}
		if f.open == deepest {
			return false, errors.New("a reply goes too deep")
		}
		f.push = f.push || kind == '>'
		f.left[f.open] = n
		f.open++
		return false, nil
	}
	return false, notRESP(line)
}

func notRESP(line []byte) error {
	return fmt.Errorf("%.40q is not how a reply begins: is it a Redis or a Valkey?", line)
}
