package server_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// shelf is server.Documents that several servers share, and that fail on demand.
type shelf struct {
	mu       sync.Mutex
	down     bool
	deaf     bool  // nobody is told of changes
	lost     error // what a Write that was done returns
	versions map[string][][]byte
	watchers []func()
}

func (f *shelf) Now(context.Context) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return time.Time{}, errors.New("the shelf is down")
	}
	return time.Now(), nil
}

func (f *shelf) Newest(_ context.Context, name string) (int64, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return 0, "", errors.New("the shelf is down")
	}
	all := f.versions[name]
	if len(all) == 0 {
		return 0, "", nil
	}
	return int64(len(all)), fmt.Sprintf("%x", sha1.Sum(all[len(all)-1])), nil
}

func (f *shelf) Read(_ context.Context, name string, number int64) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, errors.New("the shelf is down")
	}
	if all := f.versions[name]; number >= 1 && number <= int64(len(all)) {
		return all[number-1], nil
	}
	return nil, nil
}

func (f *shelf) Write(_ context.Context, name string, number int64, text []byte) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return false, errors.New("the shelf is down")
	}
	if number < 1 || len(text) > 4<<20 { // as Redis has it
		return false, fmt.Errorf("shelf: %w: version %d of %d bytes", stint.ErrRequest, number, len(text))
	}
	if number != int64(len(f.versions[name]))+1 {
		return false, nil
	}
	if f.versions == nil {
		f.versions = map[string][][]byte{}
	}
	f.versions[name] = append(f.versions[name], bytes.Clone(text))
	if !f.deaf {
		for _, changed := range f.watchers {
			changed()
		}
	}
	if f.lost != nil {
		return false, f.lost
	}
	return true, nil
}

func (f *shelf) Watch(ctx context.Context, changed func()) {
	f.mu.Lock()
	f.watchers = append(f.watchers, changed)
	f.mu.Unlock()
	changed() // it may have missed some until now
	<-ctx.Done()
}

// set changes how it fails, or what it has.
func (f *shelf) set(change func(*shelf)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// fleet is instances that share a store and a shelf.
type fleet struct {
	testing.TB
	shelf *shelf
	store *stint.Memory
	ctx   context.Context
	wall  func() time.Time // the machine's clock of instances that keep; nil: time.Now
}

func newFleet(t testing.TB) *fleet {
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	return &fleet{TB: t, shelf: &shelf{}, store: &stint.Memory{}, ctx: ctx}
}

// join starts an instance with these rules in its file.
func (f *fleet) join(file string, changes ...func(*server.Config)) (operator, *server.Server) {
	s := newServer(f.TB, file, append([]func(*server.Config){over(f.store), func(c *server.Config) {
		c.Documents, c.Settings.RulesFrom = f.shelf, config.FromFleet
	}}, changes...)...)
	s.Follow(f.ctx)
	return operator{f.TB, s.Admin()}, s
}

// What is changed at one instance is in force at every other within a second, also
// if nobody is told. While the documents cannot be reached, it is in force at the one
// instance, and then everywhere.
func TestFleetControls(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			f.shelf.deaf = deaf
			a, one := f.join(adminRules)
			_, two := f.join(adminRules)
			wait := func() {
				if deaf {
					time.Sleep(time.Second)
				}
				synctest.Wait()
			}
			ban := a.id(a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1"}`))
			expect(t, outcome(t, one, login), "banned") // at once
			wait()
			expect(t, outcome(t, two, login), "banned")
			_, three := f.join(adminRules) // one that comes later
			expect(t, outcome(t, three, login), "banned")

			f.shelf.set(func(s *shelf) { s.down = true })
			a.want(200, "DELETE", "/v1/bans/"+ban, "", `"pending":"in force at this instance only`)
			time.Sleep(time.Minute)
			expect(t, outcome(t, one, login)+" "+outcome(t, two, login), "allowed banned")
			f.shelf.set(func(s *shelf) { s.down = false })
			time.Sleep(time.Second) // at an instance that hears nothing, after the merging
			wait()
			expect(t, outcome(t, two, login), "allowed")
			a.want(200, "PATCH", "/v1/switches", `{"enabled":false}`)
			wait()
			expect(t, outcomes(t, two, login, 9), strings.Repeat("allowed ", 8)+"allowed")
		})
	}
}

