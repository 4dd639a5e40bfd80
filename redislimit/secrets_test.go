package redislimit_test

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

func fill(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, to, text)
}

// asks makes a function that asks s once and returns the error.
func asks(t *testing.T, s *redislimit.Store) func() error {
	l, limit := stint.NewLimiter(s), stint.MustLimit("1000000 per 1s")
	return func() error {
		_, err := l.Allow(t.Context(), "a", limit)
		return err
	}
}

// A password that is changed in the server and in its file needs no restart. The
// connections of before live on; one that is made before the file is written fails,
// and says why in one place and without a password.
func TestPasswordRotates(t *testing.T) {
	for name, c := range map[string]struct {
		user   string
		start  []string
		change []string
	}{
		"requirepass": {"", []string{"--requirepass", "first-secret"}, []string{"CONFIG", "SET", "requirepass", "second-secret"}},
		"ACL": {"app@", []string{"--requirepass", "root-secret", "--user", "app", "on", ">first-secret", "~*", "&*", "+@all"},
			[]string{"ACL", "SETUSER", "app", "resetpass", ">second-secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, c.start...)
			password := "first-secret"
			if c.user != "" {
				password = "root-secret"
			}
			admin, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, Password: password, ForceSingleClient: true, DisableCache: true})
			if err != nil {
				t.Fatal(err)
			}
			defer admin.Close()
			do := func(args ...string) {
				t.Helper()
				if err := admin.Do(t.Context(), admin.B().Arbitrary(args...).Build()).Error(); err != nil {
					t.Fatal(err)
				}
			}
			file := filepath.Join(t.TempDir(), "password")
			fill(t, file, []byte("first-secret\n"))
			s := open(t, "redis://"+c.user+server.Addr+"?connections=1&password_file="+file)
			ask := asks(t, s)
			if err := ask(); err != nil {
				t.Fatal(err)
			}

			do(c.change...)
			if err := ask(); err != nil {
				t.Fatalf("a connection of before: %v", err)
			}
			cut := func() { do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }
			cut()
			await.Until(t, "the store answers", func() bool {
				err = ask()
				return err != nil && strings.Contains(err.Error(), "WRONGPASS")
			})
			if strings.Count(err.Error(), "password") != 1 || strings.Contains(err.Error(), "secret") || !errors.Is(err, fleet.ErrNotCharged) {
				t.Errorf("the old password: %v; want what is wrong, once, and nothing charged", err)
			}
			fill(t, file, []byte("second-secret\n"))
			await.Until(t, "it answers, or tells of the secret", func() bool { err = ask(); return err == nil || strings.Contains(err.Error(), "secret") })
			if err != nil {
				t.Error(err)
			}
			// A file that has gone leaves what was read last.
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			cut()
			await.Until(t, "the store answers again", func() bool { return ask() == nil })
		})
	}
}

