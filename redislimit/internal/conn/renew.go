package conn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// A demoted primary keeps its connections and refuses every charge; a new password or certificate
// affects only new connections. So a Conn makes new connections beside the old ones, and switches
// to them if their server decides (docs/decisions/0011-failures.md).

// renewal is how a Conn replaces its engine. Only keep's goroutine uses fields that are neither
// atomic nor a channel.
type renewal struct {
	reasons chan error // why to replace the engine; room for one
	// The first and the last time that the server said that it is loading, in ns since started.
	loadingSince, loadingLast atomic.Int64
	refused                   atomic.Pointer[error] // why new passwords or certificates are not used; nil: they are used

	used       *secrets  // the engine's
	tried      [32]byte  // digest of the last ones that were tried
	reason     error     // nil: the engine is good
	failures   int       // attempts in a row
	next       time.Time // time of the next attempt
	complaint  string    // the last one that was logged
	warnedAt   time.Time // last check of expiries
	topologyAt time.Time // last time a Cluster was asked for its slots
}

const (
	fileInterval = time.Second
	// loadsLong is how long a server loads before it may have become a replica.
	loadsLong = time.Second
	// grace is how long a replaced engine stays open for calls that have just taken it.
	grace = 100 * time.Millisecond
)

// FilesRefused returns why the passwords and certificates now in the files are not used; nil: they
// are used.
func (c *Conn) FilesRefused() error {
	if why := c.refused.Load(); why != nil {
		return *why
	}
	return nil
}

func (c *Conn) logger() *slog.Logger { return cmp.Or(c.log, slog.Default()) }

// noteError decides from an error whether new connections could help.
func (c *Conn) noteError(e *engine, err error) {
	if err == nil || c.engine.Load() != e {
		return
	}
	switch code(err) {
	case "READONLY", "NOAUTH", "WRONGPASS":
	case "MASTERDOWN":
		if c.Cluster() { // other nodes know who is master
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
	case c.reasons <- err:
	default:
	}
}

var started = time.Now()

// loadsLong notes that the server loads its data, and reports whether it has done so for long.
func (c *Conn) loadsLong() bool {
	now := int64(time.Since(started))
	if last := c.loadingLast.Swap(now); last == 0 || now-last > int64(2*longestPause) {
		c.loadingSince.Store(now) // it has decided meanwhile, or was not asked
	}
	return now-c.loadingSince.Load() > int64(loadsLong)
}

// keep replaces the engine when there is a reason, until ctx is done.
func (c *Conn) keep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		reasons := c.reasons
		if c.reason != nil {
			reasons = nil // the reason is known; the next attempt is scheduled
		}
		select {
		case <-ctx.Done():
			return
		case c.reason = <-reasons:
			c.logger().Warn("stint: the store's server refuses requests; connecting again", "error", Explain(c.reason))
			if time.Since(c.next) > longestPause {
				c.failures = 0
			}
		case <-timer.C:
		}
		timer.Reset(c.maintain(ctx))
	}
}

// maintain replaces the engine if necessary, and returns how long there is nothing to do.
func (c *Conn) maintain(ctx context.Context) (rest time.Duration) {
	c.warnOfExpiry(ctx)
	if time.Since(c.topologyAt) >= topologyInterval {
		c.topologyAt = time.Now()
		c.refreshTopology(ctx)
	}
	if c.Cluster() {
		defer func() { rest = min(rest, time.Until(c.topologyAt.Add(topologyInterval))) }()
	}
	now, err := c.target.files.read()
	if err != nil {
		now = c.used
		c.setRefused(err)
	}
	if now.digest != c.tried { // these were not refused yet
		c.failures, c.next = 0, time.Time{}
	}
	changed := now.digest != c.used.digest
	if !changed && c.reason == nil {
		if err == nil {
			c.setRefused(nil)
		}
		if c.target.files.any() {
			return fileInterval
		}
		return time.Hour
	}
	if wait := time.Until(c.next); wait > 0 {
		return min(wait, fileInterval)
	}
	c.tried = now.digest
	failed := c.replace(ctx, now)
	switch {
	case failed != nil && changed:
		c.setRefused(failed)
		if c.reason != nil && c.replace(ctx, c.used) == nil {
			c.reason = nil
		}
	case failed != nil:
		c.complain(failed)
	case err == nil:
		c.setRefused(nil)
	}
	if failed == nil {
		c.reason = nil
	}
	wait := pause(c.failures)
	c.failures++
	c.next = time.Now().Add(wait)
	return min(wait, fileInterval)
}

var (
	errReplica = errors.New("READONLY the server says that it is a replica")
	errLoading = errors.New("LOADING the server is loading its data")
)

// replace puts a new engine in place if its server would decide.
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
	c.used, c.complaint, c.topologyAt = have, "", time.Time{}
	c.work.Go(func() {
		rest(ctx, grace)
		old.Close()
	})
	c.logger().Info("stint: the store's connections were replaced")
	return nil
}

func (c *Conn) setRefused(why error) {
	if why == nil {
		c.refused.Store(nil)
		return
	}
	c.refused.Store(&why)
	c.complain(fmt.Errorf("the new passwords or certificates in its files are not used: %w", why))
}

// complain logs an error, unless it is the last one that was logged.
func (c *Conn) complain(why error) {
	if text := why.Error(); text != c.complaint {
		c.complaint = text
		c.logger().Error("stint: the store's connections cannot be replaced; the old ones stay in use", "error", why)
	}
}
