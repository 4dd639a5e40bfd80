package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// With a Redis that is full, or takes no writes for another reason, an instance that has learnt nothing refuses who is
// exhausted or banned, however many checks of new keys come before, with and between
// theirs: those that find no room are no reason not to ask, and take none along.
func TestAttackFullRedis(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says string
		set  func(t *testing.T, redis *redistest.Server, on bool)
	}{
		"no memory": {"the server is out of memory (maxmemory)", func(t *testing.T, redis *redistest.Server, on bool) {
			redis.Do(t, "CONFIG", "SET", "maxmemory", map[bool]string{true: "1", false: "0"}[on])
		}},
		"no replicas": {"too few replicas follow it (min-replicas-to-write)", func(t *testing.T, redis *redistest.Server, on bool) {
			redis.Do(t, "CONFIG", "SET", "min-replicas-to-write", map[bool]string{true: "1", false: "0"}[on])
		}},
		"no disk": {"it cannot save its data (stop-writes-on-bgsave-error, AOF)", func(t *testing.T, redis *redistest.Server, on bool) {
			if on { // a snapshot is to be written over a directory
				redis.Do(t, "CONFIG", "SET", "save", "3600 1")
				if err := os.MkdirAll(filepath.Join(redis.Dir, "dump.rdb", "x"), 0o700); err != nil {
					t.Fatal(err)
				}
				redis.Do(t, "BGSAVE")
				await.Until(t, "the snapshot fails", func() bool { return redis.Info("persistence", "rdb_last_bgsave_status") == "err" })
				return
			}
			redis.Do(t, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
		}},
	} {
		t.Run(name, func(t *testing.T) { attackFull(t, c.says, c.set) })
	}
}

func attackFull(t *testing.T, says string, set func(*testing.T, *redistest.Server, bool)) {
	redis := redistest.Start(t)
	config := configured(t, `
server: {remembered_denials: 0, decision_timeout: 5s, store: "`+redis.URL()+`"}
rules:
  - {name: bucket, match: operation == "bucket", key: attrs.key, limits: [1 per 1h]}
  - {name: log, match: operation == "log", key: attrs.key, limits: [1 per 1h sliding_log]}
  - {name: two, match: operation == "two", key: attrs.key, limits: [1 per 1h fixed_window, 1 per 2h sliding_window]}
  - name: banned
    match: operation == "offend"
    key: attrs.key
    limits: [1 per 1h]
    penalty: {ban_after: 1, ban_for: 1h}
  - name: near
    match: operation == "near"
    key: attrs.key
    limits: [1 per 1h]
    penalty: {ban_after: 100, ban_for: 1h}
  - {name: flood, match: operation == "flood", key: attrs.key, limits: [1 per 24h]}
`)
	kinds := []string{"bucket", "log", "two", "offend", "near"}
	const keys = 20
	body := func(kind string, n int) string {
		return fmt.Sprintf(`{"operation":%q,"attrs":{"key":"spent %d"}}`, kind, n)
	}
	first := serving(t, "--config", config)
	for n := range keys {
		for _, kind := range kinds {
			if a, b := checked(t, first, body(kind, n)), checked(t, first, body(kind, n)); a != 200 || b != 429 {
				t.Fatalf("%s: %d, %d", kind, a, b)
			}
		}
	}
	set(t, redis, true)
	other := serving(t, "--config", config) // which has learnt nothing
	var flood sync.WaitGroup
	end := make(chan struct{})
	for i := range 8 {
		flood.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				if code := checked(t, other, fmt.Sprintf(`{"operation":"flood","attrs":{"key":"invented %d %d"}}`, i, n)); code != 200 {
					t.Errorf("a new key: %d", code)
					return
				}
			}
		})
	}
	for range 200 {
		checked(t, other, `{"operation":"flood","attrs":{"key":"more"}}`)
	}
	for n := range keys {
		for _, kind := range kinds {
			if code := checked(t, other, body(kind, n)); code != 429 {
				t.Errorf("%s, key %d: %d", kind, n, code)
			}
		}
	}
	floodKeys(t, other, 0, 200) // one list: its last parts are asked as well
	close(end)
	flood.Wait()
	await.Until(t, "the log says why", func() bool { return strings.Contains(other.log.String(), says) })
	set(t, redis, false)
	await.Until(t, "the store decides with room again", func() bool {
		_, by := checkedBy(t, other, `{"operation":"flood","attrs":{"key":"after"}}`)
		return by == "store"
	})
}

// A Redis that refuses connections because it has as many as maxclients, or because it
// wants a certificate, is told as such, in the log and by stint status, and requests are
// decided all the same.
func TestAttackRedisRefuses(t *testing.T) {
	ca, cert, key := redistest.Certificate(t)
	for name, c := range map[string]struct {
		prepare func(*testing.T, *redistest.Server) (url string)
		want    string
	}{
		"no room": {func(t *testing.T, r *redistest.Server) string {
			c, err := net.Dial("tcp", r.Addr) // which takes the one place
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if _, err := io.WriteString(c, "CONFIG SET maxclients 1\r\n"); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(c).ReadString('\n'); line != "+OK\r\n" {
				t.Fatalf("maxclients: %q, %v", line, err)
			}
			return r.URL()
		}, "the server has as many clients as its maxclients allows"},
		"no certificate": {func(t *testing.T, r *redistest.Server) string {
			return "rediss://" + strings.Replace(r.ListenTLS(t), "127.0.0.1", "localhost", 1) + "?ca=" + ca
		}, "the server requires a client certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			redis := redistest.Start(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
			decidesWithout(t, c.prepare(t, redis), c.want)
		})
	}
}