// A lift reaches what an instance counts by itself.
func TestFleetLift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		a, one := f.join(adminRules)
		_, two := f.join(adminRules)
		expect(t, outcomes(t, two, login, 5), "allowed allowed limited limited banned")
		expect(t, outcome(t, one, login), "banned")
		a.want(200, "POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.1"}`)
		synctest.Wait()
		expect(t, outcome(t, one, login)+outcome(t, two, login), "limitedlimited")
	})
}

// Changes at the same time, through every instance, are all made.
func TestFleetRivals(t *testing.T) {
	f := newFleet(t)
	var operators []operator
	for range 4 {
		o, _ := f.join(adminRules)
		operators = append(operators, o)
	}
	const each = 10
	var wg sync.WaitGroup
	for i, o := range operators {
		wg.Go(func() {
			for j := range each {
				body := fmt.Sprintf(`{"rule":"login","key":"192.0.%d.%d"}`, i, j)
				for { // so many at once may find no gap
					if code, answer := o.call("POST", "/v1/bans", body); code == 201 {
						break
					} else if code != 409 {
						t.Errorf("%d %s", code, answer)
						break
					}
				}
			}
		})
	}
	wg.Wait()
	operators[0].want(200, "PATCH", "/v1/switches", `{"enabled":true}`) // sees all that was changed before
	answer := operators[0].want(200, "GET", "/v1/bans", "")
	if n := strings.Count(answer, `"id"`); n != 4*each {
		t.Errorf("%d bans of %d: %s", n, 4*each, answer)
	}
}

func push(text string, after int) string {
	return `{"text":` + strconv.Quote(text) + `,"after":` + strconv.Itoa(after) + `}`
}

func TestFleetRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		a, one := f.join("rules: []")
		b, two := f.join("rules: []")
		const any = `{"client":"192.0.2.1"}`
		text := func(amount int) string {
			return fmt.Sprintf("rules:\n  - {name: all, key: client.ip, limits: [%d per 1h]}\n", amount)
		}
		a.want(200, "GET", "/v1/rules", "", `"source":"file"`, `"number":0`)
		a.want(409, "PUT", "/v1/rules", push(text(2), 3), "nothing was pushed yet", `"newest":0`)
		a.want(200, "PUT", "/v1/rules", push(text(2), 0), `"number":1`, `"author":"local"`)
		synctest.Wait()
		expect(t, outcomes(t, one, any, 1)+" "+outcomes(t, two, any, 2), "allowed allowed limited")
		b.want(200, "GET", "/v1/rules", "", `"source":"fleet"`, `"number":1`)

		b.want(409, "PUT", "/v1/rules", push(text(9), 0), "The newest version is 1, pushed by local", `"newest":1`)
		b.want(409, "PUT", "/v1/rules", push(text(9), 7), `"newest":1`)
		b.want(422, "PUT", "/v1/rules", push("rules: [{name: x}]", 1), `"where":"1:9"`)
		b.want(422, "PUT", "/v1/rules", push("server: {store: memory}\n", 1), "section server")
		b.want(400, "PUT", "/v1/rules", `{"text":"rules: []"}`, "after is missing")
		b.want(200, "POST", "/v1/rules/check", `{"text":"rules: []"}`, `"count":0`)
		b.want(200, "PUT", "/v1/rules", push(text(3), 1), `"number":2`)
		synctest.Wait()
		expect(t, outcomes(t, one, any, 2), "allowed limited") // 2 were used, of 3 now

		// The file of an instance does not count while the fleet has rules.
		none, err := rules.Parse("rules.yaml", []byte("rules: []"))
		if err != nil || taken(one.SetRules(none)) {
			t.Errorf("the file's rules were taken, or %v", err)
		}
		expect(t, outcome(t, one, any), "limited")

		a.want(200, "POST", "/v1/rules/rollback", `{"to":1,"after":2}`, `"number":3`, "back to version 1")
		a.want(404, "POST", "/v1/rules/rollback", `{"to":9,"after":3}`)
		a.want(200, "GET", "/v1/rules/versions", "", `"versions":[{"number":3`, `{"number":1`)
		a.want(200, "GET", "/v1/rules/versions/2", "", `limits: [3 per 1h]`)
		a.want(404, "GET", "/v1/rules/versions/4", "")
		a.want(200, "GET", "/v1/rules/versions?limit=1", "", `{"versions":[{"number":3`)
	})
}

// What is changed of a rule that was pushed just now, at another instance, is not
// refused for want of the rule.
func TestFleetChangesNewestRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.shelf.deaf = true
		a, _ := f.join("rules: []")
		b, two := f.join("rules: []")
		a.want(200, "PUT", "/v1/rules", push(adminRules, 0))
		b.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1"}`)
		expect(t, outcome(t, two, login), "banned")
	})
}

// A version that an instance cannot read, as one written by a later release, leaves
// what it has, and says so.
func TestFleetRulesRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		a, one := f.join(adminRules)
		_, _ = f.shelf.Write(t.Context(), "rules", 1, []byte(`{"author":"x","at":"2026-01-01T00:00:00Z","text":"rules: [{nome: x}]"}`))
		synctest.Wait()
		expect(t, outcomes(t, one, login, 3), "allowed allowed limited")
		a.want(200, "GET", "/v1/status", "", `"refused":{"at"`, "nome", `"source":"file"`)
		a.want(200, "PUT", "/v1/rules", push("rules: []", 1), `"number":2`)
		if answer := a.want(200, "GET", "/v1/status", ""); strings.Contains(answer, "refused") {
			t.Errorf("%s", answer)
		}
	})
}

