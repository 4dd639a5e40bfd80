package redislimit

import (
	"errors"
	"strings"
	"time"
)

// A server that refuses a connection says why, and closes it. What comes of that here is
// often no more than EOF, or a write that was reset: rueidis takes the reply for one to
// HELLO and asks on, and with TLS 1.3 the handshake has succeeded when the server finds
// that a certificate is missing. So a connection remembers why it was refused.

// errMaxClients is what a server says that has no room for a connection.
var errMaxClients = errors.New("ERR max number of clients reached")

// heard notes what came first, for why.
func (c *checked) heard(first []byte) {
	c.speaks.Store(true)
	if strings.HasPrefix(string(first), "-"+errMaxClients.Error()) {
		c.full.Store(true)
	}
}

// why is what the server said when it refused the connection, if it did; else err, by
// which a read ended.
func (c *checked) why(err error) error {
	if c.full.Load() {
		return errMaxClients
	}
	return err
}

// refusalTimeout bounds how long the reason of a refusal may take to come once a write
// has failed. It has been sent before.
const refusalTimeout = 100 * time.Millisecond

// whyUnsent is why for a write. Where nothing was read yet, what the server said waits to
// be read still; nobody else has a use for it, for the connection is broken.
func (c *checked) whyUnsent(err error) error {
	if c.speaks.Load() {
		return c.why(err)
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(refusalTimeout))
	var said [128]byte
	n, readErr := c.Conn.Read(said[:])
	if n > 0 {
		c.heard(said[:n])
	} else if refusedByTLS(readErr) != "" {
		err = readErr
	}
	_ = c.Conn.Close()
	return c.why(err)
}

// alerts of TLS by which a server refuses a connection, as crypto/tls tells them, with
// their words in advice. crypto/tls has no type for them.
var alerts = map[string]string{
	"certificate required":          "NOCERT",
	"bad certificate":               "BADCERT",
	"unsupported certificate":       "BADCERT",
	"revoked certificate":           "BADCERT",
	"expired certificate":           "BADCERT",
	"unknown certificate":           "BADCERT",
	"unknown certificate authority": "BADCERT",
	"handshake failure":             "NOHANDSHAKE",
}

// refusedByTLS is the word in advice for the alert with which the server ended a
// connection; empty: it did not.
func refusedByTLS(err error) string {
	if err == nil {
		return ""
	}
	_, alert, _ := strings.Cut(err.Error(), "remote error: tls: ")
	return alerts[alert]
}
