package server

import (
	"log/slog"
	"strings"
)

// errorLines passes on to the log what net/http and others within have to say. Anyone who
// can connect can make most of it happen, as often as they like and without a token: so
// of each kind one is told now and then.
type errorLines struct{ s *Server }

// errorKinds are what the lines of a kind begin with. All others are one kind.
var errorKinds = [...]string{
	"http: TLS handshake error", "http: panic serving", "http: Accept error", "http: superfluous response",
	"http: URL query contains semicolon", "http2: ", "httputil: ReverseProxy read error", "suppressing panic",
}

// Write implements io.Writer, a line at a time.
func (l errorLines) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	kind := "net/http"
	for _, k := range errorKinds {
		if strings.HasPrefix(text, k) {
			kind = k
			break
		}
	}
	l.s.complainAt(slog.LevelWarn, kind, text)
	return len(line), nil
}
