package conn

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// A connection that lives says nothing about the next one. A primary that was demoted
// keeps its connections, and refuses every charge on them; a password or a certificate
// counts only when a connection is made. So a Store makes new connections beside the
// old ones, by the name and the files as they are now, and takes them if they will do.
// The old ones serve until then.

// renewal is what a Conn knows of replacing its engine. What is not atomic belongs to
// keep.
type renewal struct {
	doubts chan error // why the engine is to be replaced; room for one
	// When the server was first and last said to be loading, in ns since started.
	loadingSince, loadingLast atomic.Int64
	refused                   atomic.Pointer[error] // why what the files hold is not used; nil: it is
	log                       atomic.Pointer[slog.Logger]

	used     *secrets // those of the engine
	tried    [32]byte // digest of those that were tried last
	doubt    error    // nil: the engine is good
	failures int      // attempts in a row
	next     time.Time
	said     string    // the last complaint
	warned   time.Time // when expiries were looked at last
	looked   time.Time // when a Cluster was asked for its slots last
}

const (
	// lookEvery is how often files are looked at.
	lookEvery = time.Second
	// loadsLong is after how long a server that loads its data may be another one's
	// replica by now.
	loadsLong = time.Second
	// grace is for calls that have just taken an engine that is being replaced.
	grace = 100 * time.Millisecond
)

// SetLog sets where the Conn logs what becomes of its connections; without it, that is
// slog.Default.
func (c *Conn) SetLog(log *slog.Logger) { c.log.Store(log) }

// FilesRefused is why the passwords and certificates that the files hold now are not
// used; nil: they are.
func (c *Conn) FilesRefused() error {
	if why := c.refused.Load(); why != nil {
		return *why
	}
	return nil
}

// Certificates is when the earliest certificate of each kind expires: "client", "ca" and
// "server". A kind of which there is none is left out.
func (c *Conn) Certificates() map[string]time.Time {
	all := map[string]time.Time{}
	if e := c.engine.Load(); e != nil {
		for kind, cs := range e.certificates() {
			if len(cs) > 0 {
				all[kind] = earliest(cs)
			}
		}
	}
	return all
}

func (e *engine) certificates() map[string][]*x509.Certificate {
	all := map[string][]*x509.Certificate{"ca": e.have.cas, "server": e.sockets.shown()}
	if e.have.leaf != nil {
		all["client"] = []*x509.Certificate{e.have.leaf}
	}
	return all
}

func (c *Conn) logger() *slog.Logger {
	if log := c.log.Load(); log != nil {
		return log
	}
	return slog.Default()
}

// saw looks at the error of a call by e: whether it says that another connection could
// do better.
func (c *Conn) saw(e *engine, err error) {
	if err == nil || c.engine.Load() != e {
		return
	}
	switch code(err) {
	case "READONLY", "NOAUTH", "WRONGPASS":
	case "MASTERDOWN":
		if c.Cluster() { // where other nodes know who is master
			return
		}
	case "LOADING":
		if c.Cluster() || !c.loadsLong() {
			return
		}
	default:
		return
	}
	select {
	case c.doubts <- err:
	default:
	}
}

// started is when the clock of loadingSince began.
var started = time.Now()

// loadsLong notes that the server loads its data, and tells whether it has for long.
func (c *Conn) loadsLong() bool {
	now := int64(time.Since(started))
	if last := c.loadingLast.Swap(now); last == 0 || now-last > int64(2*longestPause) {
		c.loadingSince.Store(now) // it has decided meanwhile, or nobody has asked
	}
	return now-c.loadingSince.Load() > int64(loadsLong)
}

// keep replaces the engine when there is a reason, until ctx is done.
func (c *Conn) keep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		doubts := c.doubts
		if c.doubt != nil {
			doubts = nil // it is known, and tried again when that is due
		}
		select {
		case <-ctx.Done():
			return
		case c.doubt = <-doubts:
			c.logger().Warn("stint: the store's server refuses requests; connecting again", "error", Explain(c.doubt))
			if time.Since(c.next) > longestPause {
				c.failures = 0
			}
		case <-timer.C:
		}
		timer.Reset(c.tend(ctx))
	}
}

