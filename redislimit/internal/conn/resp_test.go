package conn

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
)

// Replies pass whole, in whatever pieces they come; what is none does not.
func TestFrames(t *testing.T) {
	for text, want := range map[string]int{
		"+OK\r\n": 1, "-ERR no\r\n:12\r\n:-3\r\n": 3, "$3\r\na\nb\r\n": 1, "$0\r\n\r\n$-1\r\n": 2, "*0\r\n*-1\r\n_\r\n#t\r\n,1.5\r\n(12\r\n": 6,
		"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n+OK\r\n": 2, "%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n": 1, "=7\r\ntxt:a\r\n\r\n": 1, "*1\r\n*0\r\n:1\r\n": 2,
		">2\r\n+message\r\n+x\r\n:1\r\n": 2,
	} {
		for size := 1; size <= len(text); size++ {
			var f frames
			got := 0
			for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
				if err := f.pass([]byte(rest[:min(size, len(rest))]), func(message) error { got++; return nil }); err != nil {
					t.Errorf("%q in pieces of %d: %v", text, size, err)
				}
			}
			if got != want || f.open != 0 || f.body != 0 || f.named || f.kind != 0 || f.size != 0 || len(f.head) != 0 {
				t.Errorf("%q in pieces of %d: %d messages, want %d; %+v", text, size, got, want, f)
			}
		}
	}
	for _, text := range []string{"x\r\n", "\r\n", "\n", "+OK\n", "$-2\r\n", "$99999999999\r\n", "$x\r\n", "$?\r\n", "*?\r\n", "*-2\r\n", "*1048577\r\n", "#tt\r\n", "_x\r\n", ":\r\n", ":1x\r\n",
		"|1\r\n+a\r\n+b\r\n", "%-1\r\n", ">0\r\n", ">-1\r\n", ".\r\n", "*1\r\n>1\r\n+a\r\n", "HTTP/1.1 400 Bad Request\r\n", strings.Repeat("*1\r\n", deepest+1), "+" + strings.Repeat("x", longestLine)} {
		var f frames
		if err := f.pass([]byte(text), func(message) error { return nil }); err == nil {
			t.Errorf("%.30q passed", text)
		}
	}
}

// What a message begins with is known, in whatever pieces it comes.
func TestFramesHead(t *testing.T) {
	for text, want := range map[string]message{
		"+OK\r\n": {'+', 0, []byte("OK")}, "-QUEUED\r\n": {'-', 0, []byte("QUEUED")}, "-READONLY You can't write\r\n": {'-', 0, nil},
		"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n": {'*', 2, []byte("SUBSCRIBE")}, ">3\r\n+message\r\n+a\r\n+b\r\n": {'>', 3, []byte("message")},
		"%1\r\n$4\r\npong\r\n$0\r\n\r\n": {'%', 2, []byte("pong")}, "*2\r\n:1\r\n$4\r\npong\r\n": {'*', 2, nil}, "*1\r\n*1\r\n+pong\r\n": {'*', 1, nil},
		"*2\r\n$0\r\n\r\n+a\r\n": {'*', 2, nil}, "*1\r\n$17\r\n12345678901234567\r\n": {'*', 1, nil}, "*2\r\n*0\r\n+a\r\n": {'*', 2, nil}, "$3\r\na\r\n\r\n": {'$', 0, []byte("a\r\n")},
	} {
		for size := 1; size <= len(text); size++ {
			var f frames
			for rest := text + text; rest != ""; rest = rest[min(size, len(rest)):] {
				if err := f.pass([]byte(rest[:min(size, len(rest))]), func(m message) error {
					if m.kind != want.kind || m.size != want.size || string(m.head) != string(want.head) {
						t.Errorf("%q in pieces of %d: %c %d %q", text, size, m.kind, m.size, m.head)
					}
					return nil
				}); err != nil {
					t.Errorf("%q in pieces of %d: %v", text, size, err)
				}
			}
		}
	}
}

