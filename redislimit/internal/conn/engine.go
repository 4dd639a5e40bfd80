package conn

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// MaxWaiting is how many calls may wait for replies, including calls whose callers gave up.
const MaxWaiting = 4096

// engine is the Client over rueidis. rueidis ignores a context's end while its ring is full or it
// connects, so each call has a goroutine that waits for the reply.
type engine struct {
	rueidis.Client
	waiting chan struct{}
	sockets *sockets
	have    *secrets // for its connections
}

func (e engine) doString(args []string) (string, error) {
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

func await[A any](ctx context.Context, e engine, send func(engine, A) (any, error), args A) (any, error) {
	select {
	case e.waiting <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%d calls wait for the server: %w", MaxWaiting, ctx.Err())
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
		if values[i], err = read(r); err != nil && !keyIsElsewhere(err) {
			return nil, err
		}
	}
	return values, nil
}

// command gives rueidis one key to find the node by: keys of several slots would make it panic.
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

// keyIsElsewhere reports whether a key is of another type, or has moved.
func keyIsElsewhere(err error) bool {
	word, _, _ := strings.Cut(err.Error(), " ")
	return word == "WRONGTYPE" || word == "MOVED" || word == "ASK"
}

// newEngine connects, or gives up when ctx is done.
func newEngine(ctx context.Context, t *Target, have *secrets) (engine, error) {
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
		return engine{}, fmt.Errorf("connect to %s: %w", strings.Join(o.InitAddress, ", "), Explain(err))
	}
	return engine{c, make(chan struct{}, MaxWaiting), s, have}, nil
}

// Close ends the connections, also those that rueidis forgets.
func (e engine) Close() { e.sockets.end(e.Client.Close) }
