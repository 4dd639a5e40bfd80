package redislimit_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
)

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
		"a byte less": func(b []byte) []byte { return b[:len(b)-1] },
		"an error":    func([]byte) []byte { return []byte("-NOSCRIPT\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			p := redistest.StartProxy(t, server.Addr)
			s := open(t, p.URL())
			l := start(s, 8, patient, nil)
			l.recovers(t, "before")
			p.Set(redistest.Toxic{Lie: lie})
			time.Sleep(spell())
			p.Set(redistest.Toxic{})
			p.Reset() // a byte less leaves a connection that waits for it
			l.recovers(t, name)
			close(l.stop)
			l.callers.Wait()
			t.Logf("%d admitted, %d in doubt: %v", l.admitted, l.maybe, len(l.errors))
		})
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
			if d, err := stint.NewLimiter(s).Allow(t.Context(), name, limit); err == nil {
				t.Errorf("believed: %+v", d)
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
