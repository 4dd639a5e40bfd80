package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// stateOf starts an instance in a process of its own that keeps its state in a directory.
func stateOf(t *testing.T, settings, dir, url string) (*child, *served) {
	t.Helper()
	file := configured(t, fmt.Sprintf("server: {rules: fleet, state_dir: %q, %s}\n", dir, settings)+liveRules)
	return process(t, "--config", file, "--store", url)
}

const liveRules = `
rules:
  - {name: login, match: operation == "login", key: client.ip, limits: [3 per 1h]}
  - {name: upload, match: operation == "upload", key: client.ip, limits: [1 per 1h]}
`

// An instance that is killed and started again while its Redis is away goes by the
// bans, lists, switches and pushed rules of before, those that Redis had not got yet
// among them, and says so wherever it is asked. When Redis is back, what was changed
// there meanwhile counts, and what waited is merged.
func TestAttackStartWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	way := redistest.StartProxy(t, redis.Addr)
	dir := filepath.Join(t.TempDir(), "state")
	const settings = "ready_without_controls: false"
	c, a := stateOf(t, settings, dir, way.URL())
	other := serving(t, "--limit", "5 per 1h", "--store", redis.URL())
	do := func(s *served, words []string, args ...string) string {
		t.Helper()
		return want(t, func(args ...string) (int, string) {
			code, out, errs := call("", append(args, "--admin", s.admin)...)
			return code, out + errs
		}, 0, words, args...)
	}
	const (
		banned  = `{"operation":"login","client":"192.0.2.1"}`
		network = `{"operation":"login","client":"198.51.100.7"}`
		blocked = `{"operation":"login","client":"203.0.113.7"}`
		waiting = `{"operation":"login","client":"192.0.2.2"}`
		upload  = `{"operation":"upload","client":"192.0.2.3"}`
	)
	do(a, nil, "ban", "add", "--rule", "login", "--key", "192.0.2.1", "--for", "1h")
	do(a, nil, "ban", "add", "--network", "198.51.100.0/24")
	do(a, nil, "blocklist", "add", "--network", "203.0.113.0/24")
	do(a, nil, "switch", "upload", "off")
	await.Until(t, "the other knows", func() bool { return checked(t, other, network) == 429 })

	way.Set(redistest.Toxic{Refuse: true})
	way.Reset()
	await.Until(t, "the store is away", func() bool { return !statusOf(t, a).Store.OK })
	do(a, []string{"kept in state_dir if this instance ends before"}, "ban", "add", "--rule", "login", "--key", "192.0.2.2")
	holds := func(s *served) {
		t.Helper()
		for _, body := range []string{banned, network, waiting} {
			if code := checked(t, s, body); code != 429 {
				t.Errorf("%s: %d\n%s", body, code, s.log)
			}
		}
		if code := checked(t, s, blocked); code != 403 {
			t.Errorf("%s: %d", blocked, code)
		}
		for range 3 {
			if code := checked(t, s, upload); code != 200 {
				t.Errorf("%s: %d, though its rule is off", upload, code)
			}
		}
	}
	holds(a)
	for range 2 { // the second finds what the first has kept in turn
		c.kill(t)
		c, a = stateOf(t, settings, dir, way.URL())
		holds(a)
		if text := ready(t, a); text != "200 ready, without the store, by the saved documents of the fleet" {
			t.Errorf("ready: %s", text)
		}
		_, out, errs := call("", "status", "--admin", a.admin)
		for _, words := range []string{"KEPT in state_dir, read from the store 2", "pending", "DOES NOT ANSWER"} {
			if !strings.Contains(out, words) {
				t.Errorf("status lacks %q:\n%s%s", words, out, errs)
			}
		}
		await.Until(t, "the log says so", func() bool { return strings.Contains(a.log.String(), "the saved ones are in force") })
	}

	// One more in that directory is refused; one without a file is not ready, and says so.
	file := configured(t, fmt.Sprintf("server: {state_dir: %q}\n", dir)+liveRules)
	if code, _, errs := call("", "serve", "--config", file, "--store", way.URL(), "--check-listen", "127.0.0.1:0", "--admin-listen", "off"); code != 1 || !strings.Contains(errs, "another instance uses it") {
		t.Errorf("two in one directory: %d %s", code, errs)
	}
	_, empty := stateOf(t, settings, filepath.Join(t.TempDir(), "empty"), way.URL())
	if text := ready(t, empty); text != "503 the fleet's bans, lists, switches and rules have not been read yet (ready_without_controls: false); `stint status` says why" {
		t.Errorf("ready, without a file: %s", text)
	}
	if _, out, _ := call("", "status", "--admin", empty.admin); !strings.Contains(out, "NOT READ since the start") {
		t.Errorf("status, without a file:\n%s", out)
	}

	do(other, nil, "ban", "lift", "--network", "198.51.100.0/24")
	way.Set(redistest.Toxic{})
	for _, s := range []*served{a, empty} {
		await.Until(t, "the store was read", func() bool {
			now := statusOf(t, s)
			return now.Controls.Source == "store" && len(now.Controls.Pending) == 0 && now.Store.OK
		})
		await.Until(t, "what waited is there, and what was lifted is not", func() bool {
			return checked(t, s, waiting) == 429 && checked(t, s, network) == 200 && checked(t, s, banned) == 429
		})
		await.Until(t, "it is ready", func() bool { return ready(t, s) == "200 ready" })
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	await.Until(t, "there is one file, and none that is being written", func() bool {
		files, _ := filepath.Glob(filepath.Join(dir, "state-*"))
		if len(files) != 1 || strings.HasSuffix(files[0], ".new") {
			return false
		}
		info, err := os.Stat(files[0])
		return err == nil && info.Mode().Perm() == 0o600
	})
}

// Where the clock of a machine is two hours ahead of that of the Redis, the program says
// so, and a ban lasts as long as it was to last.
func TestServeFastClock(t *testing.T) {
	t.Parallel()
	redis, clock := redistest.StartWithClock(t)
	clock.Jump(t, -2*time.Hour)
	s := serving(t, "--limit", "100 per 1h", "--store", redis.URL())
	if _, out, errs := call("", "status", "--admin", s.admin); !strings.Contains(out, "2h0m0s AHEAD of the store's") {
		t.Errorf("status:\n%s%s", out, errs)
	}
	await.Until(t, "the log says so", func() bool {
		return strings.Contains(s.log.String(), "clock skew against the store")
	})
	const body = `{"client":"192.0.2.1"}`
	began := time.Now()
	if code, _, errs := call("", "ban", "add", "--network", "192.0.2.1", "--for", "1s", "--admin", s.admin); code != 0 {
		t.Fatal(errs)
	}
	if code := checked(t, s, body); code != 429 && time.Since(began) < time.Second {
		t.Errorf("a ban of a second: %d after %s", code, time.Since(began))
	}
	await.Until(t, "it ends", func() bool { return checked(t, s, body) == 200 })
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("it ended after %s", took)
	}
	until2h := redis.Now(t).Add(2 * time.Hour).UTC().Format(time.RFC3339) // past the machine's now by nothing
	if code, _, errs := call("", "ban", "add", "--network", "192.0.2.1", "--until", until2h, "--admin", s.admin); code != 0 {
		t.Error(errs)
	}
	if code := checked(t, s, body); code != 429 {
		t.Errorf("a ban that has two hours to go: %d", code)
	}
}
