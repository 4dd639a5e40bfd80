package redislimit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
)

// What a server says that no server should costs connections and errors: no
// process, no memory, and no decision that was not made.
func TestLyingServer(t *testing.T) {
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
