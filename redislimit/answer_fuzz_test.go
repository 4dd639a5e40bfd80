package redislimit

import (
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

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

// FuzzAnswer holds that whatever string the script's call returns is an answer to
// the request that was asked, or an error.
func FuzzAnswer(f *testing.F) {
	verdict := "\x01" + strings.Repeat("\x00\x00\x00\x00\x00\x00\x03", 4)
	f.Add("\x01"+strings.Repeat("\x00", 10)+verdict, uint8(0))
	f.Add("\x02"+strings.Repeat("\x00", 10)+verdict+verdict, uint8(1))
	f.Add("\x05\x00\x01"+strings.Repeat("\x00", 6)+"\x07\x07", uint8(1))
	s, err := newStore(nil, Options{})
	if err != nil {
		f.Fatal(err)
	}
	s.server.Store(&Server{})
	limit := stint.MustLimit("10 per 1s")
	penalty, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 2, BanFor: time.Minute})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, reply string, asks uint8) {
		r := stint.Request{}
		for i := range int(asks)%4 + 1 {
			r.Asks = append(r.Asks, stint.Ask{Key: string(rune('a' + i)), Limit: limit, Penalty: penalty, Cost: 1})
		}
		d, err := s.read(reply, r.Asks, int(asks)%3, nil)
		if err == nil && (d.Allowed != (d.Outcome == stint.Allowed) || d.Remaining < 0 || d.Remaining > limit.Capacity() || d.BanLeft < 0 || d.RetryAfter < 0) {
			t.Fatalf("%q: %+v", reply, d)
		}
	})
}

// FuzzAddress holds that no address crashes, and that no error tells its password.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"redis://u:secret@h:1/2?db=3", "redis+cluster://h,[::1]:7", "rediss+sentinel://:secret@a,b/m/1?sentinel_user=x", "unix://u@/x?namespace=y", "rediss://h?timeout=1s&connections=4&password_file=/p&ca=/c", "redis://secret"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		to, err := parseAddress(address)
		if err != nil {
			return
		}
		if o := to.option; len(o.InitAddress) == 0 || !o.DisableRetry || o.ConnWriteTimeout <= 0 || o.Dialer.Timeout <= 0 {
			t.Fatalf("%q: %+v", address, o)
		}
	})
}
