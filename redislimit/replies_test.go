package redislimit_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
)

// said is what servers do say, each to another command.
var said = []string{
	"+OK\r\n", "+PONG\r\n", "+QUEUED\r\n", "-QUEUED\r\n", "-ERR unknown command 'HELLO'\r\n", "-NOAUTH no\r\n", "_\r\n", "%-1\r\n", "*0\r\n",
	"*2\r\n$4\r\npong\r\n$0\r\n\r\n", "*3\r\n$7\r\nmessage\r\n+a\r\n+b\r\n", ">3\r\n$7\r\nmessage\r\n+a\r\n+b\r\n", ">1\r\n+message\r\n",
	">3\r\n+subscribe\r\n+a\r\n:1\r\n", "*3\r\n+subscribe\r\n+a\r\n:1\r\n", ">2\r\n+subscribe\r\n+a\r\n", ">3\r\n+unsubscribe\r\n+a\r\n:0\r\n",
	">3\r\n+psubscribe\r\n+a\r\n:1\r\n", ">2\r\n+invalidate\r\n_\r\n", "%1\r\n+proto\r\n:3\r\n", "*2\r\n+proto\r\n:3\r\n", "%1\r\n+proto\r\n:2\r\n",
}

// What a server says that no server should costs connections and errors: no
// process, no memory, and no decision that was not made.
func TestLyingServer(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string]func([]byte) []byte{
		"a reply too many": func(b []byte) []byte { return append(b, "+OK\r\n"...) },
		"a message to nobody": func(b []byte) []byte {
			return append([]byte(">3\r\n+subscribe\r\n+a\r\n:1\r\n"), b...)
		},
		"a string of a terabyte": func([]byte) []byte { return []byte("$1099511627776\r\n") },
		"less than nothing":      func([]byte) []byte { return []byte("$-7\r\n") },
		"an array of everything": func([]byte) []byte { return []byte("*9223372036854775807\r\n") },
		"another protocol":       func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") },
		"numbers": func(b []byte) []byte {
			return []byte(":1\r\n")
		},
		"noise": func(b []byte) []byte {
			b = append([]byte(nil), b...)
			for range 1 + rand.IntN(3) {
				b[rand.IntN(len(b))] = byte(rand.Uint32())
			}
			return b
		},
		// These are what a connection that has subscribed must not take for replies.
		"replies in place of messages": func(b []byte) []byte {
			if b[0] == '>' {
				return []byte("+OK\r\n")
			}
			return b
		},
		"messages":    func(b []byte) []byte { return append(b, said[rand.IntN(len(said))]...) },
		"nonsense":    func([]byte) []byte { return []byte(said[rand.IntN(len(said))]) },
		"a byte less": func(b []byte) []byte { return b[:len(b)-1] },
		"an error":    func([]byte) []byte { return []byte("-NOSCRIPT\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := redistest.StartProxy(t, server.Addr)
			s := open(t, p.URL())
			connected := make(chan bool, 100)
			ctx, cancel := context.WithCancel(t.Context())
			var listening sync.WaitGroup
			listening.Go(func() {
				_ = s.Notify(ctx, fleet.Listener{Connected: func(yes bool) { connected <- yes }, Invalidated: func(string) {}})
			})
			defer listening.Wait()
			defer cancel()
			callers := 8
			if brief() {
				callers = 2
			}
			l := start(s, callers, patient, nil)
			l.recovers(t, "before")
			<-connected
			p.Set(redistest.Toxic{Lie: lie})
			time.Sleep(max(spell(), 1200*time.Millisecond)) // a message comes each second
			p.Set(redistest.Toxic{})
			p.Reset() // a byte less leaves a connection that waits for it
			l.recovers(t, name)
			close(l.stop)
			l.callers.Wait()
			t.Logf("%d admitted, %d in doubt: %v", l.admitted, l.maybe, len(l.errors))
		})
	}
}

// A server, or a proxy before it, that knows no HELLO is spoken to by RESP2, where the
// messages of a subscription look like replies.
func TestRESP2(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--rename-command", "HELLO", "")
	p := redistest.StartProxy(t, server.Addr)
	s := open(t, p.URL())
	connected, invalidated := make(chan bool, 100), make(chan string, 100)
	go func() {
		_ = s.Notify(t.Context(), fleet.Listener{Connected: func(yes bool) { connected <- yes }, Invalidated: func(key string) { invalidated <- key }})
	}()
	if !<-connected {
		t.Error("not connected")
	}
	time.Sleep(2500 * time.Millisecond) // rueidis asks PING meanwhile, which is answered by an array
	limiter, limit := stint.NewLimiter(s), stint.MustLimit("1 per 1h")
	if d, err := limiter.Allow(t.Context(), "k", limit); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	if err := limiter.Reset(t.Context(), "k", limit); err != nil {
		t.Error(err)
	}
	if key := <-invalidated; key != "k" {
		t.Errorf("invalidated %q", key)
	}
	if len(connected) > 0 {
		t.Error("the connection of the subscription was lost")
	}
	p.Set(redistest.Toxic{Lie: func(b []byte) []byte {
		if bytes.Contains(b, []byte("message")) {
			return []byte("+OK\r\n")
		}
		return b
	}})
	if <-connected {
		t.Error("connected by replies to nothing")
	}
}

