package redislimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// OpenLater is Open for a server that may not be there yet: it returns at once, with
// an error only if the address itself is wrong, and connects in the background, for
// as long as it takes, until Close. Until then every call fails, with the reason of
// the last attempt; but Take and TakeBatch wait for the first one to end, as long as
// their callers do, so that a server that is there decides from the beginning. told is
// called after each attempt, from one goroutine: with what the server says of itself, or
// why it cannot serve; nil: nobody is told.
func OpenLater(address string, told func(Server, error)) (*Store, error) {
	return OpenLaterIn(address, "", told)
}

// OpenLaterIn is OpenLater with a namespace that goes before the address's own, as in
// OpenIn.
func OpenLaterIn(address, namespace string, told func(Server, error)) (*Store, error) {
	s, l, err := openStore(address, namespace)
	if err != nil {
		return nil, err
	}
	if told == nil {
		told = func(Server, error) {}
	}
	s.tried = make(chan struct{})
	l.start(told)
	return s, nil
}

// late is a Client over an engine that may not be connected yet, and in whose place
// another one may come; see renew.go.
type late struct {
	target *target
	store  *Store
	engine atomic.Pointer[engine]
	why    atomic.Pointer[error] // the last attempt failed, while there is no engine

	ctx  context.Context // done when the Store is closed
	end  context.CancelFunc
	work sync.WaitGroup // what is to end before Close returns

	renewal
}

func newLate(t *target, have *secrets) *late {
	l := &late{target: t, renewal: renewal{used: have, tried: have.digest, doubts: make(chan error, 1)}}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// start connects, unless that was done, and then keeps the engine fit.
func (l *late) start(told func(Server, error)) {
	l.work.Go(func() {
		if l.engine.Load() == nil {
			l.connect(l.ctx, told)
		}
		if l.ctx.Err() == nil {
			l.keep(l.ctx)
		}
	})
}

func (l *late) close() {
	l.end()
	l.work.Wait()
	if e := l.engine.Load(); e != nil {
		e.Close()
	}
}

var errConnecting = errors.New("connecting to the server")

// connect tries until it succeeds or ctx is done.
func (l *late) connect(ctx context.Context, told func(Server, error)) {
	for failures := 0; ; failures++ {
		if now, err := l.target.files.read(); err == nil {
			l.used, l.tried = now, now.digest
		}
		server, err := l.try(ctx)
		if err != nil {
			l.why.Store(&err)
		}
		if failures == 0 {
			close(l.store.tried)
		}
		if ctx.Err() != nil {
			return
		}
		told(server, err)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause(failures)):
		}
	}
}

// awaitFirst waits for the first attempt to connect, if that is still under way, until
// ctx is done or, where that is more than 0, for as long as deadline.
func (s *Store) awaitFirst(ctx context.Context, deadline time.Duration) (waited time.Duration, err error) {
	if s.tried == nil {
		return 0, nil
	}
	select {
	case <-s.tried:
		return 0, nil
	default:
	}
	began := time.Now()
	var due <-chan time.Time
	if deadline > 0 {
		t := time.NewTimer(deadline)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-s.tried:
	case <-due:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = ctx.Err()
	}
	return time.Since(began), err
}

// attempt bounds how long a server may take to tell what it is.
const attempt = 5 * time.Second

// try makes the first engine.
func (l *late) try(ctx context.Context) (Server, error) {
	e, server, err := l.make(ctx, l.used)
	if err != nil {
		return Server{}, err
	}
	l.store.server.Store(&server)
	l.engine.Store(e)
	return server, nil
}

// make makes an engine and asks its server what it is.
func (l *late) make(ctx context.Context, have *secrets) (*engine, Server, error) {
	e, err := connect(ctx, l.target, have)
	if err != nil {
		return nil, Server{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	server, err := ask(bounded, e)
	if err != nil {
		err = advise(err)
	} else {
		err = server.check()
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		e.Close()
		return nil, Server{}, fmt.Errorf("redislimit: %w", err)
	}
	return &e, server, nil
}

// connected is the engine, or why there is none yet.
func (l *late) connected() (*engine, error) {
	if e := l.engine.Load(); e != nil {
		return e, nil
	}
	if why := l.why.Load(); why != nil {
		return nil, notConnected{*why}
	}
	return nil, notConnected{errConnecting}
}

// notConnected is why a call was not sent. Its text goes into an error that names
// the package.
type notConnected struct{ error }

func (e notConnected) Error() string { return strings.TrimPrefix(e.error.Error(), "redislimit: ") }
func (e notConnected) Unwrap() error { return e.error }

// Do implements Client.
func (l *late) Do(ctx context.Context, args ...string) (any, error) {
	e, err := l.connected()
	if err != nil {
		return nil, err
	}
	reply, err := e.Do(ctx, args...)
	l.saw(e, err)
	return reply, err
}

// text implements texter.
func (l *late) text(ctx context.Context, args ...string) (string, error) {
	e, err := l.connected()
	if err != nil {
		return "", err
	}
	reply, err := e.text(ctx, args...)
	l.saw(e, err)
	return reply, err
}

// nodes implements noder.
func (l *late) nodes() []Client {
	e, err := l.connected()
	if err != nil {
		return []Client{l}
	}
	return e.nodes()
}

// subscribe implements subscriber. It returns rueidis.ErrClosing where the connection was
// ended on purpose, whatever that looks like to who reads from it.
func (l *late) subscribe(ctx context.Context, heard func(channel, message string), channels ...string) error {
	e, err := l.connected()
	if err != nil {
		return err
	}
	err = e.subscribe(ctx, heard, channels...)
	if l.ctx.Err() != nil || l.engine.Load() != e {
		return rueidis.ErrClosing
	}
	return err
}
