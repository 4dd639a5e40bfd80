// Package conn is the connection of a redislimit.Store to Redis or Valkey: addresses,
// TLS, Sentinels and Clusters, scripts, publish and subscribe, and what an error of the
// server means. It knows nothing of limits, and is the only package that imports a Redis
// client.
//
// A [Conn] connects to a [Target], or is [Over] the user's own client. Its errors say what to do
// about them (see [Explain]) and name no package.
package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// Client sends one command and returns its reply, as redislimit.Client documents.
type Client interface {
	Do(ctx context.Context, args ...string) (any, error)
}

// Optional interfaces of a Client. The engine has them all.
type (
	// nodeLister can speak to each node of a Cluster.
	nodeLister interface{ nodes() []Client }
	// pipeliner sends several commands; a nil reply: the key is missing, of another type, or on
	// another node.
	pipeliner interface {
		pipeline(ctx context.Context, commands [][]string) ([]any, error)
	}
	// subscriber listens until ctx is done or the connection is lost. It calls receive, which
	// must not block, for each message, and with an empty channel once all channels are
	// confirmed.
	subscriber interface {
		subscribe(ctx context.Context, receive func(channel, message string), channels ...string) error
	}
)

// Conn is a connection to one server, to the primary that Sentinels name, or to a Cluster, for many
// goroutines. A Conn to a Target fails until it is connected. Then it replaces its connections when
// files with secrets change, or the server says that it is a replica (renew.go).
type Conn struct {
	own      Client // the user's; nil: engine is used
	target   *Target
	log      *slog.Logger // nil: slog.Default
	engine   atomic.Pointer[engine]
	failure  atomic.Pointer[error] // of the last attempt, while there is no engine
	server   atomic.Pointer[Server]
	topology atomic.Pointer[Topology]

	attempted chan struct{} // closed after the first attempt; nil: Await need not wait

	ctx  context.Context // ends when the Conn is closed
	end  context.CancelFunc
	work sync.WaitGroup // what Close waits for

	renewal
}

// New returns a Conn to a Target, not yet connected. It reads the files that the address names, so
// that a wrong one is an error now. It logs events of its connections; log nil: to slog.Default.
func New(t *Target, log *slog.Logger) (*Conn, error) {
	have, err := t.files.read()
	if err != nil {
		return nil, err
	}
	c := &Conn{target: t, log: log, renewal: renewal{used: have, tried: have.digest, reasons: make(chan error, 1)}}
	c.server.Store(new(Server))
	c.ctx, c.end = context.WithCancel(context.Background())
	return c, nil
}

// Over returns a Conn over the user's own client, which Close leaves open. It cannot listen, and in
// a Cluster it cannot reach each node.
func Over(own Client) *Conn {
	c := &Conn{own: own}
	c.server.Store(new(Server))
	return c
}

// Connect connects once. Without an error, the Conn keeps itself connected until Close.
func (c *Conn) Connect(ctx context.Context) error {
	if c.own != nil {
		s, err := ask(ctx, c.own)
		c.server.Store(&s.Server)
		return err
	}
	if _, err := c.connectOnce(ctx); err != nil {
		c.end()
		return err
	}
	c.work.Go(func() { c.keep(c.ctx) })
	return nil
}

// ConnectInBackground tries to connect until it succeeds or the Conn is closed. After each attempt it
// calls report from one goroutine.
func (c *Conn) ConnectInBackground(report func(Server, error)) {
	c.attempted = make(chan struct{})
	c.work.Go(func() {
		c.connectUntilDone(report)
		if c.ctx.Err() == nil {
			c.keep(c.ctx)
		}
	})
}

// Close ends the connections and waits until they have ended.
func (c *Conn) Close() {
	if c.own != nil {
		return
	}
	c.end()
	c.work.Wait()
	if e := c.engine.Load(); e != nil {
		e.Close()
	}
}

