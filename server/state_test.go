package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// cutOffShelf is a shelf that one instance may not reach.
type cutOffShelf struct {
	*shelf
	cut atomic.Bool
}

var errCutOff = errors.New("cut off")

func (c *cutOffShelf) Now(ctx context.Context) (time.Time, error) {
	if c.cut.Load() {
		return time.Time{}, errCutOff
	}
	return c.shelf.Now(ctx)
}

func (c *cutOffShelf) Newest(ctx context.Context, name string) (int64, string, error) {
	if c.cut.Load() {
		return 0, "", errCutOff
	}
	return c.shelf.Newest(ctx, name)
}

func (c *cutOffShelf) Read(ctx context.Context, name string, number int64) ([]byte, error) {
	if c.cut.Load() {
		return nil, errCutOff
	}
	return c.shelf.Read(ctx, name, number)
}

func (c *cutOffShelf) Write(ctx context.Context, name string, number int64, text []byte) (bool, error) {
	if c.cut.Load() {
		return false, errCutOff
	}
	return c.shelf.Write(ctx, name, number, text)
}

// keeping starts an instance that keeps its state in a directory, and ends it.
func (f *fleet) keeping(dir string, documents server.Documents, changes ...func(*server.Config)) (operator, *server.Server, func()) {
	f.Helper()
	ctx, stop := context.WithCancel(f.ctx)
	s := newServer(f.TB, adminRules, append([]func(*server.Config){over(f.store), func(c *server.Config) {
		c.Settings.StateDir, c.Settings.Namespace = dir, "shop"
		if documents != nil {
			c.Documents, c.Settings.RulesFrom = documents, config.FromFleet
		}
	}}, changes...)...)
	s.SetClock(f.wall)
	if err := s.Open(); err != nil {
		f.Fatal(err)
	}
	s.Follow(ctx)
	return operator{f.TB, s.Admin()}, s, func() {
		stop()
		s.Close()
	}
}

func stateFile(t testing.TB, dir string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "state-*"))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

// Every kind of change that waits outlives its instance and is merged by the next one,
// once; what its rules and controls were decides meanwhile.
func TestStateKeepsPendingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFleet(t), t.TempDir()
		way := &cutOffShelf{shelf: f.shelf}
		a, _, end := f.keeping(dir, way)
		b, _ := f.join(adminRules)
		old := a.id(a.want(201, "POST", "/v1/bans", `{"network":"203.0.113.0/24"}`))
		lifted := a.id(a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.50"}`))
		listed := a.id(a.want(201, "POST", "/v1/lists/blocklist", `{"network":"198.51.100.0/24"}`))
		override := a.id(a.want(201, "POST", "/v1/overrides", `{"rule":"api","key":["ann","x"],"times":2}`))
		a.want(200, "PUT", "/v1/rules", push(strings.Replace(adminRules, "2 per 1m", "3 per 1m", 1), 0))
		way.cut.Store(true)
		time.Sleep(2 * time.Second)
		const kept = "kept in state_dir if this instance ends before"
		a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1","reason":"tries passwords"}`, kept)
		a.want(200, "DELETE", "/v1/bans/"+old, "", kept)
		a.want(200, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.50"}`, kept)
		a.want(201, "POST", "/v1/lists/safelist", `{"network":"192.0.2.77"}`, kept)
		a.want(200, "DELETE", "/v1/lists/blocklist/"+listed, "", kept)
		a.want(200, "DELETE", "/v1/overrides/"+override, "", kept)
		a.want(201, "POST", "/v1/overrides", `{"rule":"api","tier":"gold","times":3}`, kept)
		a.want(200, "PATCH", "/v1/switches", `{"enabled":true,"rules":{"api":"shadow","login":null}}`, kept)
		views := func(o operator) (all string) {
			for _, path := range []string{"/v1/bans", "/v1/lists/safelist", "/v1/lists/blocklist", "/v1/overrides", "/v1/switches"} {
				all += o.want(200, "GET", path, "") + "\n"
			}
			return all
		}
		before := views(a)
		for range 2 {
			end()
			a, _, end = f.keeping(dir, way)
			if after := views(a); after != before {
				t.Errorf("kept\n%s\nof\n%s", after, before)
			}
			a.want(200, "GET", "/v1/status", "", `"source":"state_dir"`, `"read":"`, `"action":"switch"`, `"source":"fleet"`)
		}
		a.want(200, "GET", "/v1/rules", "", "3 per 1m")
		way.cut.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for _, o := range []operator{a, b} {
			if after := views(o); after != before {
				t.Errorf("merged\n%s\nof\n%s", after, before)
			}
			o.want(200, "GET", "/v1/status", "", `"source":"store"`, `"pending":[]`)
		}
		if strings.Contains(before, lifted) || strings.Contains(before, old) {
			t.Error(before)
		}
		end()
	})
}