// A new authority, certificate and key need no restart, either.
func TestCertificatesRotate(t *testing.T) {
	t.Parallel()
	ca, cert, key := redistest.Certificate(t)
	server := redistest.Start(t, "--tls-port", "0", "--port", "0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
	address := server.ListenTLS(t)
	dir := t.TempDir()
	ours := map[string]string{"ca": filepath.Join(dir, "ca"), "cert": filepath.Join(dir, "cert"), "key": filepath.Join(dir, "key")}
	for name, from := range map[string]string{"ca": ca, "cert": cert, "key": key} {
		copyFile(t, from, ours[name])
	}
	s := open(t, "rediss://"+address+"?connections=1&server_name=localhost&ca="+ours["ca"]+"&cert="+ours["cert"]+"&key="+ours["key"])
	ask := asks(t, s)
	if err := ask(); err != nil {
		t.Fatal(err)
	}

	ca, cert, key = redistest.Certificate(t)
	server.SetTLS(t, ca, cert, key)
	await.Until(t, "the store refuses", func() bool { return ask() != nil })
	fill(t, ours["key"], []byte("half of a key"))
	if err := ask(); err == nil {
		t.Error("the server has another authority, and took a certificate of the old one")
	}
	for name, from := range map[string]string{"ca": ca, "cert": cert, "key": key} {
		copyFile(t, from, ours[name])
	}
	await.Until(t, "the store answers again", func() bool { return ask() == nil })
}

// What fills connections is their number: each is known to the server by its name.
func TestConnections(t *testing.T) {
	server := redistest.Start(t)
	for _, n := range []string{"1", "2", "8"} {
		s := open(t, "redis://"+server.Addr+"?connections="+n)
		l, limit := stint.NewLimiter(s), stint.MustLimit("1000000 per 1s")
		counted := func() string {
			text, _ := server.Do(t, "CLIENT", "LIST").ToString()
			return strconv.Itoa(strings.Count(text, "name=stint"))
		}
		await.Until(t, "it has that many connections", func() bool {
			if _, err := l.Allow(t.Context(), rand.Text(), limit); err != nil {
				t.Fatal(err)
			}
			return counted() == n
		})
		for range 200 {
			if _, err := l.Allow(t.Context(), rand.Text(), limit); err != nil {
				t.Fatal(err)
			}
		}
		if got := counted(); got != n {
			t.Errorf("connections=%s: %s", n, got)
		}
		s.Close()
		await.Until(t, "it has none", func() bool { return counted() == "0" })
	}
}

// How long a server that hangs keeps a connection, and a caller who would wait
// forever, is the timeout.
func TestTimeout(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, "redis://"+server.Addr+"?timeout=100ms")
	ask := asks(t, s)
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	server.Freeze(t)
	began := time.Now()
	if err := ask(); err == nil || time.Since(began) > 1500*time.Millisecond {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

// What is wrong is said once, also where an error of before is the reason: here a server
// that lets its user do nothing.
func TestAdviceIsGivenOnce(t *testing.T) {
	locked, open := redistest.Start(t, "--requirepass", "right"), redistest.Start(t)
	open.Do(t, "ACL", "SETUSER", "blind", "on", ">pw", "~*", "+@all", "-info")
	for word, address := range map[string]string{
		"NOAUTH":    "redis://" + locked.Addr,
		"WRONGPASS": "redis://:wrong@" + locked.Addr,
		"NOPERM":    "redis://blind:pw@" + open.Addr,
	} {
		s, err := connectLater(address, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := asks(t, s)(); err == nil || strings.Count(err.Error(), word) != 1 || strings.Count(err.Error(), "the server") != 1 {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// Neither an error nor an address that is refused tells a password.
func TestErrorsHideThePassword(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "right")
	file := filepath.Join(t.TempDir(), "password")
	fill(t, file, []byte("file-secret"))
	for _, address := range []string{
		"redis://:url-secret@" + server.Addr,
		"redis://" + server.Addr + "?password_file=" + file,
		"redis+cluster://:url-secret@" + server.Addr,
		"redis+sentinel://:url-secret@" + server.Addr + "/m?sentinel_password=sentinel-secret",
		"redis+sentinel://" + server.Addr + "/m?password_file=" + file + "&sentinel_password_file=" + file,
		"redis://:url-secret@127.0.0.1:1",
	} {
		_, err := redislimit.Connect(t.Context(), address, redislimit.Options{})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		} else if strings.Contains(err.Error(), "WRONGPASS") && strings.Count(err.Error(), "password") != 1 {
			t.Errorf("%s: said twice: %v", address, err)
		}
		t.Log(err)
	}
}

// Sentinels and servers have passwords of their own.
func TestSentinelPasswordFile(t *testing.T) {
	sentinel, master, replica := redistest.StartSentinel(t)
	sentinel.Do(t, "SENTINEL", "SET", "mymaster", "auth-pass", "server-secret")
	replica.Do(t, "CONFIG", "SET", "masterauth", "server-secret")
	master.Do(t, "CONFIG", "SET", "requirepass", "server-secret")
	replica.Do(t, "CONFIG", "SET", "requirepass", "server-secret")
	sentinel.Do(t, "ACL", "SETUSER", "default", "resetpass", ">sentinel-secret")
	dir := t.TempDir()
	of := map[string]string{"server-secret": filepath.Join(dir, "a"), "sentinel-secret": filepath.Join(dir, "b")}
	for text, file := range of {
		fill(t, file, []byte(text))
	}
	address := "@" + sentinel.Addr + "/mymaster?"
	for _, a := range []string{
		"redis+sentinel://" + address + "password_file=" + of["server-secret"] + "&sentinel_password_file=" + of["sentinel-secret"],
		"redis+sentinel://" + address + "password_file=" + of["server-secret"] + "&sentinel_password=sentinel-secret",
		"redis+sentinel://:server-secret" + address + "sentinel_password_file=" + of["sentinel-secret"],
	} {
		if err := asks(t, open(t, a))(); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	_, err := redislimit.Connect(t.Context(), "redis+sentinel://"+address+"sentinel_password_file="+of["server-secret"]+"&password_file="+of["sentinel-secret"], redislimit.Options{})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("with the files exchanged: %v", err)
	}
}