// A change by who knows nothing of what was lost can come before it is restored.
// Then that change counts, and those who know say that something may be missing.
func TestFleetChangedAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		f := newFleet(t)
		a, one := f.join(adminRules, logTo(&log))
		a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1"}`)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		f.shelf.set(func(s *shelf) { s.versions = nil })
		b, _ := f.join(adminRules)
		b.want(200, "PATCH", "/v1/switches", `{"rules":{"api":"off"}}`)
		time.Sleep(time.Second)
		expect(t, outcome(t, one, login), "allowed")
		if text := log.taken(); !strings.Contains(text, "check what is missing") || !strings.Contains(text, "lost=1 number=1") {
			t.Errorf("%s", text)
		}
	})
}

// A store that was emptied, or that fell back to an older state, is given again
// what the fleet had, the newest of it.
func TestFleetRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		a, one := f.join(adminRules)
		b, two := f.join(adminRules)
		a.want(200, "PUT", "/v1/rules", push(adminRules+"\n# pushed\n", 0))
		a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1"}`)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		f.shelf.set(func(s *shelf) { s.deaf = true })
		a.want(200, "PATCH", "/v1/switches", `{"rules":{"api":"off"}}`) // two has not seen this
		f.shelf.set(func(s *shelf) { s.versions = nil })
		time.Sleep(2 * time.Second)
		for _, o := range []operator{a, b} {
			o.want(200, "GET", "/v1/switches", "", `{"name":"api","file":"enforce","set":"off","now":"off"}`)
			o.want(200, "GET", "/v1/rules", "", `"source":"fleet"`)
		}
		expect(t, outcome(t, one, login)+outcome(t, two, login), "bannedbanned")
		c, three := f.join("rules: []")
		expect(t, outcome(t, three, login), "banned")
		c.want(200, "GET", "/v1/rules", "", `"source":"fleet"`)
	})
}

// taken is whether rules were taken, which no error kept from it.
func taken(is bool, err error) bool { return is && err == nil }

// Documents that cannot be reached are told once, with one cause, in the log and to who
// changes something.
func TestDocumentsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		f := newFleet(t)
		a, _ := f.join(adminRules, logTo(&log))
		f.shelf.set(func(s *shelf) { s.down = true })
		time.Sleep(time.Second)
		text := log.taken() + a.want(201, "POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1"}`)
		if strings.Count(text, "the shelf is down") != 2 || strings.Contains(text, `\n`) {
			t.Error(text)
		}
	})
}
