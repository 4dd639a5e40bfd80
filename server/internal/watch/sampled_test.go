package watch

import (
	"bytes"
	"errors"
	stdlog "log"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The first of a kind is logged at once, and the next one after ten seconds, with how
// many there were between; kinds do not hide each other.
func TestLogEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &Sampled{To: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))}
		lines := stdlog.New(s, "", 0)
		expect := func(want ...string) {
			t.Helper()
			if got := log.String(); got != strings.Join(want, "") {
				t.Errorf("got\n%swant\n%s", got, strings.Join(want, ""))
			}
			log.Reset()
		}
		for i := range 50 {
			lines.Printf("http: TLS handshake error from %d", i)
			lines.Printf("http: panic serving %d", i)
			lines.Print(errors.New("something else"))
		}
		expect("level=WARN msg=\"http: TLS handshake error from 0\"\n", "level=WARN msg=\"http: panic serving 0\"\n", "level=WARN msg=\"something else\"\n")
		time.Sleep(10*time.Second - time.Nanosecond)
		lines.Printf("http: panic serving %d", 50)
		expect()
		time.Sleep(time.Nanosecond)
		lines.Printf("http: panic serving %d", 51)
		lines.Printf("http: panic serving %d", 52)
		expect("level=WARN msg=\"http: panic serving 51\" unlogged=50\n")
		time.Sleep(time.Hour)
		lines.Printf("http: TLS handshake error from %d", 53)
		expect("level=WARN msg=\"http: TLS handshake error from 53\" unlogged=49\n")
	})
}
