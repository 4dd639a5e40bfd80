package redislimit

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

// renewal is what a late knows of replacing its engine. What is not atomic belongs to
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

// SetLog says where the Store logs what becomes of its connections: that a server was
// left, that new passwords or certificates were taken or refused, and that a certificate
// expires soon. Where it was not called, that is slog.Default. It does nothing on a Store
// that New made.
func (s *Store) SetLog(log *slog.Logger) {
	if l, ok := s.client.(*late); ok {
		l.log.Store(log)
	}
}

// Refused is why the passwords and certificates in files, as they are now, are not used:
// they cannot be read, or the server did not accept them. Those of before are in use
// meanwhile. nil: they are used.
func (s *Store) Refused() error {
	if l, ok := s.client.(*late); ok {
		if why := l.refused.Load(); why != nil {
			return *why
		}
	}
	return nil
}

// Certificates is when the certificates expire that connections depend on, the earliest
// of each kind: "client", which is shown to the server, "ca", by which the server's is
// judged, and "server", which servers have shown on the connections that are open. A
// kind of which there is none is left out.
func (s *Store) Certificates() map[string]time.Time {
	all := map[string]time.Time{}
	if l, ok := s.client.(*late); ok {
		if e := l.engine.Load(); e != nil {
			for kind, cs := range e.certificates() {
				if len(cs) > 0 {
					all[kind] = earliest(cs)
				}
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

func (s *Store) logger() *slog.Logger {
	if l, ok := s.client.(*late); ok {
		return l.logger()
	}
	return slog.Default()
}

func (l *late) logger() *slog.Logger {
	if log := l.log.Load(); log != nil {
		return log
	}
	return slog.Default()
}

// saw looks at the error of a call by e: whether it says that another connection could
// do better.
func (l *late) saw(e *engine, err error) {
	if err == nil || l.engine.Load() != e {
		return
	}
	switch code(err) {
	case "READONLY", "NOAUTH", "WRONGPASS":
	case "MASTERDOWN":
		if l.store.cluster() { // where other nodes know who is master
			return
		}
	case "LOADING":
		if l.store.cluster() || !l.loadsLong() {
			return
		}
	default:
		return
	}
	select {
	case l.doubts <- err:
	default:
	}
}

// loadsLong notes that the server loads its data, and tells whether it has for long.
func (l *late) loadsLong() bool {
	now := int64(time.Since(started))
	if last := l.loadingLast.Swap(now); last == 0 || now-last > int64(2*longestPause) {
		l.loadingSince.Store(now) // it has decided meanwhile, or nobody has asked
	}
	return now-l.loadingSince.Load() > int64(loadsLong)
}

// keep replaces the engine when there is a reason, until ctx is done.
func (l *late) keep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		doubts := l.doubts
		if l.doubt != nil {
			doubts = nil // it is known, and tried again when that is due
		}
		select {
		case <-ctx.Done():
			return
		case l.doubt = <-doubts:
			l.logger().Warn("stint: the store's server refuses; new connections are made", "error", advise(l.doubt))
			if time.Since(l.next) > longestPause {
				l.failures = 0
			}
		case <-timer.C:
		}
		timer.Reset(l.tend(ctx))
	}
}

// tend replaces the engine if there is a reason and it is time, and returns how long
// there is nothing to do.
func (l *late) tend(ctx context.Context) (rest time.Duration) {
	l.warnOfExpiry(ctx)
	if time.Since(l.looked) >= partsEvery {
		l.looked = time.Now()
		l.lookAtSlots(ctx)
	}
	if l.store.cluster() {
		defer func() { rest = min(rest, time.Until(l.looked.Add(partsEvery))) }()
	}
	now, err := l.target.files.read()
	if err != nil {
		now = l.used
		l.refuse(err)
	}
	if now.digest != l.tried { // nobody has refused these yet
		l.failures, l.next = 0, time.Time{}
	}
	changed := now.digest != l.used.digest
	if !changed && l.doubt == nil {
		if err == nil {
			l.refuse(nil)
		}
		if l.target.files.any() {
			return lookEvery
		}
		return time.Hour
	}
	if wait := time.Until(l.next); wait > 0 {
		return min(wait, lookEvery)
	}
	l.tried = now.digest
	failed := l.replace(ctx, now)
	switch {
	case failed != nil && changed:
		l.refuse(failed)
		if l.doubt != nil && l.replace(ctx, l.used) == nil {
			l.doubt = nil
		}
	case failed != nil:
		l.complain(failed)
	case err == nil:
		l.refuse(nil)
	}
	if failed == nil {
		l.doubt = nil
	}
	wait := pause(l.failures)
	l.failures++
	l.next = time.Now().Add(wait)
	return min(wait, lookEvery)
}

// What a server that is asked what it is says of itself, with the codes of those that
// refuse.
var (
	errReplica = errors.New("READONLY it says that it is a replica")
	errLoading = errors.New("LOADING it is loading its data")
)

// replace makes an engine, and puts it in the place of the one that serves if its server
// would decide.
func (l *late) replace(ctx context.Context, have *secrets) error {
	e, server, err := l.make(ctx, have)
	switch {
	case err != nil:
		return err
	case server.replica && !server.Cluster:
		err = fmt.Errorf("redislimit: %w", advise(errReplica))
	case server.loading && !server.Cluster:
		err = fmt.Errorf("redislimit: %w", advise(errLoading))
	}
	if err != nil {
		e.Close()
		return err
	}
	old := l.engine.Swap(e)
	l.store.server.Store(&server)
	l.used, l.said, l.looked = have, "", time.Time{}
	l.work.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(grace):
		}
		old.Close()
	})
	l.logger().Info("stint: the store's connections were made anew")
	return nil
}

// refuse notes why what the files hold is not used; nil: it is.
func (l *late) refuse(why error) {
	if why == nil {
		l.refused.Store(nil)
		return
	}
	l.refused.Store(&why)
	l.complain(fmt.Errorf("what its files hold now is not used, but what they held before: %w", why))
}

// complain logs an error, unless it is the last one that was logged.
func (l *late) complain(why error) {
	if text := why.Error(); text != l.said {
		l.said = text
		l.logger().Error("stint: the store's connections cannot be made anew; those of before stay", "error", why)
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
func (l *late) warnOfExpiry(ctx context.Context) {
	if time.Since(l.warned) < warnEvery {
		return
	}
	again := !l.warned.IsZero()
	l.warned = time.Now()
	if shown := earliest(l.engine.Load().sockets.shown()); again && !shown.IsZero() && time.Until(shown) < soonExpired {
		if err := l.replace(ctx, l.used); err != nil {
			l.complain(err)
		}
	}
	for kind, cs := range l.engine.Load().certificates() {
		told := map[string]bool{} // servers may all show the same
		for _, c := range cs {
			left := time.Until(c.NotAfter)
			if left >= soonExpired || told[string(c.Raw)] {
				continue
			}
			told[string(c.Raw)] = true
			text := "stint: a certificate of the store's connections expires soon"
			if left <= 0 {
				text = "stint: a certificate of the store's connections has expired"
			}
			l.logger().Warn(text, "which", kind, "subject", c.Subject.String(), "expires", c.NotAfter)
		}
	}
}