// Well-formed replies that are false are believed where they are possible, and cost
// an error where they are not: then a Fallback decides.
func TestFalseAnswers(t *testing.T) {
	server := redistest.Start(t)
	p := redistest.StartProxy(t, server.Addr)
	s := open(t, p.URL())
	logged, viewed := stint.MustLimit("10 per 1h sliding_log"), stint.MustLimit("10 per 1h fixed_window")
	head := func(result byte) string { return string(result) + strings.Repeat("\x00", 10) }
	verdict := func(fits byte, remaining uint64) string {
		return string(binary.BigEndian.AppendUint64(nil, uint64(fits)<<56|remaining)) + strings.Repeat("\x00", 21)
	}
	allowed := head(1)[:10] + "\x01" // one of them
	view := func(used uint64) string {
		now := uint64(time.Now().UnixMicro())
		return string(binary.BigEndian.AppendUint64(nil, now<<8|used>>48)) + string(binary.BigEndian.AppendUint64(nil, used)[2:])
	}
	// The heads of the answers to a request of one ask: a verdict, or a view.
	answered := map[*stint.Limit]string{logged: "$40\r\n", viewed: "$25\r\n"}
	lie := func(limit *stint.Limit, text string) {
		reply := []byte(fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
		p.Set(redistest.Toxic{Lie: func(b []byte) []byte {
			if !bytes.HasPrefix(b, []byte(answered[limit])) {
				return b
			}
			_, rest, _ := bytes.Cut(b[len("$40\r\n")+20:], []byte("\r\n"))
			return append(append([]byte(nil), reply...), rest...)
		}})
	}
	type falsehood struct {
		limit *stint.Limit
		text  string
	}
	for name, f := range map[string]falsehood{
		"nothing":                    {logged, ""},
		"a result that there isn't":  {logged, head(9) + verdict(1, 3)},
		"no verdict":                 {logged, allowed},
		"half a verdict":             {logged, allowed + verdict(1, 3)[:10]},
		"more left than there is":    {logged, allowed + verdict(1, 1<<50)},
		"allowed, which it is not":   {logged, allowed + verdict(0, 0)},
		"allowed nobody":             {logged, head(1) + verdict(1, 3)},
		"refused, which it is not":   {logged, head(2) + verdict(1, 3)},
		"banned by no penalty":       {logged, "\x05\x00\x01" + head(0)[3:]},
		"a broken key of nobody":     {logged, "\x06\x00\x09" + head(0)[3:]},
		"a ban of less than no time": {logged, "\x04\x00\x01\xff" + head(0)[4:] + verdict(0, 0)},
		"half a view":                {viewed, allowed + view(3)[:9]},
		"allowed, and was full":      {viewed, allowed + view(10)},
		"refused, and had room":      {viewed, head(2) + view(3)},
	} {
		limit := f.limit
		t.Run(name, func(t *testing.T) {
			lie(limit, f.text)
			if d, err := stint.NewLimiter(s).Allow(t.Context(), name, limit); !errors.Is(err, fleet.ErrBadReply) {
				t.Errorf("%+v, %v", d, err)
			}
			fall := &fleet.Fallback{Store: s, Deadline: 10 * time.Second, Breaker: fleet.Breaker{Failures: -1}} // a probe would go along, and change the reply
			defer fall.Close()
			limiter := stint.NewLimiter(fall)
			for i := range 12 {
				d, err := limiter.Allow(t.Context(), name, limit)
				if err != nil || d.By != stint.ByLocal || d.Allowed != (i < 10) {
					t.Fatalf("call %d: %+v, %v", i, d, err)
				}
			}
		})
	}
	for f, want := range map[falsehood]stint.Decision{
		{logged, allowed + verdict(1, 7)}: {Allowed: true, Remaining: 7},
		{logged, head(2) + verdict(0, 2)}: {Remaining: 2},
		{viewed, allowed + view(2)}:       {Allowed: true, Remaining: 7},
		{viewed, head(2) + view(10)}:      {Remaining: 0},
	} {
		lie(f.limit, f.text)
		d, err := stint.NewLimiter(s).Allow(t.Context(), "k", f.limit)
		if err != nil || d.Allowed != want.Allowed || d.Remaining != want.Remaining || d.By != stint.ByStore {
			t.Errorf("%q: %+v, %v; want %+v", f.text, d, err, want)
		}
	}
}
