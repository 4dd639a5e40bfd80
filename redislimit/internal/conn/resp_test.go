package conn

import (
	"net"
	"strings"
	"testing"
)

// Replies pass whole, in whatever pieces they come; what is none does not.
func TestFrames(t *testing.T) {
	for text, want := range map[string]int{
		"+OK\r\n": 1, "-ERR no\r\n:12\r\n:-3\r\n": 3, "$3\r\na\nb\r\n": 1, "$0\r\n\r\n$-1\r\n": 2, "*0\r\n*-1\r\n_\r\n#t\r\n,1.5\r\n(12\r\n": 6,
		"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n+OK\r\n": 2, "%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n": 1, "=7\r\ntxt:a\r\n\r\n": 1, "*1\r\n*0\r\n:1\r\n": 2,
		">2\r\n+message\r\n+x\r\n:1\r\n": 1,
	} {
		for size := 1; size <= len(text); size++ {
			var f frames
			got := 0
			for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
				n, _, err := f.pass([]byte(rest[:min(size, len(rest))]))
				if err != nil {
					t.Errorf("%q in pieces of %d: %v", text, size, err)
				}
				got += n
			}
			if got != want || f.open != 0 || f.body != 0 || f.push {
				t.Errorf("%q in pieces of %d: %d messages, want %d; %+v", text, size, got, want, f)
			}
		}
	}
	for _, text := range []string{"x\r\n", "\r\n", "\n", "+OK\n", "$-2\r\n", "$99999999999\r\n", "$x\r\n", "$?\r\n", "*?\r\n", "*-2\r\n", "*1048577\r\n", "#tt\r\n", "_x\r\n", ":\r\n", ":1x\r\n",
		"|1\r\n+a\r\n+b\r\n", ".\r\n", "*1\r\n>1\r\n+a\r\n", "HTTP/1.1 400 Bad Request\r\n", strings.Repeat("*1\r\n", deepest+1), "+" + strings.Repeat("x", longestLine)} {
		var f frames
		if _, _, err := f.pass([]byte(text)); err == nil {
			t.Errorf("%.30q passed", text)
		}
	}
}

// Replies pass only if they were asked for, and messages only to a subscriber.
func TestGuarded(t *testing.T) {
	for name, c := range map[string]struct {
		sent, came string
		ok         bool
	}{
		"reply":             {"*1\r\n$4\r\nPING\r\n", "+PONG\r\n", true},
		"one too many":      {"*1\r\n$4\r\nPING\r\n", "+PONG\r\n+PONG\r\n", false},
		"unasked":           {"", "+PONG\r\n", false},
		"message":           {"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n", ">3\r\n+message\r\n+a\r\n+b\r\n", true},
		"message for none":  {"*1\r\n$4\r\nPING\r\n", ">3\r\n+message\r\n+a\r\n+b\r\n", false},
		"RESP2, subscribed": {"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n", "-ERR unknown command\r\n+OK\r\n*3\r\n+message\r\n+a\r\n+b\r\n", true},
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
		var whole, parts frames
		messages, pushes, err := whole.pass(b)
		var m, p int
		var failed error
		for rest := b; len(rest) > 0 && failed == nil; {
			n := min(len(rest), int(piece)+1)
			var mm, pp int
			mm, pp, failed = parts.pass(rest[:n])
			m, p, rest = m+mm, p+pp, rest[n:]
		}
		if (err == nil) != (failed == nil) || err == nil && (m != messages || p != pushes || whole.open != parts.open || whole.body != parts.body) {
			t.Fatalf("whole: %d %d %v, in pieces of %d: %d %d %v", messages, pushes, err, int(piece)+1, m, p, failed)
		}
		if whole.open > deepest || len(whole.line) > longestLine {
			t.Fatalf("holds %d levels, %d bytes", whole.open, len(whole.line))
		}
	})
}

func BenchmarkFrames(b *testing.B) {
	reply := []byte("$41\r\n" + strings.Repeat("x", 41) + "\r\n")
	var f frames
	b.ReportAllocs()
	for b.Loop() {
		_, _, _ = f.pass(reply)
	}
}
