package conn

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// A live connection does not prove that messages arrive. So a listener publishes a hello to itself
// every second, as other instances publish, and each must come back
// (docs/decisions/0008-remembered-denials.md).

const (
	helloInterval = time.Second
	// helloTimeout is how long a hello may take, and how long none may arrive, before messages may
	// be lost.
	helloTimeout = 3 * time.Second
	// helloKeys is how many keys the hellos use in turn, to test each master of a Cluster.
	helloKeys = 1024
)

// hello publishes a hello. Its key decides which node does so.
var hello = NewScript("return redis.call('PUBLISH', ARGV[1], ARGV[2])")

// ErrCannotListen means that the user's own client cannot listen.
var ErrCannotListen = errors.New("this client cannot listen to a channel")

// Listener receives the messages of Listen. Its functions are called one at a time and must not
// block.
type Listener struct {
	Connected func(connected bool) // whether each message arrives; false at first
	Message   func(text string)
}

// Listen gives l the messages of the channel NAMESPACE:{NAME}, over its own connection, until ctx is
// done. It is connected once a hello has come back, which proves that this user may publish, and
// disconnected when none has, or none could be published, for 3 seconds; then it connects again. It
// logs that.
func (c *Conn) Listen(ctx context.Context, namespace, name string, l Listener) error {
	from := c.subscriber()
	if from == nil {
		return ErrCannotListen
	}
	warned := false
	for failures := 0; ctx.Err() == nil; failures++ {
		s := &subscription{conn: c, listener: l, warned: warned, namespace: namespace, channel: namespace + ":{" + name + "}",
			hellos: namespace + ":{hello}:" + rand.Text(), pending: map[int]time.Time{}, lastKey: -1}
		why := s.run(ctx, from)
		if s.connected {
			failures, warned = 0, false
		}
		if ctx.Err() == nil && !warned && !errors.As(why, new(notConnected)) && !errors.Is(why, rueidis.ErrClosing) {
			warned = true
			c.logger().Warn("stint: messages of other instances do not arrive: refusals are forgotten, and none are remembered until messages arrive again", "error", why)
		}
		rest(ctx, pause(failures))
	}
	return nil
}

// subscription is one connection of a Listen.
type subscription struct {
	conn      *Conn
	listener  Listener
	namespace string
	channel   string
	hellos    string // the channel of its hellos
	warned    bool   // it was logged that messages do not arrive

	mu           sync.Mutex // locked while the listener is called
	over         bool
	connected    bool // a hello has come back
	notPermitted bool // this user may not publish
	last         time.Time
	lastKey      int               // the key of the last published hello; -1: none
	pending      map[int]time.Time // when outstanding hellos were published, by number
}

var (
	errNotReturned  = errors.New("a message that this instance published to itself has not come back in 3 seconds")
	errNotPublished = errors.New("this instance could not publish a message to itself for 3 seconds")
)

// run listens until the connection is lost, or messages may have been, and returns why.
func (s *subscription) run(ctx context.Context, from subscriber) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := from.subscribe(ctx, func(channel, message string) { s.receive(ctx, cancel, channel, message) }, s.channel, s.hellos)
	s.end()
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

func (s *subscription) receive(ctx context.Context, giveUp context.CancelCauseFunc, channel, message string) {
	if channel == "" {
		go s.publishHellos(ctx, giveUp)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
	case channel == s.hellos:
		s.receiveHello(message)
	default:
		s.listener.Message(message)
	}
}

// receiveHello notes that a hello has come back. The lock must be held.
func (s *subscription) receiveHello(message string) {
	n, err := strconv.Atoi(message)
	if err != nil {
		return
	}
	delete(s.pending, n)
	s.last = time.Now()
	if s.connected {
		return
	}
	s.connected = true
	for before := range s.pending { // the listener was not connected when these were lost
		if before < n {
			delete(s.pending, before)
		}
	}
	s.listener.Connected(true)
	if s.warned {
		go s.conn.logger().Info("stint: messages of other instances arrive again")
	}
}

func (s *subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over = true
		s.listener.Connected(false)
	}
}

// publishHellos publishes a hello every second, until messages may have been lost.
func (s *subscription) publishHellos(ctx context.Context, giveUp context.CancelCauseFunc) {
	s.mu.Lock()
	s.last = time.Now()
	s.mu.Unlock()
	tick := time.NewTicker(helloInterval)
	defer tick.Stop()
	for n := 1; ; n++ {
		go s.publishHello(ctx, n)
		for next := false; !next; {
			due, why := s.deadline()
			if why != nil {
				s.end()
				giveUp(why)
				return
			}
			late := time.NewTimer(time.Until(due))
			select {
			case <-ctx.Done():
				late.Stop()
				return
			case <-tick.C:
				next = true
			case <-late.C:
			}
			late.Stop()
		}
	}
}

// deadline is when the oldest hello must have come back, or an error if that has passed.
func (s *subscription) deadline() (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.notPermitted { // it was never connected
		return now.Add(helloTimeout), nil
	}
	due, why := s.last, errNotPublished
	for _, at := range s.pending {
		if why = errNotReturned; at.Before(due) {
			due = at
		}
	}
	if due = due.Add(helloTimeout); due.After(now) {
		return due, nil
	}
	return due, why
}

// publishHello uses a random key or, if that fails, the last one that worked: a dead master must
// not end the subscription again and again.
func (s *subscription) publishHello(ctx context.Context, n int) {
	key := mathrand.N(helloKeys)
	if s.publishBy(ctx, n, key) {
		return
	}
	s.mu.Lock()
	last := s.lastKey
	s.mu.Unlock()
	if last >= 0 && last != key {
		s.publishBy(ctx, n, last)
	}
}

// publishBy publishes a hello by a key, and returns true if it did or never can do so.
func (s *subscription) publishBy(ctx context.Context, n, number int) bool {
	s.mu.Lock()
	s.pending[n] = time.Now() // set before it can come back
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, helloInterval)
	defer cancel()
	key := s.namespace + ":{hello:" + strconv.Itoa(number) + "}"
	_, err := s.conn.Eval(ctx, hello, []string{key}, s.hellos, strconv.Itoa(n))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.notPermitted, s.lastKey = false, number
		return true
	}
	delete(s.pending, n) // do not expect it back
	if s.lastKey == number {
		s.lastKey = -1
	}
	if code(err) != "NOPERM" {
		return false
	}
	if !s.notPermitted && !s.connected {
		s.notPermitted = true
		go s.conn.logger().Warn("stint: this user may not publish, so messages of other instances cannot be trusted to arrive, and refusals are not remembered", "error", err)
	}
	return true
}