// tend replaces the engine if there is a reason and it is time, and returns how long
// there is nothing to do.
func (c *Conn) tend(ctx context.Context) (rest time.Duration) {
	c.warnOfExpiry(ctx)
	if time.Since(c.looked) >= topologyInterval {
		c.looked = time.Now()
		c.refreshTopology(ctx)
	}
	if c.Cluster() {
		defer func() { rest = min(rest, time.Until(c.looked.Add(topologyInterval))) }()
	}
	now, err := c.target.files.read()
	if err != nil {
		now = c.used
		c.refuse(err)
	}
	if now.digest != c.tried { // nobody has refused these yet
		c.failures, c.next = 0, time.Time{}
	}
	changed := now.digest != c.used.digest
	if !changed && c.doubt == nil {
		if err == nil {
			c.refuse(nil)
		}
		if c.target.files.any() {
			return lookEvery
		}
		return time.Hour
	}
	if wait := time.Until(c.next); wait > 0 {
		return min(wait, lookEvery)
	}
	c.tried = now.digest
	failed := c.replace(ctx, now)
	switch {
	case failed != nil && changed:
		c.refuse(failed)
		if c.doubt != nil && c.replace(ctx, c.used) == nil {
			c.doubt = nil
		}
	case failed != nil:
		c.complain(failed)
	case err == nil:
		c.refuse(nil)
	}
	if failed == nil {
		c.doubt = nil
	}
	wait := pause(c.failures)
	c.failures++
	c.next = time.Now().Add(wait)
	return min(wait, lookEvery)
}

// What a server that is asked what it is says of itself, with the codes of those that
// refuse.
var (
	errReplica = errors.New("READONLY the server says that it is a replica")
	errLoading = errors.New("LOADING the server is loading its data")
)

// replace makes an engine, and puts it in the place of the one that serves if its server
// would decide.
func (c *Conn) replace(ctx context.Context, have *secrets) error {
	e, server, err := c.dial(ctx, have)
	switch {
	case err != nil:
		return err
	case server.replica && !server.Cluster:
		err = Explain(errReplica)
	case server.loading && !server.Cluster:
		err = Explain(errLoading)
	}
	if err != nil {
		e.Close()
		return err
	}
	old := c.engine.Swap(e)
	c.server.Store(&server.Server)
	c.used, c.said, c.looked = have, "", time.Time{}
	c.work.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(grace):
		}
		old.Close()
	})
	c.logger().Info("stint: the store's connections were replaced")
	return nil
}

// refuse notes why what the files hold is not used; nil: it is.
func (c *Conn) refuse(why error) {
	if why == nil {
		c.refused.Store(nil)
		return
	}
	c.refused.Store(&why)
	c.complain(fmt.Errorf("the new passwords or certificates in its files are not used: %w", why))
}

// complain logs an error, unless it is the last one that was logged.
func (c *Conn) complain(why error) {
	if text := why.Error(); text != c.said {
		c.said = text
		c.logger().Error("stint: the store's connections cannot be replaced; the old ones stay in use", "error", why)
	}
}

const (
	// soonExpired is how long before its end a certificate is warned of, and warnEvery
	// how often.
	soonExpired = 14 * 24 * time.Hour
	warnEvery   = 24 * time.Hour
)

// warnOfExpiry logs which certificates expire soon. What servers have shown may have
// been replaced there since, so connections are made again first.
func (c *Conn) warnOfExpiry(ctx context.Context) {
	if time.Since(c.warned) < warnEvery {
		return
	}
	again := !c.warned.IsZero()
	c.warned = time.Now()
	if shown := earliest(c.engine.Load().sockets.shown()); again && !shown.IsZero() && time.Until(shown) < soonExpired {
		if err := c.replace(ctx, c.used); err != nil {
			c.complain(err)
		}
	}
	for kind, cs := range c.engine.Load().certificates() {
		seen := map[string]bool{} // servers may all show the same
		for _, cert := range cs {
			left := time.Until(cert.NotAfter)
			if left >= soonExpired || seen[string(cert.Raw)] {
				continue
			}
			seen[string(cert.Raw)] = true
			text := "stint: a certificate of the store's connections expires soon"
			if left <= 0 {
				text = "stint: a certificate of the store's connections has expired"
			}
			c.logger().Warn(text, "which", kind, "subject", cert.Subject.String(), "expires", cert.NotAfter)
		}
	}
}
