package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A log that nobody reads any more holds up neither decisions, nor changes, nor the
// end. What it did not take is counted.
func TestServeLogUnread(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(reader *os.File){
		"not read": func(*os.File) {},
		"closed":   func(reader *os.File) { reader.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			cmd := program(t, "serve", "--limit", "1000000 per 1h", "--check-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
			cmd.Stderr = writer
			c := launch(t, cmd)
			writer.Close()
			s := &served{log: c.log}
			s.log.readUntil(t, reader, "no gateway")
			s.await(t)
			leave(reader)

			impatient := &http.Client{Timeout: 5 * time.Second}
			lines := 0
			for i := range 2000 { // each leaves lines of more than 1 kB: the pipe takes 64 kB, and what waits in memory 1 MiB
				body := fmt.Sprintf(`{"enabled":%t,"reason":%q}`, i%2 == 0, strings.Repeat("x", 480))
				r, _ := http.NewRequest("PATCH", s.admin+"/v1/switches", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				resp, err := impatient.Do(r)
				if err != nil {
					t.Fatalf("change %d: %v", i, err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				lines++
			}
			for _, path := range []string{"/healthz", "/readyz"} {
				resp, err := impatient.Get(s.check + path)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("%s: %v, %v", path, resp, err)
				}
				resp.Body.Close()
			}
			resp, err := impatient.Post(s.check+"/v1/check", "application/json", strings.NewReader(`{"client":"192.0.2.1"}`))
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("a check: %v, %v", resp, err)
			}
			resp.Body.Close()
			log, audit := metric(t, s, "stint_log_lines_dropped_total"), metric(t, s, "stint_audit_lines_dropped_total")
			if log == 0 {
				t.Error("no line is counted as dropped")
			}
			if audit == 0 && name == "not read" { // where it is closed, lines are taken, and lost on the way
				t.Error("no audit line is counted as dropped")
			}
			t.Logf("of %d changes: %v lines dropped, %v of them audit", lines, log, audit)

			c.signal(t, syscall.SIGTERM)
			c.endsWell(t)
		})
	}
}

// readUntil takes over what r has, byte by byte so that none is read ahead, up to the line with a text
// in it.
func (l *log) readUntil(t *testing.T, r io.Reader, text string) {
	t.Helper()
	for b := make([]byte, 1); b[0] != '\n' || !strings.Contains(l.String(), text); {
		if _, err := r.Read(b); err != nil {
			t.Fatal(err)
		}
		_, _ = l.Write(b)
	}
}
