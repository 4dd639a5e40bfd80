package conn

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"time"
)

// Script is a Lua script and its SHA, the server's name for it.
type Script struct {
	Text string
	SHA  string
}

// NewScript returns the Script of a text.
func NewScript(text string) Script {
	sum := sha1.Sum([]byte(text))
	return Script{text, hex.EncodeToString(sum[:])}
}

// Eval runs a script on keys. In a Cluster, all must be in one slot.
func (c *Conn) Eval(ctx context.Context, s Script, keys []string, argv ...string) (any, error) {
	args := make([]string, 0, 3+len(keys)+len(argv))
	args = append(args, "EVALSHA", s.SHA, strconv.Itoa(len(keys)))
	args = append(args, keys...)
	args = append(args, argv...)
	return c.EvalArgs(ctx, s, args)
}

// EvalArgs is Eval with the whole command: EVALSHA, the script's SHA, the number of keys, the keys,
// the arguments. It may overwrite the first two.
func (c *Conn) EvalArgs(ctx context.Context, s Script, args []string) (any, error) {
	return evalsha(ctx, s, args, c.send)
}

// EvalString is EvalArgs for a script that returns a string. If ctx never ends, the call is made on
// this goroutine, and the user's own client has 2 seconds for it.
func (c *Conn) EvalString(ctx context.Context, s Script, args []string) (string, error) {
	if c.own != nil && ctx.Done() == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ownTimeout)
		defer cancel()
	}
	return evalsha(ctx, s, args, c.sendForString)
}

// evalsha runs a script. After NOSCRIPT (with the text) and TRYAGAIN (later) it sends again,
// because nothing ran.
func evalsha[T any](ctx context.Context, s Script, args []string, send func(context.Context, ...string) (T, error)) (none T, _ error) {
	for wait := firstRest; ; {
		reply, err := send(ctx, args...)
		if err == nil {
			return reply, nil
		}
		switch word := code(err); {
		case word == "NOSCRIPT" && args[0] == "EVALSHA":
			args[0], args[1] = "EVAL", s.Text
		case word == "TRYAGAIN" && wait <= longestRest:
			if !rest(ctx, wait) {
				return none, Explain(err)
			}
			wait *= 2
		default:
			return none, Explain(err)
		}
	}
}

// The pauses between attempts while a Cluster moves a slot, 63 ms in all.
const (
	firstRest   = time.Millisecond
	longestRest = 32 * time.Millisecond
)