func (c *Conn) connectUntilDone(report func(Server, error)) {
	for failures := 0; ; failures++ {
		if now, err := c.target.files.read(); err == nil {
			c.used, c.tried = now, now.digest
		}
		server, err := c.connectOnce(c.ctx)
		if err != nil {
			c.failure.Store(&err)
		}
		if c.ctx.Err() == nil {
			report(server, err)
		}
		if failures == 0 {
			close(c.attempted)
		}
		if err == nil || !rest(c.ctx, pause(failures)) {
			return
		}
	}
}

func (c *Conn) connectOnce(ctx context.Context) (Server, error) {
	e, s, err := c.dial(ctx, c.used)
	if err != nil {
		return Server{}, err
	}
	c.server.Store(&s.Server)
	c.engine.Store(e)
	return s.Server, nil
}

const identifyTimeout = 5 * time.Second

func (c *Conn) dial(ctx context.Context, have *secrets) (*engine, serverState, error) {
	e, err := newEngine(ctx, c.target, have)
	if err != nil {
		return nil, serverState{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	s, err := c.identify(bounded, e)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		e.Close()
		return nil, serverState{}, err
	}
	return &e, s, nil
}

// Await waits for the end of the first attempt of ConnectInBackground, until ctx is done and, if
// deadline is more than 0, at most for that long.
func (c *Conn) Await(ctx context.Context, deadline time.Duration) (waited time.Duration, err error) {
	if c.attempted == nil {
		return 0, nil
	}
	select {
	case <-c.attempted:
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
	case <-c.attempted:
	case <-due:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = ctx.Err()
	}
	return time.Since(began), err
}

var errConnecting = errors.New("connecting to the server")

type notConnected struct{ error }

func (e notConnected) Unwrap() error { return e.error }

func (c *Conn) connected() (*engine, error) {
	if e := c.engine.Load(); e != nil {
		return e, nil
	}
	if why := c.failure.Load(); why != nil {
		return nil, notConnected{*why}
	}
	return nil, notConnected{errConnecting}
}

// Do sends one command. It implements Client.
func (c *Conn) Do(ctx context.Context, args ...string) (any, error) {
	reply, err := c.send(ctx, args...)
	return reply, Explain(err)
}

// send is Do without Explain.
func (c *Conn) send(ctx context.Context, args ...string) (any, error) {
	if c.own != nil {
		return c.own.Do(ctx, args...)
	}
	e, err := c.connected()
	if err != nil {
		return nil, err
	}
	reply, err := e.Do(ctx, args...)
	c.noteError(e, err)
	return reply, err
}

// ownTimeout bounds a call by the user's own client that has no deadline.
const ownTimeout = 2 * time.Second

// sendForString needs no goroutine if ctx never ends.
func (c *Conn) sendForString(ctx context.Context, args ...string) (string, error) {
	if c.own != nil || ctx.Done() != nil {
		return stringReply(c.send(ctx, args...))
	}
	e, err := c.connected()
	if err != nil {
		return "", err
	}
	reply, err := e.doString(args)
	c.noteError(e, err)
	return reply, err
}

func (c *Conn) subscriber() subscriber {
	if c.own != nil {
		s, _ := c.own.(subscriber)
		return s
	}
	return c
}

// subscribe returns rueidis.ErrClosing if the connection was closed on purpose.
func (c *Conn) subscribe(ctx context.Context, receive func(channel, message string), channels ...string) error {
	e, err := c.connected()
	if err != nil {
		return err
	}
	err = e.subscribe(ctx, receive, channels...)
	if c.ctx.Err() != nil || c.engine.Load() != e {
		return rueidis.ErrClosing
	}
	return err
}

var errNoString = errors.New("the server replied something other than a string")

// IsNoString reports whether a reply was not a string although it had to be.
func IsNoString(err error) bool { return errors.Is(err, errNoString) || rueidis.IsParseErr(err) }

func stringReply(reply any, err error) (string, error) {
	if err != nil {
		return "", err
	}
	s, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("%w: %T", errNoString, reply)
	}
	return s, nil
}
