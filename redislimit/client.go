package redislimit

import (
	"context"
	"fmt"
	"strconv"

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
// In a Cluster it must send EVAL, EVALSHA and DEL to the node of their keys and
// follow redirections.
type Client interface {
	Do(ctx context.Context, args ...string) (any, error)
}

// noder is a Client that can speak to each node of a Cluster, which Clear needs.
type noder interface {
	nodes() []Client
}

// engine is the Client over rueidis.
type engine struct{ rueidis.Client }

func (e engine) Do(ctx context.Context, args ...string) (any, error) {
	r := e.Client.Do(ctx, e.command(args))
	if err := r.Error(); err != nil {
		if rueidis.IsRedisNil(err) {
			return nil, nil
		}
		return nil, err
	}
	return r.ToAny()
}

// command tells rueidis which arguments are keys.
func (e engine) command(args []string) rueidis.Completed {
	b := e.B()
	switch args[0] {
	case "EVAL", "EVALSHA":
		if n, err := strconv.Atoi(args[2]); err == nil {
			return b.Arbitrary(args[:3]...).Keys(args[3 : 3+n]...).Args(args[3+n:]...).Build()
		}
	case "DEL":
		return b.Arbitrary("DEL").Keys(args[1:]...).Build()
	}
	return b.Arbitrary(args...).Build()
}

func (e engine) nodes() []Client {
	var all []Client
	for _, n := range e.Nodes() {
		all = append(all, engine{n})
	}
	return all
}

// connect opens the engine. rueidis dials at once, so a server that cannot be
// reached shows here.
func connect(o rueidis.ClientOption) (engine, error) {
	c, err := rueidis.NewClient(o)
	if err != nil {
		return engine{}, fmt.Errorf("redislimit: connect to %s: %w", addresses(o), advise(err))
	}
	return engine{c}, nil
}

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
