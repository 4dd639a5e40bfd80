package redislimit

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// Client is what a Store needs of a Redis client; Open brings one. The example
// of New shows another.
//
// Do sends one command and returns its reply: a string, an int64, nil or an []any
// of these. An error that the server replied must come back as an error whose
// text starts with the server's code, such as "NOSCRIPT", somewhere in its chain.
// Do must not send a command again once it may have been executed, for that
// could charge twice; clients that retry by themselves must be told not to. It
// must return when ctx is done, and may be called from many goroutines at once.
// A call may decide for several callers: its context is none of theirs, and ends
// after two seconds.
// In a Cluster it must send EVAL, EVALSHA, DEL, HGET and HMGET to the node of
// their keys and follow redirections.
type Client interface {
	Do(ctx context.Context, args ...string) (any, error)
}

// noder is a Client that can speak to each node of a Cluster, which Clear and Banned
// need.
type noder interface {
	nodes() []Client
}

// mostWaiting bounds how many calls wait for replies: those that their callers
// have given up among them, since a reply may still come.
const mostWaiting = 4096

// engine is the Client over rueidis. It keeps to contexts, which rueidis does not
// where its ring of waiting calls is full or a connection is being made: each call
// has a goroutine that waits for the reply, however long its caller does.
type engine struct {
	rueidis.Client
	waiting chan struct{}
	sockets *sockets
	have    *secrets // by which its connections are made
}

// texter is a Client that needs no contexts, since its calls return in their own
// time, and that gives replies that are strings as such.
type texter interface {
	text(ctx context.Context, args ...string) (string, error)
}

func (e engine) text(_ context.Context, args ...string) (string, error) {
	return e.Client.Do(context.Background(), e.command(args)).ToString()
}

type reply struct {
	value any
	err   error
}

func (e engine) Do(ctx context.Context, args ...string) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return await(ctx, e, engine.send, args)
}

// await sends, and waits for what comes back as long as ctx lives.
func await[A any](ctx context.Context, e engine, send func(engine, A) (any, error), args A) (any, error) {
	select {
	case e.waiting <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%d calls wait for the server: %w", mostWaiting, ctx.Err())
	}
	came := make(chan reply, 1)
	go func() {
		value, err := send(e, args)
		<-e.waiting
		came <- reply{value, err}
	}()
	select {
	case r := <-came:
		return r.value, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the server has not answered: %w", ctx.Err())
	}
}

func (e engine) send(args []string) (any, error) {
	return read(e.Client.Do(context.Background(), e.command(args)))
}

func read(r rueidis.RedisResult) (any, error) {
	if err := r.Error(); err != nil {
		if rueidis.IsRedisNil(err) {
			return nil, nil
		}
		return nil, err
	}
	return r.ToAny()
}

// pipeline implements pipeliner.
func (e engine) pipeline(ctx context.Context, commands [][]string) ([]any, error) {
	reply, err := await(ctx, e, engine.sendAll, commands)
	if err != nil {
		return nil, err
	}
	return reply.([]any), nil
}

func (e engine) sendAll(commands [][]string) (any, error) {
	all := make([]rueidis.Completed, len(commands))
	for i, args := range commands {
		all[i] = e.command(args)
	}
	values := make([]any, len(all))
	for i, r := range e.DoMulti(context.Background(), all...) {
		var err error
		if values[i], err = read(r); err != nil && !notThere(err) {
			return nil, err
		}
	}
	return values, nil
}

// command tells rueidis by which key to find the node. Were it told of all keys, it would
// panic at those of several slots, as of a call that was made up before it was known that
// the server belongs to a Cluster; the server replies CROSSSLOT.
func (e engine) command(args []string) rueidis.Completed {
	b := e.B()
	switch args[0] {
	case "EVAL", "EVALSHA":
		if args[2] != "0" {
			return b.Arbitrary(args[:3]...).Keys(args[3]).Args(args[4:]...).Build()
		}
	case "DEL", "GET", "HGET", "HMGET":
		return b.Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build()
	}
	return b.Arbitrary(args...).Build()
}

func (e engine) nodes() []Client {
	var all []Client
	for _, n := range e.Nodes() {
		all = append(all, engine{n, e.waiting, e.sockets, e.have})
	}
	return all
}

// notThere tells whether a server replied that a key is of another type, or has
// moved to another node.
func notThere(err error) bool {
	word, _, _ := strings.Cut(err.Error(), " ")
	return word == "WRONGTYPE" || word == "MOVED" || word == "ASK"
}

// connect opens the engine. rueidis dials at once, so a server that cannot be
// reached shows here. It gives up when ctx is done.
func connect(ctx context.Context, t *target, have *secrets) (engine, error) {
	s, o := newSockets(), t.with(have)
	o.DialCtxFn = s.dial(o.DialCtxFn)
	inTime := context.AfterFunc(ctx, func() {
		s.refuse()
		s.sever()
	})
	c, err := rueidis.NewClient(o)
	if !inTime() {
		if err == nil {
			c.Close()
		}
		err = ctx.Err()
	}
	if err != nil {
		s.refuse()
		s.sever() // a node of a Cluster may have been reached
		return engine{}, fmt.Errorf("redislimit: connect to %s: %w", addresses(o), advise(err))
	}
	return engine{c, make(chan struct{}, mostWaiting), s, have}, nil
}

// Close ends the connections, those too that rueidis forgets.
func (e engine) Close() { e.sockets.end(e.Client.Close) }

// do is Client.Do for commands that reply with a string.
func do(ctx context.Context, c Client, args ...string) (string, error) {
	reply, err := c.Do(ctx, args...)
	if err != nil {
		return "", err
	}
	s, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("%s replied %T, not a string", args[0], reply)
	}
	return s, nil
}