// Replies pass only to the commands that were sent, and messages only to a subscriber.
func TestGuarded(t *testing.T) {
	const (
		hello, welcome = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", "%1\r\n+proto\r\n:3\r\n"
		hello2         = "*2\r\n$5\r\nHELLO\r\n$1\r\n2\r\n"
		ping           = "*1\r\n$4\r\nPING\r\n"
		sub            = "*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n"
		one, two       = ">3\r\n+subscribe\r\n+a\r\n:1\r\n", ">3\r\n+subscribe\r\n+b\r\n:2\r\n"
		text           = ">3\r\n+message\r\n+a\r\n+b\r\n"
	)
	array := strings.NewReplacer(">", "*")
	for name, c := range map[string]struct {
		sent, came string
		ok         bool
	}{
		"reply":                            {hello + ping, welcome + "+PONG\r\n", true},
		"one too many":                     {hello + ping, welcome + "+PONG\r\n+PONG\r\n", false},
		"unasked":                          {"", "+PONG\r\n", false},
		"subscribed":                       {hello + sub + ping, welcome + one + two + text + "+PONG\r\n" + text, true},
		"a message between confirmations":  {hello + sub + ping, welcome + one + text + "+PONG\r\n" + two, true},
		"may not subscribe":                {hello + sub + ping, welcome + "-NOPERM no\r\n+PONG\r\n", true},
		"a reply in place of a message":    {hello + sub, welcome + one + two + "+OK\r\n", false},
		"a reply to a subscriber":          {hello + sub, welcome + "+OK\r\n", false},
		"queued":                           {hello + sub, welcome + "-QUEUED\r\n", false},
		"a confirmation too many":          {hello + sub, welcome + one + two + two, false},
		"a confirmation for none":          {hello + ping, welcome + one, false},
		"a confirmation in place of PONG":  {hello + ping + sub, welcome + one, false},
		"half a confirmation":              {hello + sub, welcome + ">2\r\n+subscribe\r\n+a\r\n", false},
		"unsubscribed":                     {hello + sub, welcome + one + ">3\r\n+unsubscribe\r\n+a\r\n:0\r\n", false},
		"a message for none":               {hello + ping, welcome + text, false},
		"HELLO refused, and one too many":  {hello + ping, "-ERR unknown command\r\n+PONG\r\n+PONG\r\n", false},
		"an array in RESP3":                {hello + sub, welcome + one + two + array.Replace(text), false},
		"RESP2, subscribed":                {hello2 + sub + ping, "-ERR unknown command\r\n" + array.Replace(one+two+text) + "*2\r\n$4\r\npong\r\n$0\r\n\r\n" + array.Replace(text), true},
		"RESP2, a reply in place of one":   {hello2 + sub, "-ERR unknown command\r\n" + array.Replace(one+two) + "+OK\r\n", false},
		"RESP2, a pong that nobody wanted": {hello2 + sub, "-ERR unknown command\r\n" + array.Replace(one+two) + "*2\r\n$4\r\npong\r\n$0\r\n\r\n", false},
		"RESP2, a message for none":        {hello2, "*2\r\n+server\r\n+redis\r\n" + array.Replace(text), false},
	} {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = theirs.Read(make([]byte, len(c.sent)))
			_, _ = theirs.Write([]byte(c.came))
		}()
		conn := &guarded{Conn: ours}
		if _, err := conn.Write([]byte(c.sent)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		n, err := conn.Read(make([]byte, 1000))
		if (err == nil) != c.ok || c.ok && n != len(c.came) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		_, _ = ours.Close(), theirs.Close()
	}
}

// Replies are counted alike in whatever pieces they come, nothing is held of one
// that is none, and nothing that a server says ends the process.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("*2\r\n*1\r\n:1\r\n$1\r\nx\r\n+OK\r\n"), uint8(1))
	f.Add([]byte(">2\r\n+message\r\n%1\r\n+x\r\n#t\r\n"), uint8(3))
	f.Add([]byte("$5\r\na\r\nbc\r\n-ERR no\r\n_\r\n"), uint8(7))
	f.Add([]byte("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		read := func(size int) (f frames, messages []string, err error) {
			for rest := b; len(rest) > 0 && err == nil; {
				n := min(len(rest), size)
				err = f.pass(rest[:n], func(m message) error {
					messages = append(messages, fmt.Sprintf("%c %d %q", m.kind, m.size, m.head))
					return nil
				})
				rest = rest[n:]
			}
			return f, messages, err
		}
		whole, messages, err := read(len(b))
		parts, others, failed := read(int(piece) + 1)
		if (err == nil) != (failed == nil) || err == nil && (!slices.Equal(messages, others) || whole.open != parts.open || whole.body != parts.body) {
			t.Fatalf("whole: %q %v, in pieces of %d: %q %v", messages, err, int(piece)+1, others, failed)
		}
		if whole.open > deepest || len(whole.line) > longestLine || len(whole.head) > longestHead {
			t.Fatalf("holds %d levels, %d and %d bytes", whole.open, len(whole.line), len(whole.head))
		}
	})
}

func BenchmarkFrames(b *testing.B) {
	reply := []byte("$41\r\n" + strings.Repeat("x", 41) + "\r\n")
	var f frames
	b.ReportAllocs()
	for b.Loop() {
		_ = f.pass(reply, func(message) error { return nil })
	}
}
