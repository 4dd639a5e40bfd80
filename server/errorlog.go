package server

import (
	"context"
	"strings"
)

// errorLines passes on to the log what net/http has to say. Anyone who can connect
// can make handshakes fail, as often as they like, and without a token: of those, as
// of all that callers cause, one is told now and then.
type errorLines struct{ s *Server }

// Write implements io.Writer, a line at a time.
func (l errorLines) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	if strings.HasPrefix(text, "http: TLS handshake error") {
		if d, _ := l.s.complaints.Allow(context.Background(), "handshake", complaint); !d.Allowed {
			return len(line), nil
		}
	}
	l.s.log.Warn(text)
	return len(line), nil
}