// A change whose writing went unanswered, and was done, is not made again by the next
// instance: it would undo what somebody has changed since.
func TestStateUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFleet(t), t.TempDir()
		way := &cutOffShelf{shelf: f.shelf}
		a, _, end := f.keeping(dir, way)
		b, _ := f.join(adminRules)
		f.shelf.set(func(s *shelf) { s.lost = errors.New("no answer") })
		a.want(200, "PATCH", "/v1/switches", `{"enabled":false}`, `"pending":"`)
		way.cut.Store(true)
		f.shelf.set(func(s *shelf) { s.lost = nil })
		a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1"}`, `"pending":"`)
		end()
		time.Sleep(time.Second)
		b.want(200, "PATCH", "/v1/switches", `{"enabled":true}`)
		a, _, end = f.keeping(dir, way)
		a.want(200, "GET", "/v1/switches", "", `"set":false`)
		way.cut.Store(false)
		time.Sleep(2 * time.Second)
		for _, o := range []operator{a, b} {
			o.want(200, "GET", "/v1/switches", "", `"set":true`)
			o.want(200, "GET", "/v1/bans", "", "192.0.2.1")
			o.want(200, "GET", "/v1/status", "", `"pending":[]`)
		}
		end()
	})
}

// afterLoss is a fleet whose store has lost its documents, and cannot be reached, since a
// while after an instance saved a ban in dir and ended.
func afterLoss(t *testing.T, away time.Duration) (f *fleet, dir string, way *cutOffShelf) {
	f, dir = newFleet(t), t.TempDir()
	way = &cutOffShelf{shelf: f.shelf}
	a, _, end := f.keeping(dir, way)
	a.want(201, "POST", "/v1/bans", `{"network":"203.0.113.0/24"}`)
	end()
	time.Sleep(away)
	f.shelf.set(func(s *shelf) { s.versions = nil })
	way.cut.Store(true)
	return f, dir, way
}

// What is kept is put back where the store has lost it, if it was read not long ago;
// else whatever the store has counts.
func TestStateOfALostStore(t *testing.T) {
	for _, c := range []struct {
		away time.Duration
		back bool
	}{{time.Hour, true}, {48 * time.Hour, false}} {
		synctest.Test(t, func(t *testing.T) {
			f, dir, way := afterLoss(t, c.away)
			a, one, end := f.keeping(dir, way)
			expect(t, outcome(t, one, `{"client":"203.0.113.1"}`), "banned")
			way.cut.Store(false)
			time.Sleep(2 * time.Second)
			if is := strings.Contains(a.want(200, "GET", "/v1/bans", ""), "203.0.113"); is != c.back {
				t.Errorf("after %s away: %t", c.away, is)
			}
			end()
		})
	}
}

// How old what is kept is, the store's clock says, however wrong the machine's is since.
func TestStateOfAWrongClock(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		away, ahead time.Duration
		back        bool
	}{{2 * day, -3 * day, false}, {time.Hour, 3 * day, true}} {
		synctest.Test(t, func(t *testing.T) {
			f, dir, way := afterLoss(t, c.away)
			f.wall = func() time.Time { return time.Now().Add(c.ahead) }
			a, _, end := f.keeping(dir, way)
			way.cut.Store(false)
			time.Sleep(2 * time.Second)
			if is := strings.Contains(a.want(200, "GET", "/v1/bans", ""), "203.0.113"); is != c.back {
				t.Errorf("after %s away, the clock %s ahead: %t", c.away, c.ahead, is)
			}
			end()
		})
	}
}

// What the store still had after a month is as good as read now: it is put back when the
// store loses it later.
func TestStateConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFleet(t), t.TempDir()
		a, _, end := f.keeping(dir, f.shelf)
		a.want(201, "POST", "/v1/bans", `{"network":"203.0.113.0/24"}`)
		end()
		time.Sleep(30 * 24 * time.Hour)
		a, one, end := f.keeping(dir, f.shelf)
		defer end()
		time.Sleep(2 * time.Second)
		f.shelf.set(func(s *shelf) { s.versions = nil })
		time.Sleep(2 * time.Second)
		expect(t, outcome(t, one, `{"client":"203.0.113.1"}`), "banned")
		if text := a.want(200, "GET", "/v1/bans", ""); !strings.Contains(text, "203.0.113") {
			t.Error(text)
		}
	})
}

// Rules that were pushed a month ago give way to the file's where the store has none.
func TestStateOldRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFleet(t), t.TempDir()
		way := &cutOffShelf{shelf: f.shelf}
		a, _, end := f.keeping(dir, way)
		a.want(200, "PUT", "/v1/rules", push("rules: [{name: pushed, key: client.ip, limits: [1 per 1h]}]", 0))
		end()
		time.Sleep(30 * 24 * time.Hour)
		f.shelf.set(func(s *shelf) { s.versions = nil })
		way.cut.Store(true)
		a, _, end = f.keeping(dir, way)
		defer end()
		if text := a.want(200, "GET", "/v1/rules", ""); !strings.Contains(text, "pushed") {
			t.Fatalf("what is kept does not stand in: %s", text)
		}
		way.cut.Store(false)
		time.Sleep(2 * time.Second)
		if text := a.want(200, "GET", "/v1/rules", ""); strings.Contains(text, "pushed") {
			t.Errorf("%s", text)
		}
	})
}

// A file is of one database: that of another is another fleet's, wherever the address
// names it.
func TestStateOfADatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFleet(t), t.TempDir()
		in := func(address string) func(*server.Config) {
			return func(c *server.Config) { c.Settings.Store = address }
		}
		way := &cutOffShelf{shelf: f.shelf}
		a, _, end := f.keeping(dir, way, in("redis://:geheim@h?db=1&timeout=1s"))
		a.want(201, "POST", "/v1/bans", `{"network":"203.0.113.0/24"}`)
		end()
		way.cut.Store(true)
		for address, kept := range map[string]bool{"redis://h?db=2": false, "redis://h": false, "redis://h?timeout=2s&db=1": true} {
			_, one, end := f.keeping(dir, way, in(address))
			if banned := outcome(t, one, `{"client":"203.0.113.1"}`) == "banned"; banned != kept {
				t.Errorf("%s: banned: %t", address, banned)
			}
			end()
		}
	})
}

// A file that is not as it was written, or of others, or no file, is not used and set
// aside; the instance serves.
func TestStateFileHostile(t *testing.T) {
	good := func(t *testing.T, f *fleet, dir string) {
		a, _, end := f.keeping(dir, f.shelf)
		a.want(201, "POST", "/v1/bans", `{"network":"203.0.113.0/24"}`)
		end()
	}
	change := func(edit func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, file string) {
			data, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, edit(data), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	instead := func(make func(file string) error) func(*testing.T, string) {
		return func(t *testing.T, file string) {
			if err := errors.Join(os.Remove(file), make(file)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, spoil := range map[string]func(*testing.T, string){
		"empty":     change(func([]byte) []byte { return nil }),
		"truncated": change(func(b []byte) []byte { return b[:len(b)-7] }),
		"flipped":   change(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }),
		"garbage":   change(func([]byte) []byte { return bytes.Repeat([]byte("\x00\xffstint state 1\n"), 999) }),
		"longer":    change(func(b []byte) []byte { return append(b, '\n') }),
		"version":   change(func(b []byte) []byte { return bytes.Replace(b, []byte("state 1"), []byte("state 2"), 1) }),
		"namespace": change(func(b []byte) []byte { return bytes.Replace(b, []byte(`"shop"`), []byte(`"shoq"`), 1) }),
		"huge": instead(func(file string) error {
			f, err := os.Create(file)
			if err == nil {
				err = errors.Join(f.Truncate(1<<40), f.Close())
			}
			return err
		}),
		"symlink":   instead(func(file string) error { return os.Symlink("/dev/zero", file) }),
		"FIFO":      instead(func(file string) error { return syscall.Mkfifo(file, 0o600) }),
		"directory": instead(func(file string) error { return os.Mkdir(file, 0o700) }),
		"writable":  func(t *testing.T, file string) { _ = os.Chmod(file, 0o666) },
		"another user's": func(t *testing.T, file string) {
			if err := os.Chown(file, 12345, 12345); err != nil {
				t.Skip(err) // only root can give a file away
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, dir := newFleet(t), t.TempDir()
				good(t, f, dir)
				spoil(t, stateFile(t, dir))
				var log logged
				f.shelf.set(func(s *shelf) { s.down = true })
				a, one, end := f.keeping(dir, f.shelf, logTo(&log))
				expect(t, outcome(t, one, `{"client":"203.0.113.1"}`), "allowed")
				a.want(200, "GET", "/v1/status", "", `"source":"nowhere"`)
				if text := log.taken(); !strings.Contains(text, "cannot be used, and was set aside") {
					t.Errorf("nobody is told:\n%s", text)
				} else if strings.Contains(text, "another version of the program wrote it") != (name == "version") {
					t.Errorf("why: %s", text)
				}
				f.shelf.set(func(s *shelf) { s.down = false })
				time.Sleep(2 * time.Second)
				expect(t, outcome(t, one, `{"client":"203.0.113.1"}`), "banned")
				end()
				f.shelf.set(func(s *shelf) { s.down = true })
				_, one, end = f.keeping(dir, f.shelf)
				expect(t, outcome(t, one, `{"client":"203.0.113.1"}`), "banned")
				end()
			})
		})
	}
}

// What another fleet has kept in a directory is neither used nor lost; a directory that
// is used, or that others may write to, is refused; one that is full is told of.
func TestStateDir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFleet(t), filepath.Join(t.TempDir(), "a", "b")
		a, _, end := f.keeping(dir, f.shelf)
		a.want(201, "POST", "/v1/bans", `{"network":"203.0.113.0/24"}`)
		open := func(dir string) error {
			s := newServer(t, adminRules, func(c *server.Config) { c.Settings.StateDir, c.Documents = dir, f.shelf })
			defer s.Close()
			return s.Open()
		}
		if err := open(dir); err == nil || !strings.Contains(err.Error(), "another instance uses it") {
			t.Errorf("two in one: %v", err)
		}
		for _, c := range []struct{ namespace, store string }{{"other", ""}, {"shop", "redis://:secret@elsewhere:6379/2"}} {
			end()
			f.shelf.set(func(s *shelf) { s.down = true })
			var one *server.Server
			_, one, end = f.keeping(dir, f.shelf, func(g *server.Config) { g.Settings.Namespace, g.Settings.Store = c.namespace, c.store })
			expect(t, outcome(t, one, `{"client":"203.0.113.1"}`), "allowed")
			f.shelf.set(func(s *shelf) { s.down = false })
			time.Sleep(time.Second)
		}
		end()
		all, _ := filepath.Glob(filepath.Join(dir, "state-*"))
		if len(all) != 3 {
			t.Errorf("%q", all)
		}
		for _, file := range all {
			if data, err := os.ReadFile(file); err != nil || bytes.Contains(data, []byte("secret")) {
				t.Errorf("%v: %s", err, data)
			}
		}
		wide := filepath.Join(t.TempDir(), "wide")
		if err := errors.Join(os.Mkdir(wide, 0o700), os.Chmod(wide, 0o777)); err != nil {
			t.Fatal(err)
		}
		if err := open(wide); err == nil || !strings.Contains(err.Error(), "chmod 700") {
			t.Errorf("writable by all: %v", err)
		}
		if os.Chown(wide, 12345, 12345) == nil && os.Chmod(wide, 0o700) == nil { // only root can
			if err := open(wide); err == nil || !strings.Contains(err.Error(), "another user owns it") {
				t.Errorf("another user's: %v", err)
			}
		}
		file := filepath.Join(t.TempDir(), "file")
		_ = os.WriteFile(file, nil, 0o600)
		if err := open(file); err == nil {
			t.Error("a file is no directory")
		}

		// Something stands where the new file should: as on a disk that is full, nothing
		// can be written.
		dir = t.TempDir()
		var log logged
		a, one, end := f.keeping(dir, f.shelf, logTo(&log))
		if err := errors.Join(os.MkdirAll(stateFile(t, dir)+".new/x", 0o700)); err != nil {
			t.Fatal(err)
		}
		a.want(201, "POST", "/v1/bans", `{"network":"203.0.112.0/24"}`)
		a.want(200, "GET", "/v1/status", "", `"state_error":"`)
		if text := log.taken(); !strings.Contains(text, "cannot be written to state_dir") {
			t.Errorf("nobody is told:\n%s", text)
		}
		w := httptest.NewRecorder()
		checkAPI(one).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if !strings.Contains(w.Body.String(), "stint_state_failures_total 1") && !strings.Contains(w.Body.String(), "stint_state_failures_total 2") {
			t.Error("no metric of it")
		}
		f.shelf.set(func(s *shelf) { s.down = true })
		time.Sleep(2 * time.Second)
		a.want(201, "POST", "/v1/bans", `{"network":"203.0.111.0/24"}`, "lost if this instance ends before")
		if all, _ := filepath.Glob(filepath.Join(dir, "state-*.new/x")); len(all) != 1 {
			t.Fatal(all)
		} else if err := errors.Join(os.Remove(all[0]), os.Remove(filepath.Dir(all[0]))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		if answer := a.want(200, "GET", "/v1/status", ""); strings.Contains(answer, "state_error") {
			t.Errorf("%s", answer)
		}
		end()
		_, one, end = f.keeping(dir, f.shelf)
		expect(t, outcome(t, one, `{"client":"203.0.111.1"}`)+" "+outcome(t, one, `{"client":"203.0.112.1"}`), "banned banned")
		end()
	})
}

// An instance by itself finds again what was changed before it was restarted.
func TestStateOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFleet(t), t.TempDir()
		for i := range 3 {
			a, one, end := f.keeping(dir, nil, func(c *server.Config) { c.Limiter = stint.NewLimiter(new(stint.Memory)) })
			for k := range i {
				expect(t, outcome(t, one, fmt.Sprintf(`{"client":"203.0.113.%d"}`, k)), "banned")
			}
			a.want(201, "POST", "/v1/bans", fmt.Sprintf(`{"network":"203.0.113.%d"}`, i))
			a.want(200, "GET", "/v1/status", "", `"source":"store"`, `"pending":[]`)
			end()
		}
	})
}
